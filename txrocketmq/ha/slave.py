"""How does a slave take its master's log? The machine of one link: pieces of log in, reports out, and a clock.

Stands for the transfer half of ``DefaultHAClient``. A piece goes to the very end of the slave's log or the link is closed; what was
appended is reported at once (appended, not flushed, as officially), and again at every heartbeat.

Pieces end anywhere, also within a record. The beginning of one is kept here until the rest of it came, so the log ends with a whole
record at any moment: a slave that is killed has no half record that looks like a whole one (no checksum covers the properties).

Where the store cannot take a piece just now (blocks ahead are not ready, the disk is full) the connection is not read until it can.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocketmq import native
from txrocketmq.codec.haframes import REPORT, TransferReader
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import ProtocolError, StoreError
from txrocketmq.ha.meter import FlowMeter
from txrocketmq.interfaces import IReplicaLog
from txrocketmq.model.replication import LinkState

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Of a record, or of the blank at a file's end: as much as is kept until the rest comes."""

_SIZE = Struct(">i")

RETRY_S = 0.01
"""How soon a piece is offered again that the store could not take."""


class SlaveLink:
    """The link to a master.

    :param peer: the master's replication address, for the log.
    :param write: takes bytes for the master.
    :param close: drops the connection, with a reason.
    :param hold: stops reading the connection (True) or goes on (False).
    :ivar is_fed: the master sent something that fits: what is here is the beginning of its log.
    """

    _log = Logger()

    def __init__(
        self,
        peer: str,
        store: IReplicaLog,
        config: MessageStoreConfig,
        clock: IReactorTime,
        write: Callable[[bytes], object],
        close: Callable[[str], object],
        hold: Callable[[bool], object],
    ) -> None:
        self.peer = peer
        self.state = LinkState.TRANSFER
        self.meter = FlowMeter(config)
        self.last_read = self.last_write = clock.seconds()
        self._store = store
        self._config = config
        self._clock = clock
        self._write = write
        self._close = close
        self._hold = hold
        self._frames: Any = self._make_frames()
        #: What came behind the log's end, how much that is, and the offset of its first byte; None before the first piece.
        self._held: list[bytes | memoryview] = []
        self._held_bytes = 0
        self._held_offset: int | None = None
        #: So much has to be held before there is a whole record.
        self._needed_bytes = 0
        self._reported = -1
        self._retry: IDelayedCall | None = None
        self.is_fed = False

    def _make_frames(self) -> Any:
        return TransferReader()

    def connected(self) -> None:
        """Say where the master has to begin."""
        self._report(self._store.max_physical_offset())

    def data_received(self, data: bytes) -> None:
        """Bytes from the master."""
        if self.state is LinkState.SHUTDOWN:
            return
        self.last_read = self._clock.seconds()
        self.meter.count(len(data))
        self._frames.feed(data)
        if self._retry is None:
            self._take_frames()

    def _take_frames(self) -> None:
        self._retry = None
        try:
            self._take_all()
        except (ProtocolError, StoreError) as error:
            self._give_up(str(error))
            return
        end = self._store.max_physical_offset()
        if end > self._reported:
            self._report(end)

    def _take_all(self) -> None:
        """Take the frames that are whole, then append what they hold in one go."""
        frames, file_bytes = self._frames, self._config.mapped_file_size_commit_log
        while (frame := frames.peek()) is not None:
            # What is appended at once lies in one file, and no frame reaches over a file's end.
            if frame[0] % file_bytes == 0 and not self._append_whole():
                return
            self._take(*frame)
            frames.drop()
        self._append_whole()

    def _take(self, offset: int, data: bytes | memoryview) -> None:
        """Put one piece behind what is there."""
        if self._held_offset is None:
            end = self._store.max_physical_offset()
            # An empty log begins wherever the master wants.
            expected = end or offset
        else:
            expected = self._held_offset + self._held_bytes
        if offset != expected:
            raise StoreError(
                f"the master sent the log from {offset} on, the slave's goes to {expected}: the two do not fit"
            )
        self.is_fed = True
        if data:
            if self._held_offset is None:
                self._held_offset = offset
            self._held.append(data)
            self._held_bytes += len(data)

    def _append_whole(self) -> bool:
        """Append the records that are whole; False when the store cannot take them just now."""
        if self._held_bytes < max(self._needed_bytes, 1) or self._held_offset is None:
            return True
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held = [data]
        size = whole_records(data)
        if size:
            if not self._store.append_raw(self._held_offset, memoryview(data)[:size]):
                self._hold(True)
                self._retry = self._clock.callLater(RETRY_S, self._try_again)
                return False
            # A copy of the rest: the pieces are given back.
            data = bytes(memoryview(data)[size:])
            self._held = [data] if data else []
            self._held_bytes -= size
            self._held_offset += size
        self._needed_bytes = _record_size(data, 0) if len(data) >= _SIZE.size else _SIZE.size
        return True

    def _try_again(self) -> None:
        self._take_frames()
        if self._retry is None and self.state is LinkState.TRANSFER:
            self._hold(False)

    def _report(self, offset: int) -> None:
        self._reported = offset
        self.last_write = self._clock.seconds()
        self._write(self._report_frame(offset))

    def _report_frame(self, offset: int) -> bytes:
        return REPORT.pack(offset)

    def tick(self) -> None:
        """To be called about once a second: heartbeats and silence."""
        if self.state is LinkState.SHUTDOWN:
            return
        self.meter.tick()
        now = self._clock.seconds()
        silent_ms = (now - self.last_read) * 1000
        if self._retry is None and silent_ms > self._config.ha_housekeeping_interval:
            self._give_up(f"nothing came from the master for {silent_ms:.0f} ms")
        elif (now - self.last_write) * 1000 > self._config.ha_send_heartbeat_interval:
            self._report(self._store.max_physical_offset())

    def _give_up(self, reason: str) -> None:
        self._log.warn(
            "the link to master {peer} is closed: {reason}", peer=self.peer, reason=reason
        )
        self.closed()
        self._close(reason)

    def closed(self) -> None:
        """The connection is gone. What came of a piece that was not whole is forgotten, it will be sent again."""
        self.state = LinkState.SHUTDOWN
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def whole_records(data: bytes | memoryview) -> int:
    """How many of these bytes, which begin with a record, are whole records (or the blank that ends a file).

    :raises ProtocolError: they begin with no such record; one further behind ends what is whole.
    """
    if _compiled is not None:
        found: int | None = _compiled(data, MAX_RECORD_BYTES)
        if found is not None:
            return found
    position = 0
    while len(data) - position >= _SIZE.size:
        try:
            size = _record_size(data, position)
        except ProtocolError:
            if not position:
                raise
            break
        if size > len(data) - position:
            break
        position += size
    return position


def _record_size(data: bytes | memoryview, position: int) -> int:
    size: int = _SIZE.unpack_from(data, position)[0]
    if not 0 < size <= MAX_RECORD_BYTES:
        raise ProtocolError(f"a record of {size} bytes")
    return size


_compiled = None if native.functions is None else getattr(native.functions, "whole_records", None)
