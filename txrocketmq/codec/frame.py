"""Where does one command end in a stream of bytes, and the next begin?

Stands for the official ``NettyDecoder``: each frame is preceded by its length, four bytes, big-endian::

    length 4 | frame (length bytes)

Sans-IO: bytes go in as they come from the socket, whole frames come out.
"""

from __future__ import annotations

from struct import Struct

from txrocketmq.errors import ProtocolError

MAX_FRAME_BYTES = 16777216
"""The largest frame, its length prefix included (property ``com.rocketmq.remoting.frameMaxLength``)."""

_PREFIX_BYTES = 4
_MIN_FRAME_BYTES = 4  # the word with serialize type and header length
_read_length = Struct(">i").unpack_from
_HTTP_WORDS = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"DELE",
    b"OPTI",
    b"CONN",
    b"PATC",
    b"PRI ",
    b"HTTP",
)


class FrameSplitter:
    """Cuts a stream into frames.

    A frame that arrives in pieces is gathered in one growing buffer, so the work is linear in its bytes however small the
    pieces are, and the memory held is never more than the frame and the last piece.

    :param max_frame_bytes: frames that are longer, prefix included, are refused as soon as their prefix is known.
    """

    __slots__ = ("_max_length", "_needed", "_pending")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_length = max_frame_bytes - _PREFIX_BYTES
        self._pending = bytearray()
        self._needed = 0  # bytes in _pending that make it worth looking again

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes from the stream; the frames that are whole now, each without its length prefix.

        :raises ProtocolError: a length is impossible; its ``frames`` are the good ones before it. The splitter must not be fed again.
        """
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return []
            data = bytes(pending)
            pending.clear()
        frames: list[bytes] = []
        pos, size = 0, len(data)
        while True:
            start = pos + _PREFIX_BYTES
            if start > size:
                end = start
                break
            length = _read_length(data, pos)[0]
            if not _MIN_FRAME_BYTES <= length <= self._max_length:
                raise ProtocolError(self._refusal(length, data[pos:start]), frames)
            end = start + length
            if end > size:
                break
            frames.append(data[start:end])
            pos = end
        if pos < size:
            pending += data[pos:] if pos else data
            self._needed = end - pos
        return frames

    def _refusal(self, length: int, prefix: bytes) -> str:
        if prefix in _HTTP_WORDS:
            return "this is HTTP, not the remoting protocol"
        if prefix[:2] == b"\x16\x03":
            return "this is a TLS handshake, and TLS is not served on this port"
        if length < _MIN_FRAME_BYTES:
            return f"frame length {length} is too small, the least is {_MIN_FRAME_BYTES}"
        return f"frame length {length} exceeds the limit of {self._max_length}"
