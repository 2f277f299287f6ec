"""What travels on a replication link in controller mode? Terms of mastership first, pieces of log of one term each then.

Stands for the layouts of ``AutoSwitchHAClient`` and ``AutoSwitchHAConnection``; numbers are big-endian::

    slave to master    1 4 | from last file 2 | learner 2 | broker id 8
                       2 4 | offset 8: how far the slave's log goes
    master to slave    1 4 | size 4 | end of the log 8 | last epoch 4 | size / 12 entries: epoch 4, start offset 8
                       2 4 | size 4 | physical offset 8 | epoch 4 | its start 8 | confirm offset 8 | that many bytes of log

The first number is the state (ordinal of ``HAConnectionState``): 1 handshake, 2 transfer. A size of 0 is a heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from txrocketmq.codec.epochfile import EpochEntry
from txrocketmq.codec.haframes import MAX_BODY_BYTES, Incoming
from txrocketmq.errors import ProtocolError

HANDSHAKE, TRANSFER = 1, 2

_STATE = Struct(">i")
_SLAVE_HANDSHAKE = Struct(">ihhq")
_SLAVE_REPORT = Struct(">iq")
_MASTER_HANDSHAKE = Struct(">iiqi")
_ENTRY = Struct(">iq")
_MASTER_TRANSFER = Struct(">iiqiqq")

TRANSFER_HEADER_BYTES = _MASTER_TRANSFER.size
MAX_ENTRIES = 1000
"""As many as an official master has room for."""


class SlaveHandshake(NamedTuple):
    """Who a slave is, and how it wants to begin.

    :ivar from_last_file: with an empty log, at the master's last file; else at its first one.
    :ivar is_learner: it is never in the set of replicas in sync.
    """

    broker_id: int
    from_last_file: bool
    is_learner: bool


class MasterHandshake(NamedTuple):
    """A master's terms and the end of its log."""

    end_offset: int
    entries: tuple[EpochEntry, ...]


class Piece(NamedTuple):
    """A piece of log, or a heartbeat, of one term."""

    offset: int
    epoch: int
    epoch_start: int
    confirm_offset: int
    data: bytes | memoryview


def encode_slave_handshake(found: SlaveHandshake) -> bytes:
    """The first bytes of a slave."""
    return _SLAVE_HANDSHAKE.pack(HANDSHAKE, found.from_last_file, found.is_learner, found.broker_id)


def encode_report(offset: int) -> bytes:
    """How far the slave's log goes."""
    return _SLAVE_REPORT.pack(TRANSFER, offset)


def encode_master_handshake(end_offset: int, entries: Sequence[EpochEntry]) -> bytes:
    """The master's answer; the newest entries where there are more than fit."""
    sent = entries[-MAX_ENTRIES:]
    last = sent[-1].epoch if sent else -1
    head = _MASTER_HANDSHAKE.pack(HANDSHAKE, len(sent) * _ENTRY.size, end_offset, last)
    return head + b"".join(_ENTRY.pack(*entry) for entry in sent)


def encode_piece(piece: Piece) -> bytes:
    """Header and bytes of log."""
    head = _MASTER_TRANSFER.pack(
        TRANSFER,
        len(piece.data),
        piece.offset,
        piece.epoch,
        piece.epoch_start,
        piece.confirm_offset,
    )
    return head + piece.data


class SlaveFrames:
    """What slaves say, out of pieces of any size."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[SlaveHandshake | int]:
        """Handshakes and reported offsets that are whole by now.

        :raises ProtocolError: something else.
        """
        pending = self._pending + data
        position, found = 0, list[SlaveHandshake | int]()
        while len(pending) - position >= _STATE.size:
            state = _STATE.unpack_from(pending, position)[0]
            if state not in (HANDSHAKE, TRANSFER):
                raise ProtocolError(f"a slave in state {state}")
            layout = _SLAVE_HANDSHAKE if state == HANDSHAKE else _SLAVE_REPORT
            if len(pending) - position < layout.size:
                break
            values = layout.unpack_from(pending, position)
            position += layout.size
            if state == HANDSHAKE:
                found.append(SlaveHandshake(values[3], values[1] == 1, values[2] == 1))
            else:
                found.append(values[1])
        self._pending = pending[position:]
        return found


class MasterFrames:
    """What a master says, out of pieces of any size. A frame stays at the front until `drop` says that it was dealt with."""

    def __init__(self) -> None:
        self._incoming = Incoming()
        self.feed = self._incoming.feed
        self._size = 0

    def peek(self) -> MasterHandshake | Piece | None:
        """The first frame, None while it is not whole.

        :raises ProtocolError: no such frame can be.
        """
        incoming = self._incoming
        if not incoming.has(_MASTER_HANDSHAKE.size):
            return None
        state, size, offset, epoch = _MASTER_HANDSHAKE.unpack_from(incoming.data, incoming.position)
        if state not in (HANDSHAKE, TRANSFER) or not 0 <= size <= MAX_BODY_BYTES:
            raise ProtocolError(f"a master in state {state} with {size} bytes")
        if state == HANDSHAKE and (size > MAX_ENTRIES * _ENTRY.size or offset < 0):
            raise ProtocolError(f"a handshake of {size} bytes for a log of {offset} bytes")
        layout = _MASTER_HANDSHAKE if state == HANDSHAKE else _MASTER_TRANSFER
        if not incoming.has(layout.size + size):
            return None
        start = incoming.position + layout.size
        body = memoryview(incoming.data)[start : start + size]
        self._size = layout.size + size
        if state == TRANSFER:
            _, _, _, _, epoch_start, confirmed = layout.unpack_from(
                incoming.data, incoming.position
            )
            return Piece(offset, epoch, epoch_start, confirmed, body)
        if size % _ENTRY.size:
            raise ProtocolError(f"{size} bytes are no epochs")
        return MasterHandshake(
            offset, tuple(EpochEntry(*pair) for pair in _ENTRY.iter_unpack(body))
        )

    def drop(self) -> None:
        """The frame that `peek` gave was dealt with."""
        self._incoming.position += self._size
        self._size = 0
