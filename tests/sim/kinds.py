"""Schedules with queues of all kinds: batches that are one record, light queues that share records, extensions with filter bits.

What is promised besides: batch queues and light queues are gapless too and agree with what their records say, and a filter that looks
into an extension finds what one that looks at the messages finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.sim.model import Sent
from tests.sim.world import FIRST_ACTIONS, HOST, TAGS, World, require
from txrocketmq.codec.record import decode_records, encode_batch
from txrocketmq.model.flags import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.model.properties import format_properties, with_property
from txrocketmq.store.filter import TagsFilter
from txrocketmq.store.queuetable import KINDS
from txrocketmq.store.results import GetMessageResult, PutMessageResult, PutMessageStatus
from txrocketmq.testing.simdisk import Faults
from txrocketmq.testing.store import ROOT

KINDS_ACTIONS = {**FIRST_ACTIONS, "put_inner_batch": 15, "put_light": 20, "read_kinds": 8}
"""What happens in a life, and how often."""

BATCHES = "Batches"
LIGHT = ("%LMQ%one", "%LMQ%two", "%LMQ%three")


class KindsWorld(World):
    """One schedule with queues of all kinds; see `World`."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        actions: Mapping[str, int] = KINDS_ACTIONS,
        **keys: object,
    ) -> None:
        sizes = {
            "enable_lmq": True,
            "enable_multi_dispatch": True,
            "enable_consume_queue_ext": True,
            "mapped_file_size_consume_queue_ext": 300,
            "mapper_file_size_batch_consume_queue": 46 * 5,
        }
        super().__init__(seed, faults, actions, **{**sizes, **keys})
        self._batches: list[tuple[Sent, int, int]] = []
        self._light: dict[str, list[Sent]] = {name: [] for name in LIGHT}

    def _lose_queues(self) -> None:
        """Somebody deletes all queues, whatever their kind, while the store is closed."""
        if self._dice.random() < 0.15 and self.disk.exists(f"{ROOT}/consumequeue"):
            self._note("all queues are lost")
            self.disk.faults = Faults()
            for kind in KINDS:
                self.disk.rmtree(f"{ROOT}/{kind}")
            self.disk.sync_directory(ROOT)

    def _open(self) -> bool:
        if not super()._open():
            return False
        self.store.use_topic_attributes(
            lambda topic: {"queue.type": "BatchCQ"} if topic == BATCHES else {}
        )
        self.store.use_filter_bits(lambda topic, found: found["UNIQ_KEY"][-2:].encode())
        return True

    # ------------------------------------------------------------------ sending

    @property
    def _batch_end(self) -> int:
        return self._batches[-1][1] + self._batches[-1][2] if self._batches else 0

    def _place_of(self, record: MessageRecord) -> tuple[int, bool]:
        if record.topic == BATCHES:
            return self._batch_end, False
        return super()._place_of(record)

    @staticmethod
    def _is_taken(outcome: Any) -> bool:
        return not (
            isinstance(outcome, PutMessageResult) and outcome.status is not PutMessageStatus.PUT_OK
        )

    def _do_put_inner_batch(self) -> None:
        self._number += 1
        count = self.rng.randint(1, 5)
        items = [(0, self.rng.randbytes(self.rng.randrange(300)), b"") for _ in range(count)]
        found = {"UNIQ_KEY": f"7F0000010001{self._number:020X}", "INNER_NUM": str(count)}
        record = MessageRecord(
            topic=BATCHES,
            queue_id=0,
            body=encode_batch(items),
            properties=format_properties(found),
            sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG,
            born_host=HOST,
            store_host=HOST,
            uniq_key=found["UNIQ_KEY"],
        )
        outcome = self.store.put_message(record)
        first = self._batch_end
        record.properties = with_property(record.properties, "INNER_BASE", str(first))
        self._appended(outcome, [record], True)
        if self._is_taken(outcome):
            self._batches.append((self.model.log[-1], first, count))

    def _do_put_light(self) -> None:
        record = self._record(300)
        record.sys_flag, record.topic = 0, self.rng.choice(("TopicA", "TopicB"))
        names = self.rng.sample(LIGHT, self.rng.randint(1, 3))
        record.properties = with_property(
            record.properties, "INNER_MULTI_DISPATCH", ",".join(names)
        )
        offsets = ",".join(str(len(self._light[name])) for name in names)
        outcome = self.store.put_message(record)
        record.properties = with_property(record.properties, "INNER_MULTI_QUEUE_OFFSET", offsets)
        self._appended(outcome, [record], record.wait_store_msg_ok)
        if self._is_taken(outcome):
            for name in names:
                self._light[name].append(self.model.log[-1])

    # ------------------------------------------------------------------ checking

    def _check_queues(self) -> None:
        """After a start: what is lost of the log is gone from these queues too."""
        left = set(map(id, self.model.log))
        self._batches = [batch for batch in self._batches if id(batch[0]) in left]
        for sent in self._light.values():
            sent[:] = [message for message in sent if id(message) in left]
        store, own = self.store, {(name, 0) for name in (BATCHES, *LIGHT)}
        for key in sorted({*store.queues(), *self.model.queue_keys()} - own):
            messages = self.model.queue(key)
            require(store.max_offset(*key) == len(messages), f"{key} has {len(messages)}")
            self._pull(key, 0, len(messages))
            self._pull_by_tag(key, messages)
        require(store.max_offset(BATCHES, 0) == self._batch_end, "batches end where they did")
        for name, sent in self._light.items():
            require(store.max_offset(name, 0) == len(sent), f"{name} has {len(sent)}")
        self._do_read_kinds()

    def _pull_by_tag(self, key: tuple[str, int], messages: list[Sent]) -> None:
        tag = self.rng.choice(TAGS[1:])
        wanted = [sent for sent in messages if f"TAGS\x01{tag}".encode() in sent.properties]
        found = self._read(*key, len(messages), TagsFilter([tags_code(tag)]))
        # Where a power failure took a unit of the extension the message passes: clients filter too.
        missing = {sent.physical_offset for sent in wanted} - {m.physical_offset for m in found}
        require(not missing, f"{key}: {tag} does not find {missing}")

    def _read(self, topic: str, queue_id: int, end: int, wanted: Any = None) -> list[Any]:
        found: list[Any] = []
        offset = 0
        while offset < end:
            result = self._await(
                self.store.get_message(topic, queue_id, offset, 32, 1 << 20, wanted)
            )
            assert isinstance(result, GetMessageResult)
            require(result.next_begin_offset > offset, f"{topic} goes on at {offset}: {result}")
            offset = result.next_begin_offset
            found += decode_records(b"".join(result.records))
        return found

    def _do_read_kinds(self) -> None:
        store = self.store
        if store.putter.rebuild is not None:
            return
        shown = store.max_offset(BATCHES, 0)
        batches = [sent for sent, first, _ in self._batches if first < shown]
        # While cold bytes are read more may be shown.
        found = self._read(BATCHES, 0, shown)[: len(batches)]
        require(
            [(message.physical_offset, message.properties_text) for message in found]
            == [(sent.physical_offset, sent.properties) for sent in batches],
            f"batches are those that were sent: {found}",
        )
        for name, sent in self._light.items():
            shown = store.max_offset(name, 0)
            require(shown <= len(sent), f"{name} shows {shown} of {len(sent)}")
            self._compare_light(name, sent[:shown])

    def _compare_light(self, name: str, sent: list[Sent]) -> None:
        found = self._read(name, 0, len(sent))[: len(sent)]
        require(
            [(message.physical_offset, message.properties_text) for message in found]
            == [(message.physical_offset, message.properties) for message in sent],
            f"{name} holds what was sent to it",
        )
