"""Is the epoch file read and written as official replicas do?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec.epochfile import EpochEntry, decode_epoch_file, encode_epoch_file
from txrocketmq.errors import RecordError

OFFICIAL = b"2\n773307083\n7-7000\n8-8000\n"
ENTRIES = [EpochEntry(7, 7000), EpochEntry(8, 8000)]


def test_the_official_example_is_written_and_read() -> None:
    assert encode_epoch_file(ENTRIES) == OFFICIAL
    assert decode_epoch_file(OFFICIAL) == ENTRIES


def test_the_checksum_has_no_sign_bit() -> None:
    # About half of these lines have an unmasked CRC-32 that no int of Java holds.
    for epoch in range(1, 50):
        written = encode_epoch_file([EpochEntry(epoch, 0)])
        assert 0 <= int(written.split(b"\n")[1]) < 2**31


def test_checksum_zero_is_not_checked() -> None:
    assert decode_epoch_file(OFFICIAL.replace(b"773307083", b"0")) == ENTRIES


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no epoch file"),
        (b"2\n773307083\n7-7000\n", "2 entries holds 1"),
        (b"2\n773307083\n7-7000\n8-8001\n", "checksum 773307083 is told"),
        (b"1\n0\n7-70-1\n", "no epoch file"),
        (b"1\n0\nseven\n", "no epoch file"),
        (b"1\n0\n\xff\n", "no epoch file"),
    ],
)
def test_damage_is_named(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        decode_epoch_file(data)


@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))))
def test_what_is_written_is_read(entries: list[EpochEntry]) -> None:
    assert decode_epoch_file(encode_epoch_file(entries)) == entries
