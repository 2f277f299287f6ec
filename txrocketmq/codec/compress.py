"""How message bodies are compressed: zlib, LZ4 frame or Zstandard, as the message's sysFlag says.

Stands for ``CompressorFactory``, ``ZlibCompressor``, ``Lz4Compressor``, ``ZstdCompressor``. Brokers store bodies as they come;
only clients compress and decompress. What a body may grow to is bounded: a few bytes can claim gigabytes.
"""

from __future__ import annotations

import zlib

import lz4.frame
import zstandard

from txrocketmq.errors import BodyError
from txrocketmq.model.flags import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
)

DEFAULT_LEVEL = 5
MAX_BODY_BYTES = 64 * 1024 * 1024
"""What a compressed message body may grow to unless the caller says otherwise."""
# Four bytes can stand for a block of 128 KiB.
_ZSTD_STEP_BYTES = 256

_BY_NAME = {
    "LZ4": COMPRESSION_LZ4_TYPE,
    "ZSTD": COMPRESSION_ZSTD_TYPE,
    "ZLIB": COMPRESSION_ZLIB_TYPE,
}


def compression_type(name: str) -> int:
    """The sysFlag bits of a compression's official name (``ZLIB``, ``LZ4``, ``ZSTD``, any case).

    :raises ValueError: the name is unknown; the text lists those that are known.
    """
    try:
        return _BY_NAME[name.strip().upper()]
    except KeyError:
        raise ValueError(
            f"unknown compression {name!r}, expected one of {', '.join(_BY_NAME)}"
        ) from None


def compress_body(body: bytes, kind: int, level: int = DEFAULT_LEVEL) -> bytes:
    """A body compressed.

    :param kind: sysFlag bits; 0 and ``COMPRESSION_ZLIB_TYPE`` both mean zlib.
    :param level: as the algorithm counts it, 0 to 9.
    """
    kind &= COMPRESSION_TYPE_MASK
    if kind in (0, COMPRESSION_ZLIB_TYPE):
        return zlib.compress(body, level)
    if kind == COMPRESSION_LZ4_TYPE:
        packed: bytes = lz4.frame.compress(body, compression_level=0, store_size=False)
        return packed
    if kind == COMPRESSION_ZSTD_TYPE:
        return zstandard.ZstdCompressor(level=level).compress(body)
    raise ValueError(f"unknown compression type bits 0x{kind:x}")


def decompress_body(body: bytes, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The plain body of a message; as it is when the sysFlag does not say compressed.

    :raises BodyError: the body is damaged, of an unknown compression, or grows over ``max_bytes``.
    """
    if not sys_flag & COMPRESSED_FLAG:
        return body
    kind = sys_flag & COMPRESSION_TYPE_MASK
    if kind in (0, COMPRESSION_ZLIB_TYPE):
        return inflate(body, max_bytes, "message body")
    if kind == COMPRESSION_LZ4_TYPE:
        return _from_lz4(body, max_bytes)
    if kind == COMPRESSION_ZSTD_TYPE:
        return _from_zstd(body, max_bytes)
    raise BodyError(f"message body: unknown compression type bits 0x{kind:x}")


def inflate(data: bytes, max_bytes: int, what: str) -> bytes:
    """A zlib stream's content.

    :param what: names the data in the error text.
    :raises BodyError: damaged, cut, or larger than ``max_bytes``.
    """
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise BodyError(f"{what}: zlib: {error}") from None
    _check_size(len(plain), max_bytes, what)
    if not stream.eof:
        raise BodyError(f"{what}: zlib: the data is cut")
    return plain


def _from_lz4(data: bytes, max_bytes: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = stream.decompress(data, max_bytes + 1)
    except RuntimeError as error:
        raise BodyError(f"message body: lz4: {error}") from None
    _check_size(len(plain), max_bytes, "message body")
    if not stream.eof:
        raise BodyError("message body: lz4: the data is cut")
    return plain


def _from_zstd(data: bytes, max_bytes: int) -> bytes:
    stream = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        # The decompressor has no bound of its own: feed it so little at a time that no step can grow far over ours.
        for start in range(0, len(data), _ZSTD_STEP_BYTES):
            part = stream.decompress(data[start : start + _ZSTD_STEP_BYTES])
            parts.append(part)
            size += len(part)
            _check_size(size, max_bytes, "message body")
            if stream.eof:
                break
    except zstandard.ZstdError as error:
        raise BodyError(f"message body: zstd: {error}") from None
    if not stream.eof:
        raise BodyError("message body: zstd: the data is cut")
    return b"".join(parts)


def _check_size(size: int, max_bytes: int, what: str) -> None:
    if size > max_bytes:
        raise BodyError(f"{what}: grows over the limit of {max_bytes} bytes")
