"""Are offsets kept as official clients keep them, and does damage to the local file stop nobody?"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from received import queue
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface.verify import verifyObject

from txrocketmq.client.consumer.offsets import (
    LocalOffsetStore,
    RemoteOffsetStore,
    decode_offsets,
    encode_offsets,
)
from txrocketmq.client.interfaces import IOffsetStore
from txrocketmq.errors import BodyError, BrokerError
from txrocketmq.model.message import MessageQueue
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool, ManualPool

DATA = Path(__file__).parent.parent / "data" / "consumer"
TABLES: dict[str, dict[MessageQueue, int]] = {
    "empty": {},
    "one": {queue(0): 17},
    "three": {queue(0): 17, queue(1): 0, queue(3, "NameÄ", "broker-b"): 9007199254740993},
}
PATH = "/offsets/192.0.2.9@DEFAULT/group/offsets.json"


def result_of(deferred: Deferred[Any]) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "not fired"
    return found[0]


class TestFile:
    @pytest.mark.parametrize("line", ["5.4.0", "4.9.7"])
    @pytest.mark.parametrize("name", TABLES)
    def test_files_of_both_lines_are_read(self, name: str, line: str) -> None:
        data = (DATA / f"offsets-{name}-{line}.json").read_bytes()
        assert decode_offsets(data) == TABLES[name]

    @pytest.mark.parametrize("name", ["empty", "one"])
    def test_the_file_is_byte_for_byte_the_official_one(self, name: str) -> None:
        assert encode_offsets(TABLES[name]) == (DATA / f"offsets-{name}-5.4.0.json").read_bytes()

    def test_of_several_queues_only_the_order_differs(self) -> None:
        official = (DATA / "offsets-three-5.4.0.json").read_text()
        ours = encode_offsets(TABLES["three"]).decode()

        def entries(text: str) -> tuple[list[str], str, str]:
            head, _, rest = text.partition("\t\t{")
            body, _, tail = rest.rpartition("\n\t}")
            return sorted(body.split(",\n\t\t{")), head, tail

        assert entries(ours) == entries(official)
        assert decode_offsets(ours.encode()) == TABLES["three"]

    @pytest.mark.parametrize("data", [b"", b" \n", b'{"offsetTable":{{"brok', b"[]", b"\0" * 20])
    def test_what_is_no_table_is_refused(self, data: bytes) -> None:
        with pytest.raises(BodyError):
            decode_offsets(data)

    def test_negative_offsets_are_damage(self) -> None:
        with pytest.raises(BodyError, match="-1"):
            decode_offsets(encode_offsets({queue(): -1}))


def local(disk: MemoryDisk, pool: Any = None) -> LocalOffsetStore:
    return LocalOffsetStore(disk, pool or ImmediatePool(), "192.0.2.9@DEFAULT", "group", "/offsets")


class TestLocal:
    def test_it_provides_the_interface(self) -> None:
        assert verifyObject(IOffsetStore, local(MemoryDisk()))

    def test_offsets_survive_a_restart_and_the_old_file_is_the_backup(self) -> None:
        disk = MemoryDisk()
        store = local(disk)
        result_of(store.load())
        assert result_of(store.read(queue())) is None
        store.update(queue(), 5, increase_only=True)
        result_of(store.persist([queue()]))
        store.update(queue(), 7, increase_only=True)
        store.update(queue(1), 3, increase_only=True)
        result_of(store.persist([queue(), queue(1)]))
        assert decode_offsets(disk.read_file(PATH)) == {queue(): 7, queue(1): 3}
        assert decode_offsets(disk.read_file(PATH + ".bak")) == {queue(): 5}

        again = local(disk)
        result_of(again.load())
        assert result_of(again.read(queue())) == 7
        assert again.noted(queue(1)) == 3
        assert again.table("TopicTest") == {queue(): 7, queue(1): 3}
        assert again.table("Other") == {}

    def test_queues_of_others_stay_in_the_file(self) -> None:
        disk = MemoryDisk()
        disk.replace_file(PATH, encode_offsets({queue(8): 1}), False)
        store = local(disk)
        result_of(store.load())
        store.update(queue(), 5, increase_only=False)
        result_of(store.persist([queue()]))
        assert decode_offsets(disk.read_file(PATH)) == {queue(): 5, queue(8): 1}

    def test_nothing_is_written_when_nothing_changed(self) -> None:
        disk = MemoryDisk()
        store = local(disk)
        store.update(queue(), 5, increase_only=False)
        result_of(store.persist([queue()]))
        disk.remove(PATH)
        result_of(store.persist([queue()]))
        assert not disk.exists(PATH)

    def test_saves_while_one_is_written_become_one(self) -> None:
        disk, pool = MemoryDisk(), ManualPool()
        store = local(disk, pool)
        saves = []
        for offset in (1, 2, 3):
            store.update(queue(), offset, increase_only=False)
            saves.append(store.persist([queue()]))
        assert pool.run() == 2
        assert [result_of(save) for save in saves] == [None, None, None]
        assert decode_offsets(disk.read_file(PATH)) == {queue(): 3}


def commits(told: list[tuple[MessageQueue, int, bool]], answers: dict[MessageQueue, Any]) -> Any:
    class Brokers:
        def query_offset(self, asked: MessageQueue) -> Deferred[int | None]:
            answer = answers.get(asked)
            return fail(answer) if isinstance(answer, Exception) else succeed(answer)

        def commit_offset(self, of: MessageQueue, offset: int, wait: bool) -> Deferred[None]:
            told.append((of, offset, wait))
            answer = answers.get(of)
            if isinstance(answer, Deferred):
                return answer
            return fail(answer) if isinstance(answer, Exception) else succeed(None)

    return Brokers()


class TestRemote:
    def test_what_is_not_known_is_no_offset_and_what_cannot_be_asked_is_an_error(self) -> None:
        store = RemoteOffsetStore(
            commits([], {queue(1): 9, queue(2): BrokerError(1, "away"), queue(3): -1}), "group"
        )
        assert verifyObject(IOffsetStore, store)
        assert result_of(store.read(queue(0))) is None
        assert result_of(store.read(queue(1))) == store.noted(queue(1)) == 9
        assert result_of(store.read(queue(2))).check(BrokerError)
        assert result_of(store.read(queue(3))) is None
        assert store.noted(queue(3)) is None

    def test_offsets_only_grow_unless_asked(self) -> None:
        store = RemoteOffsetStore(commits([], {}), "group")
        store.update(queue(), 5, increase_only=True)
        store.update(queue(), 4, increase_only=True)
        assert store.noted(queue()) == 5
        store.update(queue(), 3, increase_only=False)
        assert store.noted(queue()) == 3
        store.freeze(queue(), 1)
        store.update(queue(), 9, increase_only=False)
        assert store.noted(queue()) == 1
        store.remove(queue())
        store.update(queue(), 9, increase_only=True)
        assert store.noted(queue()) == 9

    def test_a_negative_offset_never_gets_in(self) -> None:
        store = RemoteOffsetStore(commits([], {}), "group")
        with pytest.raises(ValueError, match="-1"):
            store.update(queue(), -1, increase_only=False)

    def test_saving_goes_on_behind_a_failure_and_forgets_queues_of_others(self) -> None:
        told: list[tuple[MessageQueue, int, bool]] = []
        store = RemoteOffsetStore(commits(told, {queue(0): BrokerError(1, "away")}), "group")
        for number in range(3):
            store.update(queue(number), number + 10, increase_only=True)
        assert result_of(store.persist([queue(0), queue(1)])) is None
        assert told == [(queue(0), 10, True), (queue(1), 11, True)]
        assert store.table() == {queue(0): 10, queue(1): 11}

    def test_the_first_of_a_topic_is_told_alone_so_that_official_brokers_lose_none(self) -> None:
        told: list[tuple[MessageQueue, int, bool]] = []
        answer: Deferred[None] = Deferred()
        store = RemoteOffsetStore(commits(told, {queue(0): answer}), "group")
        elsewhere = queue(0, broker_name="broker-b")
        queues = [queue(0), queue(1), queue(2), elsewhere]
        for each in queues:
            store.update(each, 7, increase_only=True)
        saved = store.persist_some(queues, wait=True)
        assert told == [(queue(0), 7, True), (elsewhere, 7, True)]
        assert not saved.called
        answer.callback(None)
        assert result_of(saved) is None
        assert told[2:] == [(queue(1), 7, True), (queue(2), 7, True)]

    def test_one_that_is_known_to_the_broker_lets_all_go_at_once(self) -> None:
        told: list[tuple[MessageQueue, int, bool]] = []
        store = RemoteOffsetStore(commits(told, {queue(1): 9}), "group")
        for number in range(3):
            store.update(queue(number), 5, increase_only=True)
        assert result_of(store.read(queue(1))) == 9
        store.persist_some([queue(0), queue(2)])
        assert told == [(queue(0), 5, False), (queue(2), 5, False)]

    def test_behind_a_first_that_fails_the_others_are_told_at_once(self) -> None:
        told: list[tuple[MessageQueue, int, bool]] = []
        answer: Deferred[None] = Deferred()
        store = RemoteOffsetStore(commits(told, {queue(0): answer}), "group")
        for number in range(3):
            store.update(queue(number), 5, increase_only=True)
        store.persist_some([queue(0)])
        store.persist_some([queue(1)])
        store.persist_some([queue(2)])
        answer.errback(BrokerError(1, "away"))
        assert told[1:] == [(queue(1), 5, False), (queue(2), 5, False)]


class TestTrouble:
    """Of the file: S20."""

    def test_a_file_cut_at_half_is_left_to_its_backup(self) -> None:
        disk = MemoryDisk()
        whole = encode_offsets({queue(): 7, queue(1): 3})
        disk.replace_file(PATH, encode_offsets({queue(): 5}), False)
        disk.replace_file(PATH, whole[: len(whole) // 2], True)
        store = local(disk)
        result_of(store.load())
        assert store.table() == {queue(): 5}
        # The damaged file does not replace the good backup.
        store.update(queue(), 6, increase_only=True)
        result_of(store.persist([queue()]))
        assert decode_offsets(disk.read_file(PATH)) == {queue(): 6}
        assert decode_offsets(disk.read_file(PATH + ".bak")) == {queue(): 5}

    def test_without_a_file_that_can_be_read_it_begins_anew(self) -> None:
        disk = MemoryDisk()
        for path in (PATH, PATH + ".bak"):
            disk.replace_file(path, b"{", False)
        store = local(disk)
        assert result_of(store.load()) is None
        assert store.table() == {}

    def test_a_directory_that_cannot_be_written_leaves_offsets_in_memory(self) -> None:
        class ReadOnly(MemoryDisk):
            may_write = False

            def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
                if not self.may_write:
                    raise OSError(errno.EROFS, "Read-only file system", path)
                super().replace_file(path, data, keep_backup)

        disk = ReadOnly()
        store = local(disk)
        result_of(store.load())
        for offset in (1, 2):
            store.update(queue(), offset, increase_only=True)
            assert result_of(store.persist([queue()])) is None
        assert store.noted(queue()) == 2
        assert result_of(store.read(queue())) == 2
        # Once it can be written, the next save does it.
        disk.may_write = True
        result_of(store.persist([queue()]))
        assert decode_offsets(disk.read_file(PATH)) == {queue(): 2}
