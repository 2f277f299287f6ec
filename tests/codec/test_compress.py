"""Compressed message bodies: what official clients made, bounds, damage."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import frame_body, units, wire_frames
from txrocketmq.codec.compress import compress_body, compression_type, decompress_body
from txrocketmq.errors import BodyError
from txrocketmq.model.flags import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
)

KINDS = (0, COMPRESSION_ZLIB_TYPE, COMPRESSION_LZ4_TYPE, COMPRESSION_ZSTD_TYPE)


@pytest.mark.parametrize("vector", units("5.4.0")["compression"], ids=lambda v: v["type"])
def test_unit_vectors(vector: dict[str, object]) -> None:
    plain = bytes.fromhex(str(vector["plain_hex"]))
    packed = bytes.fromhex(str(vector["compressed_hex"]))
    sys_flag = int(str(vector["sysFlagBits"]))
    kind = compression_type(str(vector["type"]))
    assert kind | COMPRESSED_FLAG == sys_flag
    assert decompress_body(packed, sys_flag) == plain
    ours = compress_body(plain, kind, level=5)
    assert decompress_body(ours, sys_flag) == plain
    if vector["type"] == "ZLIB":
        assert ours == packed


def test_bodies_that_official_clients_sent() -> None:
    seen = set()
    for frame in wire_frames():
        decoded = frame["decoded"]
        if frame["kind"] != "remoting" or decoded["codeName"] != "SEND_MESSAGE_V2":
            continue
        if decoded["body_kind"] in ("zlib", "zstd", "lz4-frame"):
            sys_flag = int(decoded["extFields"]["f"])
            packed = frame_body(frame)
            plain = decompress_body(packed, sys_flag)
            assert len(plain) >= 4096
            assert plain != packed
            seen.add(decoded["body_kind"])
    assert seen == {"zlib", "zstd", "lz4-frame"}


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.integers(0, 9))
def test_any_body_comes_back(body: bytes, kind: int, level: int) -> None:
    packed = compress_body(body, kind, level)
    assert decompress_body(packed, kind | COMPRESSED_FLAG, max_bytes=300) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_grows_over_the_limit_is_refused(kind: int) -> None:
    packed = compress_body(bytes(1_000_000), kind)
    assert len(decompress_body(packed, kind | COMPRESSED_FLAG, 1_000_000)) == 1_000_000
    with pytest.raises(BodyError, match="limit of 999999 bytes"):
        decompress_body(packed, kind | COMPRESSED_FLAG, 999_999)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_body_is_refused(kind: int) -> None:
    packed = compress_body(bytes(range(256)) * 8, kind)
    for size in range(len(packed) - 1):
        with pytest.raises(BodyError):
            decompress_body(packed[:size], kind | COMPRESSED_FLAG)


@given(st.sampled_from(KINDS), st.binary(max_size=40))
def test_noise_raises_nothing_but_body_error(kind: int, noise: bytes) -> None:
    with contextlib.suppress(BodyError):
        decompress_body(noise, kind | COMPRESSED_FLAG, 1000)


def test_uncompressed_bodies_are_left_alone() -> None:
    packed = zlib.compress(b"x")
    assert decompress_body(packed, COMPRESSION_ZLIB_TYPE) is packed


def test_unknown_compressions_are_refused() -> None:
    with pytest.raises(BodyError, match="0x500"):
        decompress_body(b"x", COMPRESSED_FLAG | 0x500)
    with pytest.raises(ValueError, match="0x700"):
        compress_body(b"x", 0x700)
    with pytest.raises(ValueError, match="'brotli', expected one of LZ4, ZSTD, ZLIB"):
        compression_type("brotli")
    assert compression_type(" zlib ") == COMPRESSION_ZLIB_TYPE
