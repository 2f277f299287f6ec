"""One schedule of the fault simulation: a store, a disk that fails it, and a model that knows what must be left.

Everything that happens follows from the seed: what is sent, when pools get on, when the power fails. A schedule is a few lives
of the store; each begins with a start (which may be cut short itself) and a comparison of everything with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from tests.sim.model import Model, QueueKey, Sent
from txrocketmq.codec.record import (
    decode_records,
    encode_batch,
    format_properties,
    record_size,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IKernelSyncs
from txrocketmq.model.flags import TRANSACTION_PREPARED_TYPE
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message import MessageRecord
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.recover import RecoveryLimits
from txrocketmq.store.results import GetMessageResult, GetMessageStatus, PutMessageResult
from txrocketmq.store.results import PutMessageStatus as Put
from txrocketmq.testing.pools import SimulatedPool
from txrocketmq.testing.simdisk import PAGE_BYTES, Faults, SimulatedCrash, SimulatedDisk
from txrocketmq.testing.store import ROOT

TOPICS = ("TopicA", "TopicB", "%RETRY%group")
QUEUE_IDS = (0, 1, 3)
TAGS = (None, "TagA", "TagB")
HOST = ("127.0.0.1", 10911)
FOREVER = 2**63 - 1
FULL = 1 << 50

#: What an append may answer when it does not append.
REFUSALS = {
    Put.SERVICE_NOT_AVAILABLE,
    Put.CREATE_MAPPED_FILE_FAILED,
    Put.OS_PAGE_CACHE_BUSY,
    Put.QUEUE_RECOVERING,
}
#: How long the store may take to accept messages again once all is well, in seconds.
HEAL_S = 10

#: What happens in a life, and how often. Seeds mean the same schedules only as long as this stays as it is: whoever wants more to
#: happen makes another table, and keeps this one for the seeds that were found with it.
FIRST_ACTIONS = {
    "put": 40,
    "put_batch": 5,
    "work": 35,
    "tick": 20,
    "long_tick": 4,
    "write_back": 4,
    "read": 8,
    "query": 3,
    "fill_disk": 1,
    "fail_sync": 1,
    "hang": 1,
}

#: What happens while a start is still being completed.
EARLY_ACTIONS = {
    "put": 40,
    "put_batch": 5,
    "work": 30,
    "tick": 10,
    "write_back": 4,
    "read": 20,
    "query": 5,
}


class Violation(AssertionError):
    """The store broke a promise."""


def require(condition: bool, promise: str) -> None:
    """Fail when a promise is broken."""
    if not condition:
        raise Violation(promise)


@attrs.define
class Waiting:
    """A send that was not answered yet."""

    sent: list[Sent]
    since: float
    outcome: PutMessageResult | None = None


class World:
    """One schedule.

    :param seed: decides everything.
    :param faults: what the disk does besides; for tests of the simulation itself.
    :param actions: what happens in a life, with its weight.
    :param keys: configuration that differs, by attribute name.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        actions: Mapping[str, int] = FIRST_ACTIONS,
        **keys: object,
    ) -> None:
        self.rng = rng = Random(seed)
        # What was added later decides by its own dice, so that older seeds keep their schedules as far as they can.
        self._dice = Random(f"recovery {seed}")
        self.disk = SimulatedDisk(Random(rng.random()))
        self.model = Model()
        self.history: list[str] = []
        self._own_faults = faults or Faults()
        self._actions = actions
        self._sizes: dict[str, Any] = {
            "mapped_file_size_commit_log": PAGE_BYTES * rng.choice((2, 3, 4, 8)),
            "mapped_file_size_consume_queue": 20 * rng.choice((3, 10, 50, 300)),
            "max_hash_slot_num": rng.choice((5, 50)),
            "max_index_num": rng.choice((10, 40, 200)),
            **keys,
        }
        self._window_bytes = PAGE_BYTES * rng.choice((4, 8, 64))
        self._now = 1_700_000_000.0 + rng.randrange(1_000_000)
        self._kept_all = True
        self._is_last = False
        self._number = 0
        self._errors: list[str] = []
        self._waiting: list[Waiting] = []
        self.config = MessageStoreConfig()
        self.clock = Clock()
        self.pools: list[SimulatedPool] = []
        self._store: MessageStore | None = None

    @property
    def store(self) -> MessageStore:
        """The store of this life."""
        assert self._store is not None
        return self._store

    # ------------------------------------------------------------------ the schedule

    def run(self) -> None:
        """The whole schedule.

        :raises Violation: a promise was broken; `history` says how it came to that.
        """
        globalLogPublisher.addObserver(self._observe)
        try:
            for _ in range(self.rng.randint(2, 5)):
                self._one_life()
            self._last_life()
        finally:
            globalLogPublisher.removeObserver(self._observe)

    def _observe(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        if isinstance(failure, Failure) and not failure.check(SimulatedCrash):
            self._errors.append(failure.getTraceback())

    def _note(self, text: str) -> None:
        self.history.append(f"{self.clock.seconds():.3f} op {self.disk.operations}: {text}")

    def _one_life(self) -> None:
        try:
            self._lose_queues()
            if self.rng.random() < 0.35:
                self._arm(self.rng.choice((10, 60, 400)))
            if not self._open():
                return
            self._check_recovered()
            if self.rng.random() < 0.4:
                self._arm(self.rng.choice((10, 100, 1000)))
            for _ in range(self.rng.choice((3, 20, 60))):
                self._act()
            self._end_life()
        except SimulatedCrash:
            self._ended()

    def _last_life(self) -> None:
        self.disk.capacity_bytes = FULL
        self.disk.disarm()
        self._is_last = True
        require(self._open(), "a healthy disk opens")
        self._check_recovered()
        self._heal()
        self._stop()
        require(self._is_clean(), "an undisturbed stop is orderly")
        self.disk.end("power")
        self._ended()
        require(self._open(), "a healthy disk opens")
        self._check_recovered()

    def _lose_queues(self) -> None:
        """Somebody deletes all consume queues while the store is closed."""
        if self._dice.random() < 0.15 and self.disk.exists(f"{ROOT}/consumequeue"):
            self._note("all queues are lost")
            self.disk.faults = Faults()
            self.disk.rmtree(f"{ROOT}/consumequeue")
            self.disk.sync_directory(ROOT)

    def _arm(self, operations: int) -> None:
        kind = self.rng.choice(("power", "power", "kill"))
        number = self.rng.randrange(operations)
        self._note(f"{kind} in {number} operations")
        self.disk.arm(number, kind)

    def _ended(self) -> None:
        kind = self.disk.ended
        assert kind is not None
        self._note(f"ended: {kind}")
        if kind == "power" or self.disk.forgot:
            self._kept_all = False
        self.disk.restart()
        self._store = None
        self._waiting = []
        self._now = self.clock.seconds() + self.rng.choice((-2, 0, 0.5, 10))
        self._check_errors()

    def _check_errors(self) -> None:
        if self._errors:
            raise Violation(f"nothing unforeseen happens, but: {self._errors[0]}")

    # ------------------------------------------------------------------ start

    def _open(self) -> bool:
        """Start a store; False when it says that the disk did not let it."""
        rng = self.rng
        self.disk.faults = attrs.evolve(self._own_faults, cold=rng.choice((0.0, 0.3)))
        if rng.random() < 0.9:
            self.disk.capacity_bytes = FULL
        if rng.random() < 0.05 and not self._is_last:
            self.disk.faults.sync_eio = 0.3
        self.clock = Clock()
        self.clock.rightNow = self._now
        self.pools = [SimulatedPool(rng, threads) for threads in (1, 1, 4, 1)]
        self.config = MessageStoreConfig(
            store_path_root_dir=ROOT,
            flush_disk_type=rng.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")),
            read_un_committed=rng.random() < 0.1,
            flush_commit_log_thorough_interval=rng.choice((1000, 10_000)),
            flush_consume_queue_thorough_interval=rng.choice((1000, 60_000)),
            **self._sizes,
        )
        self._note(f"open {self.config.flush_disk_type}")
        files, flush, read, queues = self.pools
        self._store = store = MessageStore(
            self.config,
            self.disk,
            self.clock,
            pool=files,
            flush_pool=flush,
            read_pool=read,
            queue_pool=queues,
            memory_bytes=1 << 30,
            window_bytes=self._window_bytes,
            limits=self._limits(),
            kernel_syncs=self._make_kernel(),
        )
        ended: list[Any] = []
        store.load().addBoth(ended.append)
        self._work_until(lambda: bool(ended), "a start ends")
        self._check_alive()
        failures = [outcome for outcome in ended if isinstance(outcome, Failure)]
        if failures:
            failing = self.disk.faults.sync_eio > 0
            require(failing, f"the store opens, but: {failures[0].getTraceback()}")
            self._note(f"refused: {failures[0].value}")
            require(not self.disk.locked, "a store that did not open holds no lock")
            self.disk.end("kill")
            self._ended()
            return False
        self.disk.faults.sync_eio = self._own_faults.sync_eio
        store.start()
        return True

    def _make_kernel(self) -> IKernelSyncs | None:
        """What syncs for this life without a thread; see `tests.sim.kernel`."""
        return None

    def _limits(self) -> RecoveryLimits:
        """How much of a recovery is done before the store opens: all, or next to nothing."""
        dice = self._dice
        if dice.random() < 0.4:
            return RecoveryLimits()
        return RecoveryLimits(
            checked_bytes=dice.choice((0, PAGE_BYTES, 1 << 20)),
            halving_bytes=dice.choice((200, 2000, PAGE_BYTES)),
            foreground_bytes=dice.choice((0, 500, 8000)),
            index_bytes=dice.choice((0, 500, 8000)),
        )

    def _check_alive(self) -> None:
        """A crash inside of a coroutine or a callback does not come out by itself."""
        if self.disk.ended is not None:
            raise SimulatedCrash(self.disk.ended)

    # ------------------------------------------------------------------ after a start

    def _check_recovered(self) -> None:
        store, model = self.store, self.model
        end = store.max_physical_offset()
        self._note(f"recovered {store.recovery}")
        require(end >= model.safe_offset, f"the log ends at {end}, safe was {model.safe_offset}")
        lost = model.cut(end)
        if lost:
            self._note(f"lost {len(lost)} from {lost[0].physical_offset}")
        require(not (lost and self._kept_all), f"a kill loses nothing, but {lost[:1]}")
        file_size = self.config.mapped_file_size_commit_log
        last = model.end_offset
        require(end in (last, -(-last // file_size) * file_size), f"end {end} is behind {last}")
        self._check_begin()
        require(store.dispatch_behind_bytes == 0, "everything is derived")
        require(store.flushed_offset() == end, "what recovery shows is on the device")
        for sent in model.living():
            record = store.look_message_bytes(sent.physical_offset, sent.size)
            require(record is not None, f"{sent} is in the log")
            assert record is not None
            self._compare([sent], record)
        model.safe(end)
        for key, shown in model.shown.items():
            left = len(model.queue(key))
            require(left >= shown, f"{key}: {shown} shown, {left} left")
        model.shown = {key: len(model.queue(key)) for key in model.queue_keys()}
        self._kept_all = True
        self._complete_recovery()
        self._check_queues()
        if self.disk.capacity_bytes == FULL:
            self._work_until(lambda: not store.index.waiting, "the index finds its place")
            self._check_index()
        self._check_alive()

    def _complete_recovery(self) -> None:
        """Let queues and index be completed, with sends and reads meanwhile, and perhaps a crash."""
        store, dice = self.store, self._dice
        if not store.recovery_figures():
            return
        self._note(f"goes on beside: {store.recovery_figures()}")
        if dice.random() < 0.3 and not self._is_last:
            kind, number = dice.choice(("power", "kill")), dice.randrange(60)
            self._note(f"{kind} in {number} operations")
            self.disk.arm(number, kind)
        for _ in range(dice.choice((0, 3, 20))):
            self._act(EARLY_ACTIONS, dice)
        self._work_until(
            lambda: self.disk.capacity_bytes != FULL or not store.recovery_figures(),
            "recovery ends",
        )
        if store.recovery_figures():
            self.disk.capacity_bytes = FULL
            self._work_until(lambda: not store.recovery_figures(), "recovery ends")
        self._work_until(lambda: not store.reput.waiting, "messages are shown")

    def _check_queues(self) -> None:
        store, model = self.store, self.model
        keys = set(model.queue_keys())
        for key in sorted({*store.queues(), *keys}):
            messages = model.queue(key)
            first = model.first(key)
            require(store.min_offset(*key) == first, f"{key} begins at {first}")
            found = store.max_offset(*key)
            require(found == len(messages), f"{key} ends at {found}, not {len(messages)}")
            self._pull(key, first, len(messages))

    def _check_begin(self) -> None:
        require(self.store.min_physical_offset() == 0, "the log begins where it did")

    def _check_index(self) -> None:
        log = self.model.living()
        chosen = self.rng.sample(log, min(len(log), 8)) + log[-3:]
        for sent in chosen:
            for key in sent.keys:
                self._find(sent, key)

    def _compare(self, expected: list[Sent], records: bytes) -> None:
        found = decode_records(records)
        require(len(found) == len(expected), f"{len(found)} messages, {len(expected)} expected")
        for message, sent in zip(found, expected, strict=True):
            same = (
                message.topic == sent.topic
                and message.queue_id == sent.queue_id
                and message.queue_offset == sent.queue_offset
                and message.physical_offset == sent.physical_offset
                and message.body == sent.body
                and message.properties_text == sent.properties
            )
            require(same, f"{sent} reads as {message}")

    def _pull(self, key: QueueKey, offset: int, end: int) -> None:
        """Read a queue up to a logical offset and compare."""
        messages = self.model.queue(key)
        while offset < end:
            result = self._await(self.store.get_message(*key, offset, 32, 1 << 20, None))
            assert isinstance(result, GetMessageResult)
            require(
                result.status is GetMessageStatus.FOUND,
                f"{key} has messages {offset} to {end}, but: {result}",
            )
            following = result.next_begin_offset
            require(result.queue_offsets == list(range(offset, following)), f"gapless: {result}")
            self._compare(messages[offset:following], b"".join(result.records))
            offset = following

    def _find(self, sent: Sent, key: str) -> None:
        result = self.store.query_message(sent.topic, key, 64, 0, FOREVER)
        found = [
            message.physical_offset
            for record in result.records
            for message in decode_records(record)
        ]
        require(len(set(found)) == len(found), f"{key}: no message is found twice: {found}")
        require(sent.physical_offset in found or len(found) >= 64, f"{key} finds {sent}: {found}")

    def _await(self, outcome: Any) -> Any:
        if isinstance(outcome, Deferred):
            results: list[Any] = []
            outcome.addBoth(results.append)
            self._work_until(lambda: bool(results), "a cold read ends")
            return results[0]
        return outcome

    def _work_once(self) -> bool:
        """One job of some pool gets on; False when there is nothing to do."""
        pools = [pool for pool in self.pools if pool.pending]
        return bool(pools) and self.rng.choice(pools).step()

    def _work_until(self, done: Any, promise: str) -> None:
        for pool in self.pools:
            pool.held = False
        for _ in range(5000):
            if done():
                return
            if not self._work_once():
                self.clock.advance(0.01)
            self._check_alive()
        raise Violation(promise)

    # ------------------------------------------------------------------ life

    def _act(self, actions: Mapping[str, int] | None = None, rng: Random | None = None) -> None:
        actions, rng = actions or self._actions, rng or self.rng
        name = rng.choices(list(actions), list(actions.values()))[0]
        getattr(self, f"_do_{name}")()
        self._check_alive()
        self._check_errors()
        self._check_waiting()
        self.model.safe(self.store.flushed_offset())

    def _record(self, body_limit: int) -> MessageRecord:
        rng = self.rng
        self._number += 1
        kind = rng.random()
        if kind < 0.5:
            size = rng.randrange(200)
        elif kind < 0.9:
            size = rng.randrange(1500)
        else:
            size = rng.randrange(body_limit)
        body = bytes(size) if rng.random() < 0.05 else rng.randbytes(min(size, body_limit))
        tag = rng.choice(TAGS)
        found = {"UNIQ_KEY": f"7F0000010001{self._number:020X}", "n": "x" * rng.choice((0, 5, 700))}
        if rng.random() < 0.5:
            found["KEYS"] = f"k{self._number} shared{rng.randrange(30)}"
        if tag:
            found["TAGS"] = tag
        prepared = rng.random() < 0.03
        return MessageRecord(
            topic=rng.choice(TOPICS),
            queue_id=rng.choice(QUEUE_IDS),
            body=body,
            properties=format_properties(found),
            sys_flag=TRANSACTION_PREPARED_TYPE if prepared else 0,
            tags_code=tags_code(tag),
            born_host=HOST,
            store_host=HOST,
            keys=found.get("KEYS"),
            uniq_key=found["UNIQ_KEY"],
            wait_store_msg_ok=rng.random() < 0.95,
        )

    def _do_put(self) -> None:
        limit = self.config.mapped_file_size_commit_log // 2
        record = self._record(limit)
        outcome = self.store.put_message(record)
        self._appended(outcome, [record], record.wait_store_msg_ok)

    def _do_put_batch(self) -> None:
        records = [self._record(400) for _ in range(self.rng.randint(1, 6))]
        first = records[0]
        for record in records:
            record.topic, record.queue_id = first.topic, first.queue_id
            record.sys_flag = 0
        items = [(record.flag, record.body, record.properties) for record in records]
        outcome = self.store.put_batch(
            MessageRecord(
                topic=first.topic,
                queue_id=first.queue_id,
                body=encode_batch(items),
                born_host=HOST,
                store_host=HOST,
            )
        )
        self._appended(outcome, records, True)

    def _place_of(self, record: MessageRecord) -> tuple[int, bool]:
        """The logical offset that a message must get, and whether it is in a queue of the model."""
        if record.sys_flag:
            return 0, False
        return len(self.model.queue((record.topic, record.queue_id))), True

    def _appended(self, outcome: Any, records: list[MessageRecord], wait: bool) -> None:
        """Note in the model what was appended, then wait for the answer."""
        unknown = self.store.recovering(records[0].topic, records[0].queue_id) is not None
        if isinstance(outcome, PutMessageResult) and outcome.status is not Put.PUT_OK:
            require(outcome.status in REFUSALS, f"a refusal says why: {outcome}")
            require(
                unknown or outcome.status is not Put.QUEUE_RECOVERING, "known queues are served"
            )
            return
        require(not unknown, f"{records[0]} was taken before its queue was known")
        sizes = [record_size(record) for record in records]
        position = self.store.max_physical_offset() - sum(sizes)
        sent = []
        for record, size in zip(records, sizes, strict=True):
            queue_offset, in_queue = self._place_of(record)
            keys = [record.uniq_key or "", *(record.keys or "").split()]
            message = Sent(
                topic=record.topic,
                queue_id=record.queue_id,
                queue_offset=queue_offset,
                physical_offset=position,
                size=size,
                body=record.body,
                properties=record.properties,
                keys=tuple(keys),
                in_queue=in_queue,
            )
            self.model.append(message)
            sent.append(message)
            position += size
        waiting = Waiting(sent, self.clock.seconds())
        if isinstance(outcome, PutMessageResult):
            synced = self.config.flush_disk_type == "SYNC_FLUSH" and wait
            require(not synced, "SYNC_FLUSH is answered after the flush")
            self._answered(outcome, waiting, False)
            return
        self._waiting.append(waiting)
        outcome.addCallback(self._answered, waiting, True)

    def _answered(self, result: PutMessageResult, waiting: Waiting, synced: bool) -> None:
        if self.disk.ended is not None:
            return
        waiting.outcome = result
        first = waiting.sent[0]
        if result.physical_offset != first.physical_offset or (
            result.queue_offset != first.queue_offset
        ):
            self._errors.append(f"{result} for {first}")
        if synced and result.status is Put.PUT_OK:
            self.model.safe(waiting.sent[-1].end)

    def _check_waiting(self) -> None:
        now = self.clock.seconds()
        self._waiting = [waiting for waiting in self._waiting if waiting.outcome is None]
        for waiting in self._waiting:
            timeout_s = self.config.sync_flush_timeout / 1000
            require(now - waiting.since <= timeout_s + 0.001, f"{waiting.sent} is answered")

    def _do_work(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.rng.choice(self.pools).step()
            self._check_alive()

    def _do_tick(self) -> None:
        self.clock.advance(self.rng.choice((0, 0, 0.001, 0.1)))

    def _do_long_tick(self) -> None:
        for _ in range(self.rng.randint(1, 8)):
            self.clock.advance(1)
            self._check_alive()
            self._do_work()

    def _do_write_back(self) -> None:
        self.disk.write_back()

    def _do_read(self) -> None:
        store, model = self.store, self.model
        keys = model.queue_keys()
        if not keys:
            return
        key = self.rng.choice(keys)
        messages = model.queue(key)
        if store.incomplete(*key) is not None:
            self._read_incomplete(key, messages)
        if store.recovering(*key) is not None:
            return
        shown = store.max_offset(*key)
        require(shown <= len(messages), f"{key} shows {shown} of {len(messages)}")
        if self.config.flush_disk_type == "SYNC_FLUSH" and not self.config.read_un_committed:
            flushed = store.flushed_offset()
            require(
                not shown or messages[shown - 1].end <= flushed,
                f"{key} shows {shown}, the log is flushed to {flushed}",
            )
            model.shown[key] = max(model.shown.get(key, 0), shown)
        if shown and store.incomplete(*key) is None:
            self._pull(key, self.rng.randrange(shown), shown)

    def _read_incomplete(self, key: QueueKey, messages: list[Sent]) -> None:
        """Whoever reads from a queue that is derived again gets what is there, or waits where he is."""
        offset = self._dice.randrange(len(messages) + 1)
        found = self._await(self.store.get_message(*key, offset, 32, 1 << 20, None))
        following = found.next_begin_offset
        if found.status is GetMessageStatus.FOUND:
            self._compare(messages[offset:following], b"".join(found.records))
        else:
            require(
                (found.status, following) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, offset),
                f"a pull of an incomplete queue waits: {found}",
            )

    def _do_query(self) -> None:
        """What can be read can be found, unless the index waits for room."""
        key = self.rng.choice((*self.model.queue_keys(), None))
        if key is None or self.store.recovering(*key) is not None:
            return
        if not self.store.max_offset(*key):
            return
        sent = self.model.queue(key)[self.store.max_offset(*key) - 1]
        result = self.store.query_message(sent.topic, sent.keys[0], 64, 0, FOREVER)
        found = [m.physical_offset for r in result.records for m in decode_records(r)]
        require(found in ([], [sent.physical_offset]), f"{sent} is found once: {found}")

    def _do_fill_disk(self) -> None:
        room = self.rng.choice((0, 1, 5)) * PAGE_BYTES
        full = self.disk.capacity_bytes == FULL
        self.disk.capacity_bytes = self.disk.used_bytes + room if full else FULL
        self._note(f"capacity {self.disk.capacity_bytes}")

    def _do_fail_sync(self) -> None:
        rng = self.rng
        self._note("syncs fail")
        self.disk.faults.sync_eio = rng.choice((0.0, 0.1, 0.5))
        self.disk.faults.sync_enospc = rng.choice((0.0, 0.3))
        self.disk.faults.sync_forgets = rng.random()

    def _do_hang(self) -> None:
        pool = self.rng.choice(self.pools)
        pool.held = not pool.held

    # ------------------------------------------------------------------ the end

    def _end_life(self) -> None:
        way = self.rng.choice(("power", "power", "kill", "stop", "stop", "heal"))
        self._note(way)
        if way == "heal":
            self._heal()
            way = "stop"
        if way == "stop":
            if self.rng.random() < 0.3:
                self._arm(60)
            self._stop()
            if self._is_clean():
                require(not self._waiting, "nobody waits after a stop")
                self.model.safe(self.model.end_offset)
            way = self.rng.choice(("power", "kill"))
        self.disk.end(way)
        raise SimulatedCrash(way)

    def _is_clean(self) -> bool:
        return not self.disk.exists(f"{ROOT}/abort")

    def _stop(self) -> None:
        stopped: list[Any] = []
        self.store.stop().addBoth(stopped.append)
        self._work_until(lambda: bool(stopped), "a stop ends")
        require(stopped == [None], f"a stop does not fail: {stopped}")
        self._waiting = [waiting for waiting in self._waiting if waiting.outcome is None]
        require(not self._waiting, f"a stop answers everybody: {self._waiting[:1]}")
        require(not self.disk.locked, "a stop gives the lock back")
        self._check_errors()

    def _heal(self) -> None:
        """All is well again: the store takes messages soon, unless a failed sync made it read-only."""
        self.disk.capacity_bytes = FULL
        self.disk.faults = attrs.evolve(self._own_faults)
        deadline = self.clock.seconds() + HEAL_S
        for pool in self.pools:
            pool.held = False
        while self.clock.seconds() < deadline:
            while self._work_once():
                self._check_alive()
            self.clock.advance(0.5)
            self._check_alive()
        record = self._record(100)
        outcome = self.store.put_message(record)
        self._appended(outcome, [record], record.wait_store_msg_ok)
        refused = isinstance(outcome, PutMessageResult) and outcome.status is not Put.PUT_OK
        read_only = self.store.commit_log.read_only is not None
        require(refused == read_only, f"messages are taken again, but: {self.store.write_refusal}")
        self._work_until(
            lambda: all(waiting.outcome is not None for waiting in self._waiting),
            "every send is answered",
        )
