"""What the tests of the command line share: official store directories."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from store_tool import STORES, Unpack


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Unpack a golden store for this test alone; gives its root directory."""

    def unpack_store(name: str) -> Path:
        target = tmp_path / f"golden-{name}"
        with tarfile.open(STORES / f"store-{name}.tar.gz") as archive:
            archive.extractall(target, filter="data")
        return target / "store"

    return unpack_store
