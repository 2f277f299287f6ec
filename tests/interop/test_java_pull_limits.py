"""How much comes at once: what a broker puts into one answer to a pull, and how much a consumer reads ahead of its listener."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Producer, PushConsumer
from interop.harness.kinds import HeldConsumer
from interop.harness.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.short_columns("none")]

SMALL, LARGE = 160, 3_000
MIB = 1024 * 1024
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
#: The official limits of one answer, in messages and bytes, from memory and from the disk.
OFFICIAL = {
    "accessMessageInMemoryMaxRatio": "40",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInMemory": str(256 * 1024),
    "maxTransferCountOnMessageInDisk": "8",
    "maxTransferBytesOnMessageInDisk": str(64 * 1024),
}
ON_DISK = {"accessMessageInMemoryMaxRatio": "0"}


@contextmanager
def limits(cell: Cell, **settings: str) -> Iterator[None]:
    """Keys that an operator changes, and changes back."""
    cell.configure(**settings)
    try:
        yield
    finally:
        cell.configure(**{key: OFFICIAL[key] for key in settings})


@pytest.fixture
def producer(cell: Cell) -> Iterator[Producer]:
    """Whoever sends to the cell's topic."""
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as made:
        yield made


class TestOneAnswer:
    """The limits of the broker, which count whatever a consumer asks for."""

    def test_it_has_as_many_messages_as_the_broker_allows(
        self, cell: Cell, producer: Producer
    ) -> None:
        few = 50
        cell.admin.create_topic(cell.cluster.broker_address, cell.topic, 2)
        cell.admin.wait_route(cell.topic)
        producer.send(cell.topic, cell.seed, few, "queue", queue=0, size=SMALL)
        producer.send(cell.topic, cell.seed, few, "queue", queue=1, size=LARGE, first=few)

        def came(most: int, queue: int = 0) -> int:
            name = cell.cluster.broker_name
            status, following, rows = cell.admin.pull(cell.topic, name, queue, 0, most)
            assert status == "FOUND"
            assert [row.offset for row in rows] == list(range(following))
            checks.bodies_are_whole(rows, cell.seed, LARGE if queue else SMALL)
            return len(rows)

        # Consumers may ask for more, and for less.
        wait_until(lambda: came(1_000) == 32, "the official limit")
        assert came(1_000, queue=1) == 32
        assert came(5) == 5
        with limits(cell, maxTransferCountOnMessageInMemory="10"):
            assert came(1_000) == 10
            assert came(7) == 7
        # Four records of this size fit and a fifth does not, though its body alone would.
        with limits(cell, maxTransferBytesOnMessageInMemory=str(5 * LARGE)):
            assert came(1_000, queue=1) == 4
            assert came(1_000) == 32
        # One comes however large it is.
        with limits(cell, maxTransferBytesOnMessageInMemory="10"):
            assert came(1_000, queue=1) == came(1_000) == 1
        with limits(cell, **ON_DISK):
            assert came(1_000) == came(1_000, queue=1) == 8
            with limits(cell, maxTransferCountOnMessageInDisk="3"):
                assert came(1_000) == 3
            with limits(cell, maxTransferBytesOnMessageInDisk=str(3 * LARGE)):
                assert came(1_000, queue=1) == 2
        assert came(1_000) == 32

    @pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
    def test_a_consumer_gets_everything_in_small_pieces(
        self, cell: Cell, producer: Producer, how: str
    ) -> None:
        count = min(cell.count, 600)
        small = {
            **ON_DISK,
            "maxTransferCountOnMessageInDisk": "3",
            "maxTransferBytesOnMessageInDisk": str(3 * LARGE),
        }
        cell.admin.create_topic(cell.cluster.broker_address, cell.topic, 4)
        cell.admin.wait_route(cell.topic)
        producer.send(cell.topic, cell.seed, count, size=LARGE, insist_ms=60_000)
        with limits(cell, **small):
            many: dict[str, Any] = {"pull_batch": 1_000, "listener": "orderly", **QUICK}
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **many
            ) as consumer:
                consumer.wait(count // 2)
                cell.cluster.restart_broker(signal.Signals[how])
                cell.admin.wait_broker(cell.cluster.broker_name)
                rows = consumer.wait_for_all(range(count))
        checks.nothing_is_lost(rows, range(count))
        checks.bodies_are_whole(rows, cell.seed, LARGE)


class TestReadAhead:
    """The limits of the official consumer: it holds so much of a queue, and no more, and goes on when its listener does."""

    QUEUES, BATCH = 2, 8

    @pytest.mark.parametrize(
        ("limit", "least", "most"),
        [
            # The limit is looked at before a pull, so one more comes; it is passed when there is more than it says.
            pytest.param({"queue_messages": 16}, 17, 16 + BATCH, id="messages of a queue"),
            # Divided by the queues that it has, that of its retry topic too once it knows it.
            pytest.param({"topic_messages": 48}, 17, 24 + BATCH, id="messages of a topic"),
            pytest.param({"span": 20}, 21, 21 + BATCH, id="span of offsets"),
        ],
    )
    def test_it_stops_at_so_many_messages(
        self, cell: Cell, producer: Producer, limit: dict[str, int], least: int, most: int
    ) -> None:
        self._stops(cell, producer, limit, (SMALL, 200), (least, most))

    @pytest.mark.parametrize("limit", [{"queue_mib": 1}, {"topic_mib": 3}], ids=["queue", "topic"])
    def test_it_stops_at_so_many_bytes(
        self, cell: Cell, producer: Producer, limit: dict[str, int]
    ) -> None:
        # Whole MiB are counted: more than one is two.
        least = -(-2 * MIB // LARGE)
        self._stops(cell, producer, limit, (LARGE, least + 100), (least, least + self.BATCH))

    def _stops(
        self,
        cell: Cell,
        producer: Producer,
        limit: dict[str, int],
        sent: tuple[int, int],
        held: tuple[int, int],
    ) -> None:
        size, each = sent
        cell.admin.create_topic(cell.cluster.broker_address, cell.topic, self.QUEUES)
        cell.admin.wait_route(cell.topic)
        for queue in range(self.QUEUES):
            first = queue * each
            producer.send(cell.topic, cell.seed, each, "queue", queue=queue, size=size, first=first)
        settings: dict[str, Any] = {"pull_batch": self.BATCH, **limit, **QUICK}
        with HeldConsumer(
            cell.puppet, cell.namesrv, cell.group, cell.topic, **settings
        ) as consumer:
            self._is_full(consumer, held, size)
            # A restart of the broker makes it neither forget what it holds nor read more.
            cell.cluster.restart_broker(signal.SIGTERM)
            cell.admin.wait_broker(cell.cluster.broker_name)
            producer.send(
                cell.topic, cell.seed, 1, size=size, first=self.QUEUES * each, insist_ms=60_000
            )
            self._is_full(consumer, held, size)
            assert consumer.rows() == []
            consumer.release()
            rows = consumer.wait_for_all(range(self.QUEUES * each + 1))
        checks.nothing_is_lost(rows, range(self.QUEUES * each + 1))
        checks.nothing_came_twice(rows)
        checks.bodies_are_whole(rows, cell.seed, size)

    def _is_full(self, consumer: HeldConsumer, held: tuple[int, int], size: int) -> None:
        least, most = held

        def full() -> bool:
            ahead = consumer.ahead()
            assert all(messages <= most for messages, _ in ahead.values()), ahead
            assert all(bytes_ == size * messages for messages, bytes_ in ahead.values()), ahead
            return len(ahead) == self.QUEUES and all(
                messages >= least for messages, _ in ahead.values()
            )

        wait_until(full, "both queues are full")
        # It does not go on by itself: it looks twenty times a second whether there is room.
        for _ in range(40):
            assert full()
