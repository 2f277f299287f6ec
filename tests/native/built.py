"""The compiled functions, whether or not this run uses them."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from txrocketmq import native
from txrocketmq.codec.crc import crc32
from txrocketmq.codec.record import _host_bytes, _topic_parts

ROOT = Path(__file__).resolve().parent.parent.parent


def build_in(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the build script on a copy of the sources below a directory."""
    # Not optimised: it is quicker to build.
    environment = {**os.environ, "CFLAGS": "-O0", **variables}
    if "TXROCKETMQ_PURE" not in variables:
        environment.pop("TXROCKETMQ_PURE", None)
    return subprocess.run(
        [sys.executable, str(directory / "hatch_build.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def functions(directory: Path) -> ModuleType:
    """The extension in use, or where none is, one built for this."""
    if native.functions is not None:
        native.functions.remember(_host_bytes, _topic_parts, crc32)
        return native.functions
    build = runpy.run_path(str(ROOT / "hatch_build.py"))["build"]
    target = directory / "_native.abi3.so"
    before = os.environ.pop("TXROCKETMQ_PURE", None)
    try:
        build(ROOT, target)
    finally:
        if before is not None:
            os.environ["TXROCKETMQ_PURE"] = before
    module = load(target)
    module.remember(_host_bytes, _topic_parts, crc32)
    return module


def load(path: Path) -> ModuleType:
    """The extension of a file, as another interpreter loads it: it shares nothing with those that were loaded before."""
    spec = importlib.util.spec_from_file_location("_native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
