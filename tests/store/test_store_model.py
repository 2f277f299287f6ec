"""Does the store agree with a plain list of messages, whatever happens in whatever order?"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from txrocketmq.codec.record import decode_record, decode_records, encode_batch
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.results import GetMessageResult, GetMessageStatus, PutMessageResult
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.store import open_memory_store, small_config

QUEUES = st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 2))
TAGS = st.sampled_from(["red", "blue"])
FOREVER = 2**62


class Stored:
    """What the model knows of a message."""

    def __init__(self, key: str, body: bytes, tag: str, end: int, timestamp_ms: int) -> None:
        self.key = key
        self.body = body
        self.tag = tag
        self.end = end
        self.timestamp_ms = timestamp_ms


class StoreMachine(RuleBasedStateMachine):
    """A store on a disk in memory, next to lists."""

    @initialize(log_file=st.sampled_from([4096, 16384]), index=st.sampled_from([20, 400]))
    def open_first(self, log_file: int, index: int) -> None:
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.config = small_config(
            mapped_file_size_commit_log=log_file,
            mapped_file_size_consume_queue=200,
            max_index_num=index,
        )
        self.model: dict[tuple[str, int], list[Stored]] = defaultdict(list)
        self.number = 0
        self.store: MessageStore = self.open()

    def open(self) -> MessageStore:
        return open_memory_store(self.disk, self.clock, config=self.config)

    def record(self, queue: tuple[str, int], body: bytes, tag: str) -> tuple[MessageRecord, str]:
        self.number += 1
        key = f"id{self.number}"
        found = {"UNIQ_KEY": key, "TAGS": tag}
        return (
            MessageRecord(
                topic=queue[0],
                queue_id=queue[1],
                body=body,
                properties=format_properties(found),
                tags_code=tags_code(tag),
                uniq_key=key,
            ),
            key,
        )

    def note(self, queue: tuple[str, int], result: PutMessageResult, stored: list[Any]) -> None:
        assert result.is_ok
        assert result.queue_offset == len(self.model[queue])
        starts = list(result.batch_offsets) or [result.physical_offset]
        ends = [*starts[1:], result.physical_offset + result.wrote_bytes]
        for (key, body, tag), end in zip(stored, ends, strict=True):
            self.model[queue].append(Stored(key, body, tag, end, result.store_timestamp_ms))

    @rule(queue=QUEUES, tag=TAGS, size=st.integers(0, 1500))
    def put(self, queue: tuple[str, int], tag: str, size: int) -> None:
        body = b"%d:" % self.number + b"x" * size
        record, key = self.record(queue, body, tag)
        result = self.store.put_message(record)
        assert isinstance(result, PutMessageResult)
        self.note(queue, result, [(key, body, tag)])

    @rule(queue=QUEUES, tags=st.lists(TAGS, min_size=1, max_size=8))
    def put_batch(self, queue: tuple[str, int], tags: list[str]) -> None:
        items, stored = [], []
        for tag in tags:
            body = b"batch%d" % self.number
            record, key = self.record(queue, body, tag)
            items.append((0, body, record.properties))
            stored.append((key, body, tag))
        whole = MessageRecord(topic=queue[0], queue_id=queue[1], body=encode_batch(items))
        result = self.store.put_batch(whole)
        assert isinstance(result, PutMessageResult)
        self.note(queue, result, stored)

    @rule(queue=QUEUES, tag=TAGS)
    def put_flushed(self, queue: tuple[str, int], tag: str) -> None:
        """An acknowledged message is on the device: `lose_power` holds us to it."""
        body = b"sync%d" % self.number
        record, key = self.record(queue, body, tag)
        self.config.flush_disk_type = "SYNC_FLUSH"
        outcome = self.store.put_message(record)
        self.config.flush_disk_type = "ASYNC_FLUSH"
        assert isinstance(outcome, Deferred)
        results: list[PutMessageResult] = []
        outcome.addCallback(results.append)
        self.clock.advance(0)
        self.note(queue, results[0], [(key, body, tag)])
        assert self.store.flushed_offset() >= self.model[queue][-1].end

    @rule(seconds=st.sampled_from([0.3, 1, 2, 11, 65]))
    def wait(self, seconds: float) -> None:
        steps = max(1, int(seconds))
        for _ in range(steps):
            self.clock.advance(seconds / steps)

    @rule()
    def stop_and_start(self) -> None:
        stopped: list[object] = []
        self.store.stop().addBoth(stopped.append)
        assert stopped == [None]
        self.store = self.open()
        assert self.store.recovery is not None
        assert self.store.recovery.clean

    @rule()
    def kill_and_start(self) -> None:
        self.abandon()
        self.disk.locked.clear()
        self.store = self.open()

    @rule()
    def lose_power_and_start(self) -> None:
        safe = self.store.flushed_offset()
        self.abandon()
        self.disk.crash()
        self.store = self.open()
        # More than what was promised may have reached the device, but only in the order of the log.
        end = self.store.max_physical_offset()
        assert end >= safe
        for queue, messages in list(self.model.items()):
            self.model[queue] = [stored for stored in messages if stored.end <= end]

    def abandon(self) -> None:
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()

    @rule(queue=QUEUES, offset=st.integers(-2, 60), count=st.integers(1, 40), tag=st.none() | TAGS)
    def pull(self, queue: tuple[str, int], offset: int, count: int, tag: str | None) -> None:
        messages = self.model[queue]
        wanted = None if tag is None else TagsFilter([tags_code(tag)])
        found = self.store.get_message(*queue, offset, count, 1 << 20, wanted)
        assert isinstance(found, GetMessageResult)
        bodies = [m.body for m in decode_records(b"".join(found.records))]
        if not 0 <= offset < len(messages):
            assert bodies == []
            assert found.next_begin_offset == min(max(offset, 0), len(messages))
            return
        looked_at = messages[offset : found.next_begin_offset]
        assert bodies == [m.body for m in looked_at if tag in (None, m.tag)]
        assert len(bodies) <= max(1, min(count, 32))
        if found.status is not GetMessageStatus.FOUND:
            assert found.status is GetMessageStatus.NO_MATCHED_MESSAGE
            assert found.next_begin_offset == len(messages)

    @rule(queue=QUEUES, choice=st.integers(0, 1000), shift=st.sampled_from([-1, 0, 1]))
    def search_by_time(self, queue: tuple[str, int], choice: int, shift: int) -> None:
        times = [stored.timestamp_ms for stored in self.model[queue]]
        if not times:
            return
        probe = times[choice % len(times)] + shift
        lower = self.store.offset_by_time(*queue, probe, False)
        upper = self.store.offset_by_time(*queue, probe, True)
        assert lower == sum(time < probe for time in times)
        assert upper == max(sum(time <= probe for time in times) - 1, 0)

    @rule(queue=QUEUES, choice=st.integers(0, 1000))
    def query(self, queue: tuple[str, int], choice: int) -> None:
        messages = self.model[queue]
        if not messages:
            return
        stored = messages[choice % len(messages)]
        records = self.store.query_message(queue[0], stored.key, 10, 0, FOREVER).records
        assert [decode_record(record)[0].body for record in records] == [stored.body]

    @invariant()
    def positions_agree(self) -> None:
        for queue, messages in self.model.items():
            assert self.store.max_offset(*queue) == len(messages)
            assert self.store.min_offset(*queue) == 0
        assert self.store.dispatch_behind_bytes == 0


def test_the_store_agrees_with_a_list_of_messages() -> None:
    profile = settings.default
    assert profile is not None
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        StoreMachine,
        settings=settings(
            max_examples=max(20, profile.max_examples // 2),
            stateful_step_count=40,
            # Making a failing run shorter can take minutes; add Phase.shrink to study one.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
