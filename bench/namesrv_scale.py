"""How many brokers and topics does one name server take? Ours and the official one in the same run.

Two parts. *Registrations*: 1,000 brokers with 100 topics each, every one on a link of its own, register at once; first at a name server
that knows none of them, then with a changed topic table, then with an unchanged one. *Topics*: a broker that left 70,000 topics is
started; timed are the start, all topics at the name server, 100 routes, the list of all topics.

The load is made by this process, with frames encoded beforehand. The server that is not measured is stopped meanwhile.

    python -m bench.namesrv_scale                     # both parts, about four minutes
    python -m bench.namesrv_scale --part registrations --repeats 5
"""

from __future__ import annotations

import json
import random
import select
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import click

from bench.pairs import OfficialPair, OurPair, Pair
from txrocketmq.codec.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    encode_register_broker,
    register_body_crc32,
)
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.topic import DataVersion, TopicConfig

KINDS = ("first", "changed", "unchanged")
TARGET = 1.0
LIST_LIMIT_S = 3.0
ANSWER_TIMEOUT_S = 60
WARM_UP_ROUNDS = 4


def topic_table(prefix: str, count: int) -> dict[str, TopicConfig]:
    """Topics as a broker has them."""
    names = [f"{prefix}-{number:05d}" for number in range(count)]
    return {name: TopicConfig(topic_name=name) for name in names}


def registrations(brokers: int, topics: int, counter: int) -> list[bytes]:
    """The frame of each broker's registration, with this version of its table."""
    frames = []
    for number in range(brokers):
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=counter, timestamp=1_700_000_000_000),
            topic_config_table=topic_table(f"orders-of-broker-{number}", topics),
        )
        body = encode_register_broker(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper), compressed=False
        )
        host = f"10.0.{number // 250}.{number % 250 + 1}"
        header = RegisterBrokerRequestHeader(
            broker_name=f"broker-{number}",
            broker_addr=f"{host}:10911",
            cluster_name=f"cluster-{number % 10}",
            ha_server_addr=f"{host}:10912",
            broker_id=0,
            body_crc32=register_body_crc32(body),
        )
        request = RemotingCommand.create_request(
            int(RequestCode.REGISTER_BROKER), header, body=body, opaque=number + 1
        )
        frames.append(request.encode())
    return frames


class Load:
    """One link for each broker."""

    def __init__(self, address: str, count: int) -> None:
        host, port = address.split(":")
        self._links = [socket.create_connection((host, int(port)), 10) for _ in range(count)]
        for link in self._links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setblocking(False)

    def close(self) -> None:
        """Close all links, one right after the other."""
        for link in self._links:
            link.close()

    def run(self, frames: Sequence[bytes]) -> float:
        """Send one frame on each link and wait for all answers; seconds. RuntimeError when an answer is no success."""
        poll = select.epoll()
        unsent = {}
        answers = {link.fileno(): bytearray() for link in self._links}
        links = {link.fileno(): link for link in self._links}
        began = time.perf_counter()
        for link, frame in zip(self._links, frames, strict=True):
            unsent[link.fileno()] = memoryview(frame)
            poll.register(link.fileno(), select.EPOLLOUT | select.EPOLLIN)
        while answers:
            found = poll.poll(ANSWER_TIMEOUT_S)
            if not found:
                raise RuntimeError(f"{len(answers)} registrations were not answered")
            for number, events in found:
                if events & select.EPOLLOUT and number in unsent:
                    rest = unsent[number][links[number].send(unsent[number]) :]
                    unsent[number] = rest
                    if not rest:
                        del unsent[number]
                        poll.modify(number, select.EPOLLIN)
                if events & select.EPOLLIN and number in answers:
                    answer = answers[number]
                    answer += links[number].recv(65536)
                    if len(answer) >= 4 and len(answer) >= 4 + int.from_bytes(answer[:4], "big"):
                        if b'"code":0' not in answer:
                            raise RuntimeError(f"refused: {bytes(answer)!r}")
                        del answers[number]
        poll.close()
        return time.perf_counter() - began


def ask(
    address: str, code: RequestCode, header: object | None = None, body: bytes = b""
) -> RemotingCommand:
    """Ask a server on a link of its own. OSError when it is not there."""
    host, port = address.split(":")
    with closing(socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)) as link:
        link.sendall(
            RemotingCommand.create_request(int(code), header, body=body, opaque=1).encode()
        )
        data = bytearray()
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            part = link.recv(1 << 20)
            if not part:
                raise OSError("the server closed the link")
            data += part
    return decode_command(bytes(data[4:]))


def topics_at(address: str) -> set[str]:
    """All topics that a name server lists."""
    answer = ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return set(json.loads(answer.body)["topicList"])


def wait_until(wanted: Callable[[], bool], limit_s: float) -> float:
    """Wait until something is so; how long it took. RuntimeError when it takes too long."""
    began = time.perf_counter()
    while not wanted():
        if time.perf_counter() - began > limit_s:
            raise RuntimeError(f"not within {limit_s:g} s")
        time.sleep(0.02)
    return time.perf_counter() - began


class NameServers:
    """A name server of each make; one of them runs at a time."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.pairs: dict[str, Pair] = {
            "official": OfficialPair(directory / "official"),
            "ours": OurPair(directory / "ours"),
        }
        for pair in self.pairs.values():
            stack.callback(pair.close)
            pair.start_name_server()
            pair.freeze()

    def each(self) -> Iterator[tuple[str, Pair]]:
        """Both by turns, awake for their turn."""
        for name, pair in self.pairs.items():
            pair.thaw()
            yield name, pair
            pair.freeze()


def measure_registrations(
    servers: NameServers, brokers: int, topics: int, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Registrations a second by kind and make."""
    first, second = (registrations(brokers, topics, counter) for counter in (1, 2))
    rates: dict[str, dict[str, list[float]]] = {
        kind: {name: [] for name in servers.pairs} for kind in KINDS
    }
    for turn in range(WARM_UP_ROUNDS + repeats):
        for name, pair in servers.each():
            load = Load(pair.namesrv, brokers)
            for kind, frames in zip(KINDS, (first, second, second), strict=True):
                taken_s = load.run(frames)
                if turn >= WARM_UP_ROUNDS:
                    rates[kind][name].append(brokers / taken_s)
            assert len(topics_at(pair.namesrv)) == brokers * topics
            load.close()
            gone_s = wait_until(lambda a=pair.namesrv: not topics_at(a), 30)
            click.echo(f"  round {turn} {name}: all gone after {gone_s:.2f} s", err=True)
    return rates


def print_rates(rates: dict[str, dict[str, list[float]]], brokers: int, topics: int) -> bool:
    """The table; whether ours is at least as quick in every row."""
    print(f"\nRegistrations a second, {brokers} brokers with {topics} topics each (median)\n")
    print("| registration | official | ours | ratio |\n|---|---|---|---|")
    reached = True
    for kind, found in rates.items():
        official, ours = (statistics.median(found[name]) for name in ("official", "ours"))
        reached = reached and ours >= TARGET * official
        print(f"| {kind} | {official:,.0f} | {ours:,.0f} | {ours / official:.2f} |")
    return reached


def measure_topics(directory: Path, count: int) -> dict[str, dict[str, float]]:
    """What becomes of a broker that left that many topics, by make and figure."""
    body = encode_body(TopicConfigSerializeWrapper(topic_config_table=topic_table("many", count)))
    figures: dict[str, dict[str, float]] = {}
    for kind in (OfficialPair, OurPair):
        with ExitStack() as stack:
            pair = kind(directory / f"topics-{kind.name}")
            stack.callback(pair.close)
            config = pair.directory / "store" / "config"
            config.mkdir(parents=True)
            (config / "topics.json").write_bytes(body)
            pair.start_name_server()
            began = time.perf_counter()
            pair.start_broker()
            pair.wait_listening()
            listening_s = time.perf_counter() - began
            wait_until(lambda a=pair.namesrv: len(topics_at(a)) >= count, 120)
            known_s = time.perf_counter() - began
            names = random.Random(9).sample(range(count), 100)
            began = time.perf_counter()
            for number in names:
                header = GetRouteInfoRequestHeader(topic=f"many-{number:05d}")
                answer = ask(pair.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                assert answer.code == 0, answer
            routes_s = time.perf_counter() - began
            began = time.perf_counter()
            topics_at(pair.namesrv)
            list_s = time.perf_counter() - began
            figures[kind.name] = {
                "broker listens, s": listening_s,
                "name server has all topics, s": known_s,
                "100 routes, s": routes_s,
                "list of all topics, s": list_s,
                "name server RssAnon, MiB": pair.rss_anon_bytes()["namesrv"] / 2**20,
                "broker RssAnon, MiB": pair.rss_anon_bytes()["broker"] / 2**20,
            }
    return figures


def print_topics(figures: dict[str, dict[str, float]], count: int) -> bool:
    """The table; whether the list comes in time."""
    print(f"\nA broker with {count:,} topics\n")
    print("| figure | official | ours |\n|---|---|---|")
    for figure in figures["ours"]:
        print(f"| {figure} | {figures['official'][figure]:.2f} | {figures['ours'][figure]:.2f} |")
    return figures["ours"]["list of all topics, s"] < LIST_LIMIT_S


@click.command()
@click.option("--part", type=click.Choice(["all", "registrations", "topics"]), default="all")
@click.option("--brokers", default=1000, show_default=True)
@click.option("--topics", default=100, show_default=True, help="Of each broker.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--many", default=70_000, show_default=True, help="Topics of the one broker.")
def main(part: str, brokers: int, topics: int, repeats: int, many: int) -> None:
    """Compare name servers; exit code 1 when ours is slower, or lists topics too slowly."""
    directory = Path(tempfile.mkdtemp(prefix="txrocketmq-names-"))
    reached = True
    try:
        if part != "topics":
            with ExitStack() as stack:
                servers = NameServers(stack, directory)
                rates = measure_registrations(servers, brokers, topics, repeats)
            reached = print_rates(rates, brokers, topics)
        if part != "registrations":
            reached = print_topics(measure_topics(directory, many), many) and reached
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
