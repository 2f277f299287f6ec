"""Does a slave that begins empty get the messages of compacted topics that are older than its log?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from test_compaction import TOPIC, World, message
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import ICompactedSource
from txrocketmq.store.compaction.files import kept_at
from txrocketmq.store.results import GetMessageResult, GetMessageStatus

LARGE = b"x" * 1000


@implementer(ICompactedSource)
class Master(World):
    """A master's store, asked for two messages at a time.

    :ivar asked: the offsets that were asked for.
    :ivar answers: how many more requests are answered; the others fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.answers = 1000
        self.damage: Any = None
        self.is_master = True

    def is_there(self) -> bool:
        return self.is_master

    def queues(self) -> Iterable[tuple[str, int]]:
        return [(TOPIC, 0)]

    def fetch(self, topic: str, queue_id: int, offset: int) -> Deferred[tuple[bytes, int | None]]:
        self.asked.append(offset)
        if not self.answers:
            return fail(StoreError("the master does not answer"))
        self.answers -= 1
        result = self.get(offset, 2)
        if result.status is not GetMessageStatus.FOUND:
            return succeed((b"", None))
        data = b"".join(result.records)
        if self.damage is not None:
            data = self.damage(data)
        return succeed((data, result.next_begin_offset))

    def new_slave(self) -> Slave:
        slave = Slave(self)
        slave.copy_log()
        return slave


class Slave(World):
    """Begins with the master's last file."""

    def __init__(self, master: Master) -> None:
        self.master = master
        super().__init__()
        self.clock.advance(master.clock.seconds() - self.clock.seconds())

    def open(self) -> None:
        super().open()
        self.store.set_compacted_source(self.master)

    def copy_log(self) -> None:
        store, master = self.store, self.master.store
        offset = store.max_physical_offset() or master.last_file_offset()
        while offset < master.max_physical_offset():
            data: Any = master.read_log(offset, 1 << 16)
            assert store.append_raw(offset, data)
            offset += len(data)

    def settle(self) -> None:
        for _ in range(20):
            self.clock.advance(0.6)


@pytest.fixture
def master() -> Master:
    """Its log has several files, and its compacted queue goes on in the last of them."""
    made = Master()
    made.put("early", *(f"once{number}" for number in range(20)), body=LARGE)
    made.put(*(f"k{number % 3}" for number in range(80)), body=LARGE)
    made.compact()
    return made


def latest(world: World) -> dict[str, int]:
    """The newest offset of each key, as a consumer that begins at 0 finds it."""
    found = world.everything()
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    return {key: offset for offset, key, _ in found}


def test_the_provider_of_the_tests_is_one(master: Master) -> None:
    assert verifyObject(ICompactedSource, master)


def test_what_is_older_than_the_log_comes_from_the_master(master: Master) -> None:
    slave = master.new_slave()
    assert slave.store.min_offset(TOPIC, 0) > 0
    slave.settle()
    assert latest(slave) == latest(master)
    assert latest(slave)["early"] == 0
    # What both have is copied from the log, not asked for.
    assert max(master.asked) < slave.store.min_offset(TOPIC, 0)
    count = len(master.asked)
    slave.settle()
    assert len(master.asked) == count


def test_it_is_compacted_with_what_comes_later(master: Master) -> None:
    slave = master.new_slave()
    slave.settle()
    master.put("early", *"aaaaaaaaaaaaaaaaaaaa")
    slave.copy_log()
    slave.compact()
    assert [offset for offset, key, _ in slave.everything() if key == "early"] == [101]


def test_it_goes_on_after_a_restart_where_it_was(master: Master) -> None:
    """A master that goes away in the middle, and a slave that starts again."""
    slave = master.new_slave()
    master.answers = 1
    slave.settle()
    assert 0 < len(latest(slave)) < len(latest(master))
    slave.stop()
    slave.open()
    before = len(master.asked)
    master.answers = 1000
    slave.settle()
    assert master.asked[before] > 0
    assert latest(slave) == latest(master)


def test_nobody_is_moved_over_what_is_still_to_come(master: Master) -> None:
    slave = master.new_slave()
    master.answers = 0
    slave.settle()
    waiting = slave.get(0)
    assert (waiting.status, waiting.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, 0)
    # What the log has is served meanwhile.
    first = slave.store.min_offset(TOPIC, 0)
    assert slave.get(first).status is GetMessageStatus.FOUND
    master.answers = 1000
    slave.settle()
    assert slave.get(0).status is GetMessageStatus.FOUND


def test_a_master_that_does_not_answer_is_asked_every_five_seconds(master: Master) -> None:
    slave = master.new_slave()
    master.answers = 0
    slave.clock.advance(1)
    assert len(master.asked) == 1
    for _ in range(10):
        slave.clock.advance(1)
    assert len(master.asked) in (2, 3)


def test_what_becomes_a_master_asks_nobody(master: Master) -> None:
    slave = master.new_slave()
    master.is_master = False
    slave.settle()
    assert master.asked == []
    assert slave.get(0).status is GetMessageStatus.FOUND


def test_a_queue_of_which_the_log_has_nothing() -> None:
    master = Master()
    master.put("a", "b", "a")
    master.clock.advance(1)
    for number in range(90):
        master.store.put_message(other(number))
    master.follow()
    slave = master.new_slave()
    assert slave.store.max_offset(TOPIC, 0) == 0
    slave.settle()
    # They are served though there is no queue.
    slave.clock.advance(60)
    assert latest(slave) == {"b": 1, "a": 2}
    master.put("c")
    slave.copy_log()
    slave.follow()
    assert latest(slave) == {"b": 1, "a": 2, "c": 3}


def other(number: int) -> Any:
    """A message of another topic."""
    made = message(f"k{number}", LARGE)
    made.topic = "Other"
    return made


@pytest.mark.parametrize("kind", ["a flipped bit", "out of order"])
def test_what_is_not_right_is_not_taken(master: Master, kind: str) -> None:
    slave = master.new_slave()

    def damage(data: bytes) -> bytes:
        first = kept_at(data, 0)
        assert first is not None
        if kind == "a flipped bit":
            return data[:200] + bytes([data[200] ^ 1]) + data[201:]
        return data + first.record

    master.damage = damage
    slave.settle()
    assert slave.get(0).status is GetMessageStatus.OFFSET_FOUND_NULL
    master.damage = None
    slave.settle()
    assert latest(slave) == latest(master)


def test_an_offset_before_the_first_message_leads_to_that(master: Master) -> None:
    """An official slave asks from 0 on, and stays there for as long as it is only told that it is too early."""
    alone = master.new_slave()
    alone.store.compaction.older.source = None
    alone.store.compaction.queues.clear()
    first = alone.store.min_offset(TOPIC, 0)
    found: GetMessageResult = alone.get(0, 1)
    assert (found.status, found.next_begin_offset) == (GetMessageStatus.FOUND, first + 1)


def test_a_store_that_stops_meanwhile_asks_no_more(master: Master) -> None:
    slave = master.new_slave()
    fetch = master.fetch

    def slow(topic: str, queue_id: int, offset: int) -> Any:
        waiting: Deferred[Any] = Deferred()
        slave.clock.callLater(1, lambda: fetch(topic, queue_id, offset).chainDeferred(waiting))
        return waiting

    master.fetch = slow  # type: ignore[method-assign]
    slave.clock.advance(1)
    done: list[object] = []
    slave.store.stop().addBoth(done.append)
    assert done == []
    slave.clock.advance(1)
    assert done == [None]
    assert len(master.asked) == 1


def test_messages_that_are_not_copied_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those are that came as replies: nobody asks them for a key."""
    world = World()
    world.put("a")
    for _ in range(3):
        outcome: Any = world.store.put_message(message(None))
        assert outcome.is_ok
    world.follow()
    read: list[int] = []
    get_message = world.store.reader.get_message

    def counting(topic: str, queue_id: int, offset: int, *more: Any) -> Any:
        read.append(offset)
        return get_message(topic, queue_id, offset, *more)

    monkeypatch.setattr(world.store.reader, "get_message", counting)
    for _ in range(3):
        world.follow()
    assert read == []
    world.put("b")
    world.follow()
    assert [(offset, key) for offset, key, _ in world.everything()] == [(0, "a"), (4, "b")]
    world.stop()
