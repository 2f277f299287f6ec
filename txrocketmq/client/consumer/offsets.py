"""Where does a group stand? Its offsets: noted in memory, saved at the brokers (clustering) or in a file (broadcasting).

Stands for ``RemoteBrokerOffsetStore``, ``LocalFileOffsetStore`` and ``ControllableOffset``. The file is the official one, in the form that
clients of both lines read::

    <dir>/<client id>/<group>/offsets.json       {"offsetTable":{ {"brokerName":...,"queueId":0,"topic":...}:17 }}
    <dir>/<client id>/<group>/offsets.json.bak   the content before

Crash story of the file: a new one is written aside, synced and renamed over, the old one stays as ``.bak``. One that cannot be read, empty
or cut included, is left to its backup, and the backup is not replaced by it. No file, or none that can be read or written, harms nothing
but the memory of a restart: one warning says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.client.interfaces import IOffsetStore
from txrocketmq.codec.bodies import OffsetSerializeWrapper
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.errors import BodyError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.model.message import MessageQueue

log = Logger()

LOCAL_OFFSETS_DIR = "~/.rocketmq_offsets"
"""Where broadcasting clients keep their offsets (``rocketmq.client.localOffsetStoreDir``)."""

_text = msgspec.json.Encoder().encode


class NotedOffsets:
    """Offsets in memory; one that was frozen does not change any more until it is removed."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        """See `IOffsetStore.update`."""
        if offset < 0:
            raise ValueError(f"offset {offset} of {queue}")
        if queue in self._frozen:
            return
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset that whoever still processes older messages must not overwrite."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def noted(self, queue: MessageQueue) -> int | None:
        """See `IOffsetStore.noted`."""
        return self._offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        """See `IOffsetStore.remove`."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """See `IOffsetStore.table`."""
        return {
            queue: offset
            for queue, offset in self._offsets.items()
            if topic is None or queue.topic == topic
        }


class IBrokerOffsets(Protocol):
    """How a group's offsets are asked of, and told to, the brokers."""

    def query_offset(self, queue: MessageQueue) -> Deferred[int | None]:
        """The offset that the queue's broker knows, None when it knows none; fails when it cannot be asked."""

    def commit_offset(self, queue: MessageQueue, offset: int, wait: bool) -> Deferred[None]:
        """Tell the queue's master; fires once it is told, or with ``wait`` has answered."""


@implementer(IOffsetStore)
class RemoteOffsetStore(NotedOffsets):
    """Offsets that the brokers keep.

    The first offsets of a group for a topic make the broker's table of them. Official brokers do so in several threads, and the table of one
    replaces that of another, with its offset (``ConsumerOffsetManager.commitOffset``). So the first is told alone, and the others once it is answered.
    """

    def __init__(self, brokers: IBrokerOffsets, group: str) -> None:
        super().__init__()
        self._brokers = brokers
        self._group = group
        self._have_table: set[tuple[str, str]] = set()
        self._behind_first: dict[tuple[str, str], list[Deferred[None]]] = {}

    def load(self) -> Deferred[None]:
        """See `IOffsetStore`; the brokers are asked queue by queue."""
        return succeed(None)

    def read(self, queue: MessageQueue) -> Deferred[int | None]:
        """See `IOffsetStore`. A broker that cannot say is an error, not "no offset": the group must not begin anew for it."""
        return self._brokers.query_offset(queue).addCallback(self._note, queue)

    def _note(self, offset: int | None, queue: MessageQueue) -> int | None:
        if offset is not None and offset >= 0:
            self._have_table.add((queue.broker_name, queue.topic))
            self.update(queue, offset, increase_only=False)
            return offset
        return None

    def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> Deferred[None]:
        """See `IOffsetStore`. Failures are logged: the next time will do. Offsets of other queues are forgotten.

        :param wait: fire only after the brokers' answers.
        """
        wanted = dict.fromkeys(queues)
        for queue in [queue for queue in self._offsets if queue not in wanted]:
            self.remove(queue)
        return self.persist_some(wanted, wait=wait)

    def persist_some(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> Deferred[None]:
        """Save these queues' offsets, and keep those of others."""
        told = [
            self._tell(queue, self._offsets[queue], wait).addErrback(self._not_told, queue)
            for queue in queues
            if queue in self._offsets
        ]
        done: Deferred[list[tuple[bool, None]]] = DeferredList(told)
        return done.addCallback(lambda _: None)

    def _tell(self, queue: MessageQueue, offset: int, wait: bool) -> Deferred[None]:
        table = (queue.broker_name, queue.topic)
        if table in self._have_table:
            return self._brokers.commit_offset(queue, offset, wait)
        behind = self._behind_first.get(table)
        if behind is None:
            self._behind_first[table] = []
            first = self._brokers.commit_offset(queue, offset, wait=True)
            return first.addBoth(self._first_told, table)
        turn: Deferred[None] = Deferred()
        behind.append(turn)
        return turn.addCallback(lambda _: self._brokers.commit_offset(queue, offset, wait))

    def _first_told(self, outcome: Failure | None, table: tuple[str, str]) -> Failure | None:
        if not isinstance(outcome, Failure):
            self._have_table.add(table)
        for turn in self._behind_first.pop(table):
            turn.callback(None)
        return outcome

    def _not_told(self, failure: Failure, queue: MessageQueue) -> None:
        log.warn(
            "group {group}: the offset of {queue} could not be saved: {reason}",
            group=self._group,
            queue=queue,
            reason=failure.getErrorMessage(),
        )


@implementer(IOffsetStore)
class LocalOffsetStore(NotedOffsets):
    """Offsets in a file of this machine.

    :param directory: `LOCAL_OFFSETS_DIR` unless configured.
    """

    def __init__(
        self,
        disk: IDisk,
        pool: IBlockingPool,
        client_id: str,
        group: str,
        directory: str = LOCAL_OFFSETS_DIR,
    ) -> None:
        super().__init__()
        self._disk = disk
        self._pool = pool
        self._group = group
        self.path = os.path.join(os.path.expanduser(directory), client_id, group, "offsets.json")
        self._saved: dict[MessageQueue, int] = {}
        self._main_is_good = True
        self._unsaved = False
        self._warned = False
        self._writing = False
        self._wanted: bytes | None = None
        self._waiters: list[Deferred[None]] = []

    def load(self) -> Deferred[None]:
        """See `IOffsetStore`. Never fails: what cannot be read is begun anew, with one warning."""
        return self._pool.submit(self._read_files).addCallbacks(self._loaded, self._not_loaded)

    def _read_files(self) -> tuple[dict[MessageQueue, int], list[str]]:
        """The offsets of the file, or of its backup; and what was wrong. In a thread."""
        faults: list[str] = []
        for path in (self.path, self.path + ".bak"):
            try:
                return decode_offsets(self._disk.read_file(path)), faults
            except FileNotFoundError:
                continue
            except (OSError, BodyError) as error:
                faults.append(f"{path}: {error}")
        return {}, faults

    def _loaded(self, read: tuple[dict[MessageQueue, int], list[str]]) -> None:
        self._saved, faults = read
        self._offsets.update(self._saved)
        if faults:
            self._main_is_good = False
            log.warn(
                "group {group}: offsets that cannot be used: {faults}; going on with those of {count} queues",
                group=self._group,
                faults="; ".join(faults),
                count=len(self._saved),
            )

    def _not_loaded(self, failure: Failure) -> None:
        log.warn(
            "group {group}: offsets could not be read: {reason}",
            group=self._group,
            reason=failure.getErrorMessage(),
        )

    def read(self, queue: MessageQueue) -> Deferred[int | None]:
        """See `IOffsetStore`; what the file said when it was loaded or written last."""
        offset = self._saved.get(queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return succeed(offset)

    def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> Deferred[None]:
        """See `IOffsetStore`. What the file says of other queues stays in it. ``wait`` makes no difference."""
        return self.persist_some(queues)

    def persist_some(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> Deferred[None]:
        """As `persist`."""
        changed = False
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is not None and self._saved.get(queue) != offset:
                self._saved[queue] = offset
                changed = True
        if not (changed or self._unsaved or self._writing):
            return succeed(None)
        self._wanted = encode_offsets(self._saved)
        done: Deferred[None] = Deferred()
        self._waiters.append(done)
        if not self._writing:
            self._write()
        return done

    def _write(self) -> None:
        data, self._wanted = self._wanted, None
        waiters, self._waiters = self._waiters, []
        self._writing = True
        self._unsaved = False
        # A damaged file must not take the place of its good backup.
        writing = self._pool.submit(self._disk.replace_file, self.path, data, self._main_is_good)
        writing.addCallbacks(self._written, self._not_written)
        writing.addCallback(self._go_on, waiters)

    def _written(self, _: object) -> None:
        self._main_is_good = True
        self._warned = False

    def _not_written(self, failure: Failure) -> None:
        self._unsaved = True
        if not self._warned:
            self._warned = True
            log.warn(
                "group {group}: offsets stay in memory alone, {path} cannot be written: {reason}",
                group=self._group,
                path=self.path,
                reason=failure.getErrorMessage(),
            )

    def _go_on(self, _: object, waiters: list[Deferred[None]]) -> None:
        self._writing = False
        for waiter in waiters:
            waiter.callback(None)
        if self._wanted is not None and not self._writing:
            self._write()


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The content of an ``offsets.json``.

    :raises BodyError: it is empty, cut, or says what is no offset.
    """
    if not data.strip():
        raise BodyError("the file is empty")
    table = decode_body(OffsetSerializeWrapper, data).offset_table
    for queue, offset in table.items():
        if offset < 0:
            raise BodyError(f"offset {offset} of {queue}")
    return table


def encode_offsets(table: dict[MessageQueue, int]) -> bytes:
    """The content of an ``offsets.json`` as the official client 5.4.0 writes it, sorted by queue."""
    entries = [
        "\t\t{\n"
        f'\t\t\t"brokerName":{_quoted(queue.broker_name)},\n'
        f'\t\t\t"queueId":{queue.queue_id},\n'
        f'\t\t\t"topic":{_quoted(queue.topic)}\n'
        f"\t\t}}:{table[queue]}"
        for queue in sorted(table)
    ]
    inner = ",\n".join(entries) if entries else "\t\t"
    return f'{{\n\t"offsetTable":{{\n{inner}\n\t}}\n}}'.encode()


def _quoted(text: str) -> str:
    return _text(text).decode()
