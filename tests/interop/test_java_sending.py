"""Official producers in every way they send, official push consumers on the other side."""

from __future__ import annotations

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Producer, PushConsumer, Row, SendReport

pytestmark = pytest.mark.java

SIZE = 128
LARGE = 6_000
ORDER_KEYS = 7


def send_and_receive(
    cell: Cell, mode: str, size: int = SIZE, producer_settings: dict[str, object] | None = None
) -> tuple[SendReport, list[Row]]:
    """Half of the messages wait for the consumer, half find it waiting; both halves come out whole."""
    half = cell.count // 2
    with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **(producer_settings or {})) as p:
        args = {"size": size, "order_keys": ORDER_KEYS}
        # The first message alone makes the topic, as in daily life.
        reports = [p.send(cell.topic, cell.seed, 1, "sync", **args)]
        reports.append(p.send(cell.topic, cell.seed, half - 1, mode, first=1, **args))
        with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic) as consumer:
            consumer.wait(half)
            reports.append(
                p.send(cell.topic, cell.seed, cell.count - half, mode, first=half, **args)
            )
            consumer.wait(cell.count)
            rows = consumer.rows()
    checks.bodies_are_whole(rows, cell.seed, size)
    checks.nothing_is_lost(rows, range(cell.count))
    checks.nothing_came_twice(rows)
    checks.queues_are_contiguous(rows)
    reports[0].sent += reports[1].sent + reports[2].sent
    reports[0].failures += reports[1].failures + reports[2].failures
    return reports[0], rows


class TestSending:
    """Each way to send: every message arrives once, whole, at the place that the producer was told."""

    def test_sync(self, cell: Cell) -> None:
        report, rows = send_and_receive(cell, "sync")
        checks.all_was_acknowledged(report, cell.count)
        checks.each_is_where_it_was_said(rows, report.sent)
        checks.stored_in_send_order(rows)

    def test_async(self, cell: Cell) -> None:
        report, rows = send_and_receive(cell, "async")
        checks.all_was_acknowledged(report, cell.count)
        checks.each_is_where_it_was_said(rows, report.sent)

    def test_oneway(self, cell: Cell) -> None:
        send_and_receive(cell, "oneway")

    def test_batch(self, cell: Cell) -> None:
        report, rows = send_and_receive(cell, "batch")
        checks.all_was_acknowledged(report, cell.count)
        checks.each_is_where_it_was_said(rows, report.sent)
        checks.stored_in_send_order(rows)

    def test_ordered_by_key(self, cell: Cell) -> None:
        report, rows = send_and_receive(cell, "ordered")
        checks.all_was_acknowledged(report, cell.count)
        checks.keys_stay_together([row for row in rows if row.seq > 0], ORDER_KEYS)

    @pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
    def test_compressed(self, cell: Cell, compression: str) -> None:
        """Bodies above 4 KiB are compressed by the client; the store has fewer bytes than were sent."""
        report, rows = send_and_receive(cell, "sync", LARGE, {"compress_type": compression})
        checks.all_was_acknowledged(report, cell.count)
        checks.each_is_where_it_was_said(rows, report.sent)
