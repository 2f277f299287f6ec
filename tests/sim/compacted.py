"""Schedules in which one topic is compacted, while its messages have their time in the commit log.

What is promised besides: of each key the latest message is served, whatever became of the commit log; what is missing was without a key,
without a body, or has a later message of its key; offsets ascend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.python.failure import Failure

from tests.sim.cleaning import CLEANING_ACTIONS, CleaningWorld
from tests.sim.model import QueueKey, Sent
from tests.sim.world import require
from txrocketmq.codec.record import decode_records
from txrocketmq.errors import StoreError
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import find_property, with_property
from txrocketmq.store.compaction.rewrite import Stopped
from txrocketmq.store.results import GetMessageStatus
from txrocketmq.testing.simdisk import Faults

COMPACTED_ACTIONS = {**CLEANING_ACTIONS, "compact": 6}
"""What happens in a life, and how often."""

TOPIC = "TopicA"


class CompactedWorld(CleaningWorld):
    """One schedule with a compacted topic; see `World`."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        actions: Mapping[str, int] = COMPACTED_ACTIONS,
        **keys: object,
    ) -> None:
        sizes: dict[str, object] = {
            "compaction_mapped_file_size": 40_000,
            "compaction_cq_mapped_file_size": 46 * (3, 6, 20)[seed % 3],
            "max_offset_map_size": 0,
        }
        super().__init__(seed, faults, actions, **{**sizes, **keys})

    def _open(self) -> bool:
        if not super()._open():
            return False
        self.store.use_topic_attributes(
            lambda topic: {"cleanup.policy": "COMPACTION"} if topic == TOPIC else {}
        )
        return True

    def _record(self, body_limit: int) -> MessageRecord:
        record = super()._record(body_limit)
        if record.topic == TOPIC:
            record.keys = f"k{self._dice.randrange(5)}" if self._dice.random() < 0.9 else None
            record.properties = with_property(record.properties, "KEYS", record.keys or " ")
            if self._dice.random() < 0.1:
                record.body = b""
        return record

    def _do_compact(self) -> None:
        queues = sorted(self.store.compaction.queues)
        if queues:
            key = self.rng.choice(queues)
            self._note(f"compact {key}")
            self.store.compaction.compact(key).addErrback(self._is_foreseen)

    def _is_foreseen(self, failure: Failure) -> None:
        if self.disk.ended is None and not isinstance(
            failure.value, OSError | StoreError | Stopped
        ):
            self._errors.append(failure.getTraceback())

    def _do_read(self) -> None:
        keys = self.model.queue_keys()
        if not any(key[0] == TOPIC and self.store.incomplete(*key) is not None for key in keys):
            # While a queue is made again, its copy is served.
            super()._do_read()

    def _check_queues(self) -> None:
        super()._check_queues()
        for key in self.model.queue_keys():
            if key[0] == TOPIC:
                self._pull(key, 0, self.store.max_offset(*key))

    def _pull(self, key: QueueKey, offset: int, end: int) -> None:
        if key[0] != TOPIC:
            super()._pull(key, offset, end)
            return
        messages, first = self.model.queue(key), offset
        found: set[int] = set()
        while offset < end:
            result = self._await(self.store.get_message(*key, offset, 32, 1 << 20, None))
            if isinstance(result, Failure):
                self._check_alive()
                faults = self.disk.faults.sync_eio or self.disk.faults.sync_enospc
                full = self.disk.used_bytes + 10_000 > self.disk.capacity_bytes
                require(bool(faults or full), f"{key} can be read: {result.getTraceback()}")
                return
            following = result.next_begin_offset
            if result.status is GetMessageStatus.FOUND:
                read = decode_records(b"".join(result.records))
                offsets = [message.queue_offset for message in read]
                require(offsets == list(result.queue_offsets), f"{result} has {offsets}")
                ascending = sorted({offset - 1, *offsets})[1:]
                require(offsets == ascending and offset <= offsets[0], f"ascending: {offsets}")
                for message in read:
                    sent = messages[message.queue_offset]
                    same = (message.body, message.properties_text) == (sent.body, sent.properties)
                    require(same, f"{sent} reads as {message}")
                found.update(offsets)
            if following <= offset:
                break
            offset = following
        self._see_deletions()
        latest: dict[Any, int] = {}
        for sent in messages:
            latest[_key(sent)] = sent.queue_offset
        for sent in messages[first:end]:
            excused = (
                not _key(sent).strip() or not sent.body or latest[_key(sent)] > sent.queue_offset
            )
            require(
                sent.queue_offset in found or excused, f"{sent} is served, but only {sorted(found)}"
            )


def _key(sent: Sent) -> str:
    return find_property(sent.properties, "KEYS") or ""
