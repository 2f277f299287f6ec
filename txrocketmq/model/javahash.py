"""How Java's hash of a text is computed: tag codes, index hashes, and the CRC that records and bodies carry.

Stands for ``String.hashCode`` (over UTF-16 code units, 32-bit wrap), ``IndexFile.indexKeyHashMethod`` and
``UtilAll.crc32``. Python's own ``hash`` must never be used for anything that is stored or sent.
"""

from __future__ import annotations

import zlib
from array import array
from functools import lru_cache
from operator import mul
from sys import byteorder

_MASK_32 = 0xFFFFFFFF
_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_POWERS_KNOWN = 512
# 31**(n-1) ... 31**1, 31**0 modulo 2**32: the last n of them are the weights of a text of n units.
_WEIGHTS = [pow(31, power, 1 << 32) for power in range(_POWERS_KNOWN - 1, -1, -1)]


def java_hash(text: str) -> int:
    """Java's ``text.hashCode()`` as a signed 32-bit number."""
    units: bytes | array[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        units = array("H", text.encode(_UTF_16, "surrogatepass"))
    length = len(units)
    value: int
    if length <= _POWERS_KNOWN:
        value = sum(map(mul, units, _WEIGHTS[_POWERS_KNOWN - length :])) & _MASK_32
    else:
        value = 0
        for unit in units:
            value = (31 * value + unit) & _MASK_32
    return value - (1 << 32) if value & 0x80000000 else value


_CACHED_LENGTH = 256


@lru_cache(maxsize=4096)
def _cached_hash(text: str) -> int:
    return java_hash(text)


def tags_code(tag: str | None) -> int:
    """The code of a message's tag in its consume queue unit; 0 when there is no tag."""
    if not tag:
        return 0
    # Long ones are odd, and must not use up memory.
    return _cached_hash(tag) if len(tag) <= _CACHED_LENGTH else java_hash(tag)


def index_hash(topic: str, key: str) -> int:
    """The non-negative hash under which the index files keep ``topic#key``.

    The absolute value of the smallest 32-bit number is itself in Java; the index uses 0 for it.
    """
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 0x80000000 else value


def crc32(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 without its sign bit, as bodies, records and epoch files carry it."""
    return zlib.crc32(data) & 0x7FFFFFFF
