"""Which bits of a message's bit map belong to a consumer group? The Bloom filter of official brokers, bit for bit.

Stands for ``BloomFilter`` with Guava's ``murmur3_128``: k places of m bits for each group and topic, from one hash of 128 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from txrocketmq.errors import ConfigError

_MASK = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK


def _mixed_1(block: int) -> int:
    return _rotate(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_2(block: int) -> int:
    return _rotate(block * _C2 & _MASK, 33) * _C1 & _MASK


def _final(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, unsigned."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for start in range(0, whole, 16):
        first ^= _mixed_1(int.from_bytes(data[start : start + 8], "little"))
        first = ((_rotate(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _mixed_2(int.from_bytes(data[start + 8 : start + 16], "little"))
        second = ((_rotate(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    if len(rest) > 8:
        second ^= _mixed_2(int.from_bytes(rest[8:], "little"))
    if rest:
        first ^= _mixed_1(int.from_bytes(rest[:8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    return (_final(first) + _final(second)) & _MASK


def _signed(value: int) -> int:
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


class BloomFilter:
    """Places of groups in bit maps.

    :param error_percent: how many of a hundred messages may pass wrongly (``maxErrorRateOfBloomFilter``).
    :param expected: groups for which the bit map is laid out (``expectConsumerNumUseFilter``).
    :ivar bits: length of a bit map; a multiple of 8.
    :ivar places: bits of each group.
    :raises ConfigError: no filter can be made of these.
    """

    def __init__(self, error_percent: int, expected: int) -> None:
        if not 1 <= error_percent < 100:
            raise ConfigError(f"maxErrorRateOfBloomFilter {error_percent} is not within 1 and 99")
        if expected < 1:
            raise ConfigError(f"expectConsumerNumUseFilter {expected} is not greater than 0")
        rate = error_percent / 100
        self.places = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(
            expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2))
        )
        self.bits = 8 * math.ceil(bits / 8)

    def positions(self, group: str, topic: str) -> list[int]:
        """The bits of a group on a topic; they may coincide."""
        value = murmur3(f"{group}#{topic}".encode("utf-8", "replace"))
        low, high = _signed(value), _signed(value >> 32)
        found = []
        for number in range(1, self.places + 1):
            place = _signed(low + number * high)
            found.append((~place if place < 0 else place) % self.bits)
        return found


def set_bits(bit_map: bytearray, positions: Sequence[int]) -> None:
    """Set bits: the lowest of a byte is its first."""
    for position in positions:
        bit_map[position >> 3] |= 1 << (position & 7)


def has_bits(bit_map: bytes, positions: Sequence[int]) -> bool:
    """Whether all of these bits are set."""
    return all(bit_map[position >> 3] >> (position & 7) & 1 for position in positions)
