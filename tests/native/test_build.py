"""Is the extension optional: without a compiler, with other sources, and switched off?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from built import ROOT, build_in
from real_server import RealServer, send_header

from txrocketmq.model.codes import RequestCode, ResponseCode

EXTENSION = "txrocketmq/native/_native.abi3.so"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources alone, without what was built of them."""
    package = tmp_path / "txrocketmq"
    shutil.copytree(
        ROOT / "txrocketmq/native", package / "native", ignore=shutil.ignore_patterns("*.so", "__*")
    )
    for name in ("hatch_build.py", "txrocketmq/__init__.py", "txrocketmq/native/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def state(tree: Path, **variables: str) -> str:
    """What the package in a tree says of its compiled functions."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment.pop("TXROCKETMQ_PURE", None)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from txrocketmq import native; print(native.description, native.functions is None)",
        ],
        env={**environment, **variables},
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_extension_is_built_beside_its_sources(tree: Path) -> None:
    assert state(tree).startswith("not to be had (No module named")
    done = build_in(tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert state(tree) == "in use False"
    assert state(tree, TXROCKETMQ_PURE="1") == "off by TXROCKETMQ_PURE True"
    assert state(tree, TXROCKETMQ_PURE="0") == "in use False"
    source = tree / "txrocketmq/native/hashes.c"
    source.write_text(source.read_text() + "/* changed */\n")
    assert state(tree) == "built from other sources, install again True"


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_a_compiler_there_is_none(tree: Path, compiler: str) -> None:
    done = build_in(tree, CC=compiler)
    assert done.returncode == 1
    assert done.stderr.startswith(f"without the C extension: {compiler} ")
    assert not list(tree.rglob("*.so*"))
    assert state(tree).startswith("not to be had")


def test_a_build_that_is_not_wanted_is_none(tree: Path) -> None:
    done = build_in(tree, TXROCKETMQ_PURE="1")
    assert done.stderr == "without the C extension: TXROCKETMQ_PURE is set\n"
    assert not list(tree.rglob("*.so*"))


def test_sources_that_do_not_compile_leave_the_older_extension(tree: Path) -> None:
    build_in(tree)
    before = (tree / EXTENSION).read_bytes()
    source = tree / "txrocketmq/native/hashes.c"
    source.write_text(source.read_text() + "broken\n")
    done = build_in(tree)
    assert done.returncode == 1
    assert "error" in done.stderr
    assert (tree / EXTENSION).read_bytes() == before
    assert [path.name for path in tree.rglob("*.so*")] == ["_native.abi3.so"]


def test_no_warning_of_the_compiler(tree: Path) -> None:
    # Python's own headers do not keep to all of them.
    more = "-Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align -Wpointer-arith"
    done = build_in(tree, CFLAGS=f"-O1 -Werror {more} -isystem {sysconfig.get_path('include')}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "", "module 'txrocketmq.native._native' has no attribute 'SOURCES'", id="other"
        ),
        pytest.param("raise SystemError('no start')", "no start", id="does not start"),
        pytest.param(
            "import no_such_thing", "No module named 'no_such_thing'", id="lacks something"
        ),
    ],
)
def test_an_extension_that_does_not_load_is_none(tree: Path, text: str, told: str) -> None:
    (tree / "txrocketmq/native/_native.py").write_text(text)
    assert state(tree) == f"not to be had ({told}) True"


def test_a_file_that_is_no_extension_of_this_machine_is_none(tree: Path) -> None:
    build_in(tree)
    whole = (tree / EXTENSION).read_bytes()
    # Nothing, a text, and a library of a processor that nobody has.
    for content in (b"", b"no library\n" * 100, whole[:18] + b"\xfe\xff" + whole[20:]):
        (tree / EXTENSION).write_bytes(content)
        assert state(tree).startswith("not to be had (")
        assert state(tree).endswith(") True")


def test_what_was_built_before_is_not_loaded_by_the_build(tree: Path) -> None:
    (tree / "txrocketmq/native/_native.py").write_text("import os\nos._exit(3)\n")
    done = build_in(tree)
    assert (done.returncode, done.stderr) == (0, "")
    # An extension goes before a file of the same name.
    assert state(tree) == "in use False"


@pytest.mark.parametrize(
    ("variables", "told"),
    [(["TXROCKETMQ_PURE=1"], "off by TXROCKETMQ_PURE"), (["PYTHONMALLOC=debug"], "[a-z]")],
)
def test_a_broker_takes_and_gives_messages(tmp_path: Path, variables: list[str], told: str) -> None:
    bodies = [b"", b"small", b"large" * 2000]
    wrapper = ["env", *variables]
    with (
        RealServer("rocketmq", tmp_path, wrapper=wrapper) as server,
        server.link(server.broker_port) as link,
    ):
        server.wait_for(f"compiled functions {told}")
        for body in bodies * 20:
            header = send_header(
                "Twins", properties="TAGS\x01TagA\x02KEYS\x01a b\x02UNIQ_KEY\x01id\x02"
            )
            answer = link.ask(RequestCode.SEND_MESSAGE_V2, header, body=body)
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        found, offset = [], 0
        while offset < len(bodies) * 20:
            messages = link.pull("Twins", 0, offset)
            assert messages
            found += [message.body for message in messages]
            offset += len(messages)
        assert found == bodies * 20
