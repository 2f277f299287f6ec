"""What the store tests share: the official store directories."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def expected() -> Callable[[str], dict[str, Any]]:
    """What the official broker answered after it had loaded the golden store of this name."""

    def load(name: str) -> dict[str, Any]:
        with gzip.open(STORES / f"expected-{name}.json.gz") as file:
            found: dict[str, Any] = json.load(file)
        return found

    return load
