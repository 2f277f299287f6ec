"""Does a send fail, or take long, when the one before was 130 seconds ago and servers close connections that were idle for 120?

    python -m bench.idle_producer                   # ten minutes in real time
    python -m bench.idle_producer --minutes 3

A name server and a broker of ours run as processes; one producer uses the broker's first listener, another the second one (port - 2). Each sends
once in 130 s. The exit code is 1 when a send fails or takes longer than 200 ms. On the virtual clock: `tests/scenarios/test_s16_low_rate_producer.py`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater, react

from interop.harness.cluster import OurCluster
from txrocketmq.client import ClientConfig, Message, Producer
from txrocketmq.errors import RocketMQError

EVERY_S = 130.0
MOST_MS = 200.0


async def send_now_and_then(
    reactor: Any, namesrv: str, second: bool, until_s: float
) -> list[float | str]:
    """Milliseconds of each send, or its error."""
    client = ClientConfig(
        namesrv_addr=namesrv,
        vip_channel_enabled=second,
        instance_name=f"idle-{os.getpid()}-{second}",
    )
    found: list[float | str] = []
    async with Producer(reactor, "idle", client) as producer:
        # Makes the topic, and the connection.
        await producer.send(Message("Idle", b"first"))
        while time.monotonic() < until_s:
            await deferLater(reactor, EVERY_S, lambda: None)
            began = time.perf_counter()
            try:
                await producer.send(Message("Idle", b"one of few"))
            except RocketMQError as error:
                found.append(str(error))
            else:
                found.append((time.perf_counter() - began) * 1000)
    return found


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
def main(minutes: float) -> None:
    """See the module."""
    bad: list[float | str] = []

    async def play(reactor: Any, namesrv: str) -> None:
        until_s = time.monotonic() + minutes * 60 - EVERY_S
        names = ("first listener", "second listener")
        sending = [
            Deferred.fromCoroutine(send_now_and_then(reactor, namesrv, bool(number), until_s))
            for number in range(2)
        ]
        for name, found in zip(names, await gatherResults(sending), strict=True):
            words = [one if isinstance(one, str) else f"{one:.1f} ms" for one in found]
            click.echo(f"{name}: {len(found)} sends, {', '.join(words)}")
            bad.extend(one for one in found if isinstance(one, str) or one > MOST_MS)

    with OurCluster() as cluster:
        try:
            react(lambda reactor: Deferred.fromCoroutine(play(reactor, cluster.namesrv)))
        except SystemExit as ending:
            if ending.code:
                raise
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
