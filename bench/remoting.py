"""What does one request cost the remoting room? CPU microseconds per request of a server that answers with a constant.

    python bench/remoting.py [--requests N] [--serialize json|rocketmq] [--body BYTES] [--plain] [--profile FILE]

A forked client with plain sockets sends SEND_MESSAGE_V2 requests; the server decodes the frame and the typed header, calls a handler
that returns a constant reply, encodes and writes. Two shapes: 64 connections with one request each in flight (ping-pong), and 4
connections with 64 each (batches). ``--plain`` turns eager writing off, to see what it saves.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import select
import socket
import struct
import time
from typing import Any

from twisted.internet import reactor

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocketmq.remoting import transport
from txrocketmq.remoting.dispatch import Dispatcher, Lane, Operation, Reply, Request
from txrocketmq.remoting.protocol import RemotingServerFactory

SEND_MESSAGE_V2 = 310
SHAPES = (("64 connections, 1 in flight", 64, 1), ("4 connections, 64 in flight", 4, 64))
WARM_UP_SHARE = 0.2


def request_frame(serialize_type: int, body_bytes: int) -> bytes:
    """A send as an official client makes it."""
    header = SendMessageRequestHeaderV2(
        producer_group="bench_producer",
        topic="BenchTopic",
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="UNIQ_KEY\x01C000020A2A184E0E2F2A93F0D4270000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=0,
        batch=False,
        broker_name="broker-a",
    )
    command = RemotingCommand.create_request(
        SEND_MESSAGE_V2, header, body=bytes(body_bytes), opaque=7, serialize_type=serialize_type
    )
    return command.encode()


class Sends:
    """Answers sends with a constant and takes the time between the warm-up and the last one."""

    def __init__(self, total: int) -> None:
        self._begin = int(total * WARM_UP_SHARE)
        self._left = total
        self._count = 0
        self._header = SendMessageResponseHeader(
            msg_id="7F000002000051AF000000000000E807",
            queue_id=3,
            queue_offset=1234567,
            transaction_id="C000020A2A184E0E2F2A93F0D4270000",
        )
        self._measured = total - self._begin
        self.cpu_us = 0.0
        self.per_second = 0.0

    def send_message(self, request: Request[SendMessageRequestHeaderV2]) -> Reply:
        assert request.header.queue_id == 3
        self._count += 1
        if self._count == self._begin:
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        elif self._count == self._left:
            self.cpu_us = (time.process_time() - self._cpu) / self._measured * 1e6
            self.per_second = self._measured / (time.perf_counter() - self._wall)
        return Reply(header=self._header)


def run_client(port: int, connections: int, in_flight: int, total: int, frame: bytes) -> None:
    """The load: keeps ``in_flight`` requests going on each connection until ``total`` were answered."""
    poll = select.epoll()
    socks: dict[int, socket.socket] = {}
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socks[sock.fileno()] = sock
        poll.register(sock, select.EPOLLIN)
    asked = answered = 0
    tails = dict.fromkeys(socks, b"")
    for sock in socks.values():
        sock.sendall(frame * in_flight)
        asked += in_flight
    while answered < total:
        for number, _ in poll.poll():
            data = tails[number] + socks[number].recv(262_144)
            pos = count = 0
            while len(data) - pos >= 4:
                end = pos + 4 + struct.unpack_from(">i", data, pos)[0]
                if end > len(data):
                    break
                pos = end
                count += 1
            tails[number] = data[pos:]
            answered += count
            count = min(count, total - asked)
            if count > 0:
                asked += count
                socks[number].sendall(frame * count)
    for sock in socks.values():
        sock.close()


def measure(options: argparse.Namespace, connections: int, in_flight: int) -> Sends:
    """Serve one load; runs in a process of its own, since a reactor runs once."""
    loop: Any = reactor
    total = options.requests
    sends = Sends(total)
    table = [
        Operation(
            SEND_MESSAGE_V2,
            SendMessageRequestHeaderV2,
            SendMessageResponseHeader,
            "sends.send_message",
            Lane.SEND,
        )
    ]
    factory = RemotingServerFactory(Dispatcher(table, {"sends": sends}, loop), loop)
    address: Any = transport.listen(loop, "127.0.0.1", 0, factory).getHost()
    frame = request_frame(1 if options.serialize == "rocketmq" else 0, options.body)
    child = os.fork()
    if child == 0:
        run_client(address.port, connections, in_flight, total, frame)
        os._exit(0)

    def look() -> None:
        if os.waitpid(child, os.WNOHANG)[0]:
            loop.stop()
        else:
            loop.callLater(0.05, look)

    loop.callLater(0.05, look)
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(loop.run)
        profile.dump_stats(f"{options.profile}.{connections}x{in_flight}")
    else:
        loop.run()
    return sends


def main() -> None:
    """Both shapes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--serialize", choices=("json", "rocketmq"), default="json")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--profile")
    options = parser.parse_args()
    if options.plain:
        transport.is_plain_tcp = lambda transport: False
    for name, connections, in_flight in SHAPES:
        child = os.fork()
        if child == 0:
            sends = measure(options, connections, in_flight)
            print(f"{name}: {sends.cpu_us:.1f} us CPU, {sends.per_second:,.0f}/s", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
