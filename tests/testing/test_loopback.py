"""Does the kit's loopback mode serve clients in other processes, and let time run ahead for them?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing import LoopbackRocketMQ

ROOT = Path(__file__).parents[2]
CHILD_S = 60


@pytest.fixture
def mq() -> Iterator[LoopbackRocketMQ]:
    with LoopbackRocketMQ(topics=["Orders"]) as started:
        yield started


def send(mq: LoopbackRocketMQ, body: str, level: int = 0) -> subprocess.CompletedProcess[str]:
    """Send from a process of its own, as a client of any language does."""
    program = f"""
from twisted.internet.task import react
from twisted.internet.defer import Deferred
from txrocketmq.client.producer.producer import Producer
from txrocketmq.model.message import Message

async def main(reactor):
    async with Producer(reactor, "orders", namesrv_addr={mq.namesrv_addr!r}) as producer:
        message = Message(topic="Orders", body={body.encode()!r})
        message.delay_time_level = {level}
        print((await producer.send(message)).queue.broker_name)

react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
"""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )


def test_another_process_sends_and_time_runs_ahead(mq: LoopbackRocketMQ) -> None:
    done = send(mq, "one", level=16)
    assert (done.returncode, done.stdout) == (0, "broker-a\n"), done.stderr
    assert mq.messages("Orders") == []
    # Level 16 is half an hour.
    mq.advance(29 * 60)
    assert mq.messages("Orders") == []
    mq.advance(61)
    mq.assert_stored("Orders", body="one", count=1)


def test_faults_and_a_broker_that_comes_back(mq: LoopbackRocketMQ) -> None:
    with mq.answer_with(
        ResponseCode.MESSAGE_ILLEGAL, "not today", code=RequestCode.SEND_MESSAGE_V2
    ):
        assert "not today" in send(mq, "one").stderr
    assert send(mq, "two").returncode == 0
    mq.kill_broker()
    mq.restart_broker()
    assert send(mq, "three").returncode == 0
    assert sorted(mq.bodies("Orders")) == [b"three", b"two"]


def test_a_process_with_many_descriptors_is_no_hindrance() -> None:
    with open(os.devnull, "rb") as null, ExitStack() as many:
        for _ in range(1100):
            many.callback(os.close, os.dup(null.fileno()))
        with LoopbackRocketMQ() as mq:
            assert mq.cut_connections() == 0


def test_it_leaves_no_thread_and_no_port() -> None:
    mq = LoopbackRocketMQ(brokers=2)
    with mq:
        assert mq.cut_connections() == 0
        thread = mq._thread
        assert thread.is_alive()
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="not started"):
        mq.messages("Orders")
    with pytest.raises(KeyError, match="only broker-a, broker-b"):
        mq.kill_broker("broker-x")
