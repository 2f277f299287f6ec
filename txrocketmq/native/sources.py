"""Which C sources lie here? Asked by the build, which must not load what was built before, and by those who load it."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

__all__ = ["sources_crc"]


def sources_crc(directory: Path) -> int:
    """CRC-32 over the C sources of a directory: the build puts it into the extension."""
    value = 0
    for path in sorted([*directory.glob("*.c"), *directory.glob("*.h")]):
        value = crc32(path.read_bytes(), value)
    return value & 0x7FFFFFFF
