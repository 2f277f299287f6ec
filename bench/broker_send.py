"""What does a whole send cost the broker, without the socket? CPU per message, from the bytes of a request to those of its answer.

Run it as ``python bench/broker_send.py [DIRECTORY] [--profile]``. Requests go through the real connection, dispatcher, handler and
store on disk; the transport is a sink. "one" gives the connection one request per turn, as a synchronous producer does, "64" as many
at once as an asynchronous one. Figures are the best of five rounds, reactor thread alone (flushes and blocks ahead are the pools').
"""

from __future__ import annotations

import cProfile
import os
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater, react

from bench.pooled_store import pooled_store
from txrocketmq import native
from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.broker.core import BrokerCore
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import SendMessageRequestHeaderV2
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.model.codes import LanguageCode, RequestCode
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.upkeep import StoreUpkeep

PORT = 10911
ROUNDS = 5
REQUESTS = 10_000
TURN = 500
PEER = IPv4Address("TCP", "192.0.2.10", 52113)
HOST = IPv4Address("TCP", "192.0.2.1", PORT)


class Sink:
    """A transport that forgets what it is given."""

    disconnecting = False
    connected = True

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def getPeer(self) -> IPv4Address:
        return PEER

    def getHost(self) -> IPv4Address:
        return HOST

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """It is never full."""

    def unregisterProducer(self) -> None:
        """It was never full."""

    def loseConnection(self) -> None:
        """The bench is over."""

    abortConnection = loseConnection

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is no socket."""

    setTcpKeepAlive = setTcpNoDelay


def requests(count: int, body_bytes: int, serialize_type: int) -> list[bytes]:
    """Frames as the official producer sends them; every message has an id of its own."""
    body = os.urandom(body_bytes)
    frames = []
    for number in range(count):
        header = SendMessageRequestHeaderV2(
            producer_group="please_rename_unique_group_name",
            topic="BenchmarkTest",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=number % 4,
            sys_flag=0,
            born_timestamp=1_700_000_000_000 + number,
            flag=0,
            properties=f"UNIQ_KEY\x01AC1100020BB8251A69D77D3E{number:08X}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name="broker-a",
        )
        frames.append(
            RemotingCommand.create_request(
                RequestCode.SEND_MESSAGE_V2,
                header,
                body=body,
                opaque=number,
                language=LanguageCode.JAVA,
                serialize_type=serialize_type,
            ).encode()
        )
    return frames


class Bench:
    """A broker over a store in a directory of its own."""

    def __init__(self, reactor: Any, place: Path) -> None:
        self.reactor = reactor
        self.place = place
        config = BrokerConfig(
            broker_name="broker-a",
            broker_cluster_name="DefaultCluster",
            broker_ip1="192.0.2.1",
            broker_ip2="192.0.2.1",
            namesrv_addr="",
        )
        store_config = MessageStoreConfig(
            store_path_root_dir=str(place), store_path_commit_log=str(place / "commitlog")
        )
        disk = RealDisk()
        self.store, self.pools = pooled_store(reactor, store_config)
        self.client = RemotingClient(reactor)
        self.core = BrokerCore(
            config,
            store_config,
            self.store,
            StoreUpkeep(self.store, store_config, disk, self.pools.queues, reactor),
            self.client,
            reactor,
            ConfigFiles(disk, self.pools.files, str(place / "config")),
            listen_port=PORT,
        )
        dispatcher = Dispatcher(self.core.operations, self.core.handlers(), reactor)
        self.factory = RemotingServerFactory(dispatcher, reactor, self.core.connection_listener)

    @inlineCallbacks
    def open(self) -> Generator[Deferred[Any], Any, None]:
        yield self.store.load()
        self.store.start()
        self.core.start()
        protocol = self.factory.buildProtocol(PEER)
        assert protocol is not None
        self.protocol = protocol
        self.sink = Sink()
        protocol.makeConnection(self.sink)  # type: ignore[no-untyped-call]

    @inlineCallbacks
    def close(self) -> Generator[Deferred[Any], Any, None]:
        self.protocol.connectionLost()
        yield self.core.stop()
        yield self.store.stop()
        yield self.client.stop()
        for pool in self.pools:
            yield pool.stop()

    @inlineCallbacks
    def feed(self, chunks: list[bytes], messages: int) -> Generator[Deferred[Any], Any, float]:
        """Microseconds of CPU per message."""
        receive = self.protocol.dataReceived
        used = 0.0
        turn = max(1, TURN * len(chunks) // messages)
        for start in range(0, len(chunks), turn):
            part = chunks[start : start + turn]
            begin = time.thread_time()
            for chunk in part:
                receive(chunk)
            used += time.thread_time() - begin
            yield deferLater(self.reactor, 0.002)
        assert self.sink.written > messages * 100
        return used / messages * 1e6


def joined(frames: list[bytes], size: int) -> list[bytes]:
    """The frames in chunks of so many."""
    return [b"".join(frames[start : start + size]) for start in range(0, len(frames), size)]


@inlineCallbacks
def main(reactor: Any, *arguments: str) -> Generator[Deferred[Any], Any, None]:
    places = [argument for argument in arguments if not argument.startswith("-")]
    place = Path(tempfile.mkdtemp(prefix="txrocketmq-bench-", dir=places[0] if places else None))
    bench = Bench(reactor, place)
    try:
        yield bench.open()
        yield bench.feed(requests(2000, 128, 0), 2000)
        print(f"compiled functions {native.description}")
        print(f"{'header':>9} {'body':>6} {'at once':>8} {'us/message':>11}")
        for kind, serialize_type in (("JSON", 0), ("ROCKETMQ", 1)):
            for body_bytes in (128, 1024):
                frames = requests(REQUESTS, body_bytes, serialize_type)
                for size in (1, 64):
                    chunks = joined(frames, size)
                    best = 1e9
                    for _ in range(ROUNDS):
                        best = min(best, (yield bench.feed(chunks, REQUESTS)))
                    print(f"{kind:>9} {body_bytes:>6} {size:>8} {best:>11.1f}", flush=True)
        if "--profile" in arguments:
            profile = cProfile.Profile()
            profile.enable()
            yield bench.feed(requests(REQUESTS, 1024, 0), REQUESTS)
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        yield bench.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    react(main, sys.argv[1:])
