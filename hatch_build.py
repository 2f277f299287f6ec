"""How is the optional C extension built? As a hook of hatchling for wheels and editable installs, or ``python hatch_build.py``.

The extension (``txrocketmq/native``) makes hot paths quicker and is never needed: where there is no C compiler, no ``Python.h``, or
where the sources do not compile, the installation goes on without it and the wheel is a pure one. ``CC`` names another compiler,
``CFLAGS`` adds options, ``TXROCKETMQ_PURE=1`` builds nothing.
"""

from __future__ import annotations

import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCES = Path("txrocketmq/native")
#: The stable interface of CPython 3.11: the same file for all later ones.
EXTENSION = "_native.abi3.so"
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared")


class NotBuilt(Exception):
    """Why there is no extension."""


def build(root: Path, target: Path) -> None:
    """Compile the sources below a tree into a file, which is replaced at once: a running process keeps the old one.

    :raises NotBuilt: it is not wanted, or cannot be built here.
    """
    if os.environ.get("TXROCKETMQ_PURE", "") not in ("", "0"):
        raise NotBuilt("TXROCKETMQ_PURE is set")
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("it is for CPython with its interpreter lock")
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        raise NotBuilt(f"there is no {include / 'Python.h'} (Debian: python3-dev)")
    directory = root / SOURCES
    crc = runpy.run_path(str(directory / "sources.py"))["sources_crc"](directory)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        *compiler,
        *FLAGS,
        *shlex.split(os.environ.get("CFLAGS", "")),
        f"-DSOURCES_CRC={crc}",
        f"-I{include}",
        *(str(path) for path in sorted(directory.glob("*.c"))),
        "-o",
        str(made),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(target)
    except subprocess.CalledProcessError as error:
        raise NotBuilt(f"{shlex.join(command)}: {error.stderr or error}") from error
    except OSError as error:
        raise NotBuilt(f"{shlex.join(command)}: {error}") from error
    finally:
        made.unlink(missing_ok=True)


def _tag() -> str:
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass
else:

    class NativeBuildHook(BuildHookInterface[Any]):
        """Puts the extension into a wheel, or beside its sources for an editable install."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """See hatchling."""
            root = Path(self.root)
            if version == "editable":
                target = root / SOURCES / EXTENSION
            else:
                target = Path(self.directory) / "native" / EXTENSION
            try:
                build(root, target)
            except NotBuilt as reason:
                target.unlink(missing_ok=True)
                self.app.display_warning(f"without the C extension: {reason}")
                return
            build_data["pure_python"] = False
            build_data["tag"] = _tag()
            if version != "editable":
                build_data["force_include"][str(target)] = str(SOURCES / EXTENSION)

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """See hatchling. Nothing but the wheel stays in the directory of what is given away."""
            if version != "editable":
                shutil.rmtree(Path(self.directory) / "native", ignore_errors=True)


if __name__ == "__main__":
    try:
        build(ROOT, ROOT / SOURCES / EXTENSION)
    except NotBuilt as reason:
        sys.exit(f"without the C extension: {reason}")
