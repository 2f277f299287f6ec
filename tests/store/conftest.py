"""What the store tests share: the official store directories."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

STORES = Path(__file__).resolve().parent.parent / "data" / "stores"


@pytest.fixture
def unpack_store(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a golden store (``"5.4.0"``, ``"4.9.7-torn"`` ...) for this test alone; gives its root directory."""

    def unpack(name: str) -> Path:
        target = tmp_path / f"golden-{name}"
        with tarfile.open(STORES / f"store-{name}.tar.gz") as archive:
            archive.extractall(target, filter="data")
        return target / "store"

    return unpack
