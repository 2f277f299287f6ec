"""What travels on a replication link? Reports one way, pieces of log the other.

Stands for the layouts of ``DefaultHAClient`` and ``DefaultHAConnection``::

    slave to master    offset 8: how far the slave's log goes
    master to slave    physical offset 8 | size 4 | that many bytes of log; a size of 0 is a heartbeat

The layouts are declared in `txrocketmq.codec.layouts`; this is the quick form of them and a test holds both equal.
"""

from __future__ import annotations

from struct import Struct

from txrocketmq.errors import ProtocolError

REPORT = Struct(">q")
REPORT_BYTES = REPORT.size
TRANSFER_HEADER = Struct(">qi")
TRANSFER_HEADER_BYTES = TRANSFER_HEADER.size

MAX_BODY_BYTES = 4 * 1024 * 1024 - TRANSFER_HEADER_BYTES
"""Official slaves have a buffer of 4 MiB: no piece may be longer."""


class ReportReader:
    """Reports out of pieces of any size. Only the newest one of a piece counts, as officially."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest whole report, None when there is none yet."""
        pending = self._rest + data
        whole = len(pending) - len(pending) % REPORT_BYTES
        self._rest = pending[whole:]
        if not whole:
            return None
        offset: int = REPORT.unpack_from(pending, whole - REPORT_BYTES)[0]
        return offset


class Incoming:
    """Bytes of a connection of which frames are made, with as few copies as there can be.

    :ivar data: what is together already; only that much is joined as the first frame needs.
    :ivar position: where the first frame begins in it.
    """

    def __init__(self) -> None:
        self.data = b""
        self.position = 0
        self._more: list[bytes] = []
        self._more_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        if self.position == len(self.data) and not self._more:
            self.data, self.position = data, 0
        else:
            self._more.append(data)
            self._more_bytes += len(data)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that no frame was made of yet."""
        return len(self.data) - self.position + self._more_bytes

    def has(self, size: int) -> bool:
        """Whether so many bytes have come; then they are together in `data`."""
        if len(self.data) - self.position >= size:
            return True
        if self.waiting_bytes < size:
            return False
        self.data = b"".join((memoryview(self.data)[self.position :], *self._more))
        self.position = self._more_bytes = 0
        self._more.clear()
        return True


class TransferReader:
    """Pieces of log out of pieces of any size. A frame stays at the front until `drop` says that it was dealt with."""

    def __init__(self) -> None:
        self._incoming = Incoming()
        self.feed = self._incoming.feed

    @property
    def waiting_bytes(self) -> int:
        """Bytes that no frame was made of yet."""
        return self._incoming.waiting_bytes

    def next_offset(self) -> int | None:
        """The physical offset that the first frame is for, once its header is whole."""
        incoming = self._incoming
        if not incoming.has(TRANSFER_HEADER_BYTES):
            return None
        offset: int = TRANSFER_HEADER.unpack_from(incoming.data, incoming.position)[0]
        return offset

    def peek(self) -> tuple[int, memoryview] | None:
        """The first frame: its physical offset, and its bytes of log; None while it is not whole.

        :raises ProtocolError: no such frame can be.
        """
        incoming = self._incoming
        if not incoming.has(TRANSFER_HEADER_BYTES):
            return None
        offset, size = TRANSFER_HEADER.unpack_from(incoming.data, incoming.position)
        if offset < 0 or not 0 <= size <= MAX_BODY_BYTES:
            raise ProtocolError(f"a piece of {size} bytes for offset {offset}")
        if not incoming.has(TRANSFER_HEADER_BYTES + size):
            return None
        start = incoming.position + TRANSFER_HEADER_BYTES
        return offset, memoryview(incoming.data)[start : start + size]

    def drop(self) -> None:
        """The first frame was dealt with."""
        incoming = self._incoming
        size = TRANSFER_HEADER.unpack_from(incoming.data, incoming.position)[1]
        incoming.position += TRANSFER_HEADER_BYTES + size
