"""How do tests run ``txrocketmq store``, change single bytes, and hold a store's lock?"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from txrocketmq.cli.main import main

STORES = Path(__file__).resolve().parent.parent / "data" / "stores"
Unpack = Callable[[str], Path]


def expected(name: str) -> dict[str, Any]:
    with gzip.open(STORES / f"expected-{name}.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def tool(*words: object) -> Result:
    result = CliRunner().invoke(main, ["store", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def contents(root: Path) -> dict[str, str]:
    """Every file with the digest of its bytes."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_file(root: Path, number: int = 0) -> Path:
    return root / "commitlog" / f"{number << 20:020d}"


class lock_holder:
    """Another process that holds a store's lock, as a broker does."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        code = (
            "import sys; from txrocketmq.store.disk import RealDisk; "
            "lock = RealDisk().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(self._root / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
