"""How message ids are made and read: the client's unique id, and the broker's offset message id.

Stands for ``MessageClientIDSetter`` and the id half of ``MessageDecoder``. Both are upper-case hex of big-endian fields::

    unique id:         address 4 or 16 | process id 2 | any per-process value 4 | ms since the month began 4 | counter 2
    offset message id: store address 4 or 16 | port 4 | physical offset 8

Both have 32 characters with IPv4 and 56 with IPv6: length alone does not tell them apart.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import time
from functools import cache
from ipaddress import ip_address

import msgspec

from txrocketmq.errors import RecordError

_ID_LENGTHS = (32, 56)
_MS_PER_SECOND = 1000
# A clock that steps back less than this over the month's start is taken for the start itself.
_CLOCK_STEP_MS = 1_000_000


def offset_message_id(host: str, port: int, physical_offset: int) -> str:
    """The id by which a broker finds a message: 32 upper-case hex characters, 56 for an IPv6 store host."""
    packed = ip_address(host).packed
    return f"{packed.hex()}{port & 0xFFFFFFFF:08x}{physical_offset & (1 << 64) - 1:016x}".upper()


def parse_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """Store host, port and physical offset of an offset message id.

    :raises RecordError: the text is not 32 or 56 hex characters.
    """
    raw = _from_hex(message_id)
    return (
        str(ip_address(raw[:-12])),
        int.from_bytes(raw[-12:-8], "big", signed=True),
        int.from_bytes(raw[-8:], "big", signed=True),
    )


def _from_hex(message_id: str) -> bytes:
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(message_id) not in _ID_LENGTHS or len(raw) * 2 != len(message_id):
        raise RecordError(f"message id {message_id!r} is not 32 or 56 hexadecimal characters")
    return raw


def _month_start_ms(now_ms: int) -> int:
    now = datetime.datetime.fromtimestamp(now_ms / _MS_PER_SECOND)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp()) * _MS_PER_SECOND


def _next_month_start_ms(month_start_ms: int) -> int:
    # The longest month has 31 days; 40 days on is always in the next one.
    return _month_start_ms(month_start_ms + 40 * 86_400_000)


class UniqueIds:
    """Makes unique ids for one process.

    :param address: this machine's address, numeric.
    :param process_value: tells processes with equal address and process id apart (containers); random unless given.
    """

    def __init__(
        self, address: str, *, process_id: int | None = None, process_value: int | None = None
    ) -> None:
        packed = ip_address(address).packed
        pid = os.getpid() if process_id is None else process_id
        value = secrets.randbits(32) if process_value is None else process_value
        self._prefix = f"{packed.hex()}{pid & 0xFFFF:04x}{value & 0xFFFFFFFF:08x}".upper()
        self._counter = 0
        self._start_ms = 0
        self._next_start_ms = 0

    def next(self, now_ms: int) -> str:
        """A new id.

        :param now_ms: wall-clock ms; the id holds the time since the month began in local time.
        """
        if now_ms >= self._next_start_ms:
            self._start_ms = _month_start_ms(now_ms)
            self._next_start_ms = _next_month_start_ms(self._start_ms)
        passed = now_ms - self._start_ms
        if -_CLOCK_STEP_MS < passed < 0:
            passed = 0
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._prefix}{passed & 0xFFFFFFFF:08X}{counter:04X}"


@cache
def _process_ids() -> UniqueIds:
    return UniqueIds(own_address())


def own_address() -> str:
    """The address this machine would use to the outside; nothing is sent. A random one when there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return str(ip_address(secrets.token_bytes(4)))
        return str(probe.getsockname()[0])


def create_uniq_id(now_ms: int | None = None) -> str:
    """A new unique id of this process.

    :param now_ms: wall-clock ms, now when left out.
    """
    return _process_ids().next(int(time.time() * _MS_PER_SECOND) if now_ms is None else now_ms)


class UniqueIdParts(msgspec.Struct, frozen=True):
    """What a unique id tells.

    :ivar near_time_ms: wall-clock ms at which it was made, if that was within the last month.
    """

    address: str
    process_id: int
    near_time_ms: int
    counter: int


def parse_uniq_id(unique_id: str, now_ms: int) -> UniqueIdParts:
    """Read a unique id.

    :param now_ms: wall-clock ms now; the id's time is relative to a month's start.
    :raises RecordError: the text is not 32 or 56 hex characters.
    """
    raw = _from_hex(unique_id)
    passed = int.from_bytes(raw[-6:-2], "big")
    start = _month_start_ms(now_ms)
    if start + passed >= now_ms:
        start = _month_start_ms(start - 1)
    return UniqueIdParts(
        address=str(ip_address(raw[:-12])),
        process_id=int.from_bytes(raw[-12:-10], "big"),
        near_time_ms=start + passed,
        counter=int.from_bytes(raw[-2:], "big"),
    )
