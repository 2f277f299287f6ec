"""Does every step of the tutorial do what docs/client.md says?

Each runs twice: in the test kit, in no time, and as a process of its own against a server process of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, ROOT, blocks_of
from real_server import RealServer

from txrocketmq.testing import RocketMQ

EXAMPLES = DOCS / "examples"
PATIENCE_S = 120
CAPTION = re.compile(
    r"^## (\d+)\. .*?\[`(\w+\.py)`\]\(examples/(\w+\.py)\)(.*?)(?=^## |\Z)", re.M | re.S
)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)


def steps() -> list[tuple[str, str]]:
    """The steps of the page, in order: file and what it prints."""
    found = []
    for number, (told, name, linked, text) in enumerate(CAPTION.findall(page()), 1):
        assert (int(told), name) == (number, linked)
        (output,) = OUTPUT.findall(text)
        found.append((name, output))
    return found


def page() -> str:
    return (DOCS / "client.md").read_text()


STEPS = steps()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    home = tmp_path_factory.mktemp("server")
    with RealServer("rocketmq", home, settings={"enablePropertyFilter": "true"}) as started:
        started.wait_for("registered at name server")
        yield started


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home)}


def test_there_are_ten_steps_and_each_file_is_one_or_the_web_application() -> None:
    assert len(STEPS) == 10
    assert {name for name, _ in STEPS} | {"web_application.py"} == {
        path.name for path in EXAMPLES.glob("*.py")
    }
    assert "examples/web_application.py" in page()


@pytest.mark.parametrize(("name", "output"), STEPS, ids=[name for name, _ in STEPS])
def test_a_step_in_the_test_kit(name: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Once and again: what earlier runs left at the server changes nothing."""
    spec = spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    with RocketMQ(enable_property_filter=True) as mq:
        for _ in range(3):
            module: Any = module_from_spec(spec)
            spec.loader.exec_module(module)
            mq.wait(module.main(mq.reactor, mq.namesrv_addr), timeout=120)
            printed = capsys.readouterr()
            assert (printed.out, printed.err) == (output, "")


def test_all_steps_as_processes(server: RealServer, tmp_path: Path) -> None:
    """All at a time, to be done sooner; their topics are their own."""
    running = {
        name: subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), server.namesrv],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, _ in STEPS
    }
    try:
        for name, output in STEPS:
            printed, errors = running[name].communicate(timeout=PATIENCE_S)
            assert (running[name].returncode, printed) == (0, output), f"{name}: {errors}"
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def block_with(words: str) -> str:
    (found,) = (text for text in blocks_of("client.md", "python") if words in text)
    return found


def test_the_lines_for_a_prompt(server: RealServer, tmp_path: Path) -> None:
    lines = block_with("startRunning").replace("127.0.0.1:9876", server.namesrv)
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=lines,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SEND_OK" in done.stdout
    assert "Traceback" not in done.stderr


IN_THREAD = """
import sys
from twisted.internet.task import react
from txrocketmq.client import *

{block}
async def main(started, address):
    global reactor, producer
    # Neither topic is there yet.
    client = ClientConfig(namesrv_addr=address, poll_name_server_interval=200)
    reactor, producer = started, Producer(started, "seers", client)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with producer, LitePullConsumer(
        reactor, "seen", client, PullConfig(consume_from_where=first)
    ) as reader, PushConsumer(
        reactor, "eyes", "ToSee", handle, client, settings=PushConfig(in_thread=True)
    ):
        reader.subscribe("Seen")
        await producer.send(Message(topic="ToSee", body=b"a sight"))
        async for message in reader:
            print(message.body.decode())
            return

react(main, sys.argv[1:])
"""


def test_the_handler_in_a_thread(server: RealServer, tmp_path: Path) -> None:
    program = IN_THREAD.format(block=block_with("blockingCallFromThread"))
    done = subprocess.run(
        [sys.executable, "-c", program, server.namesrv],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "a sight\n"), done.stderr


def test_a_web_application_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with contextlib.closing(socket.socket()) as silent:
        # Bound, but nobody listens there.
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, str(EXAMPLES / "web_application.py"), address],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == f"no name server answers: {address}: connection refused\n"


def test_the_web_application(server: RealServer, tmp_path: Path) -> None:
    application = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "web_application.py"), server.namesrv],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert application.stdout is not None
        url = application.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), application.communicate()[1]
        with urllib.request.urlopen(url, b"hello", timeout=PATIENCE_S) as answer:
            assert set(json.load(answer)) == {"id", "queue", "offset"}
        came: list[str] = []
        end_s = time.monotonic() + PATIENCE_S
        while "hello" not in came and time.monotonic() < end_s:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                came = json.load(answer)
        assert "hello" in came
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, b"", timeout=PATIENCE_S)
        assert refused.value.code == 400
        assert "has no body" in json.load(refused.value)
        application.send_signal(signal.SIGTERM)
        _, errors = application.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in errors, errors
    finally:
        application.kill()
        application.wait()
