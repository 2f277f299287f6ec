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


class TransferReader:
    """Pieces of log out of pieces of any size. A frame stays at the front until `drop` says that it was dealt with."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> None:
        """Take what came in."""
        if self._position:
            del self._pending[: self._position]
            self._position = 0
        self._pending += data

    @property
    def waiting_bytes(self) -> int:
        """Bytes that no frame was made of yet."""
        return len(self._pending) - self._position

    def next_offset(self) -> int | None:
        """The physical offset that the first frame is for, once its header is whole."""
        if self.waiting_bytes < TRANSFER_HEADER_BYTES:
            return None
        offset: int = TRANSFER_HEADER.unpack_from(self._pending, self._position)[0]
        return offset

    def peek(self) -> tuple[int, bytes] | None:
        """The first frame: its physical offset, and its bytes of log; None while it is not whole.

        :raises ProtocolError: no such frame can be.
        """
        if self.waiting_bytes < TRANSFER_HEADER_BYTES:
            return None
        offset, size = TRANSFER_HEADER.unpack_from(self._pending, self._position)
        if offset < 0 or not 0 <= size <= MAX_BODY_BYTES:
            raise ProtocolError(f"a piece of {size} bytes for offset {offset}")
        start = self._position + TRANSFER_HEADER_BYTES
        if len(self._pending) < start + size:
            return None
        return offset, bytes(self._pending[start : start + size])

    def drop(self) -> None:
        """The first frame was dealt with."""
        size = TRANSFER_HEADER.unpack_from(self._pending, self._position)[1]
        self._position += TRANSFER_HEADER_BYTES + size
