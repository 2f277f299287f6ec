"""What do 100,000 held pulls take, and what does one message wake?

A broker in a process of its own, 1,000 groups that each wait on 100 topics over 100 links. Told: RssAnon before and with the held pulls, the
CPU share of the broker at rest, and the time in which one message reaches the 1,000 groups of its topic.
"""

from __future__ import annotations

import argparse
import select
import shutil
import socket
import tempfile
import time
from pathlib import Path

from bench.pairs import OurPair
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.flags import PULL_SUBSCRIPTION, PULL_SUSPEND

HOLD_MS = 600_000
REST_S = 10.0
SETTLE_S = 3.0


class Link:
    """One connection to the broker, blocking."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self._splitter = FrameSplitter()
        self._opaque = 0

    def tell(self, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        """The bytes of a request."""
        self._opaque += 1
        command = RemotingCommand.create_request(
            int(code), header, body=body, opaque=self._opaque, version=493
        )
        return bytes(command.encode())

    def read(self) -> list[RemotingCommand]:
        """The answers that are there, at least one."""
        return [decode_command(frame) for frame in self._splitter.feed(self.socket.recv(1 << 20))]

    def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        """Send a request and wait for its answer."""
        self.socket.sendall(self.tell(code, header, body))
        while True:
            for answer in self.read():
                return answer


def send(link: Link, topic: str) -> None:
    """One message to a topic's first queue."""
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
    )
    answer = link.ask(RequestCode.SEND_MESSAGE_V2, header, b"x" * 100)
    assert answer.code == 0, answer.remark


def pull(group: str, topic: str) -> PullMessageRequestHeader:
    """A pull that waits behind the first message."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=1,
        max_msg_nums=32,
        sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=HOLD_MS,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )


def main() -> None:
    """Run it and print the figures."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--groups", type=int, default=1_000)
    words.add_argument("--topics", type=int, default=100)
    words.add_argument("--links", type=int, default=100)
    words.add_argument("--place", default=None, help="directory of the store")
    chosen = words.parse_args()
    place = Path(tempfile.mkdtemp(dir=chosen.place))
    pair = OurPair(place / "pair")
    try:
        pair.start()
        pair.wait_listening()
        measure(pair, chosen.groups, chosen.topics, chosen.links)
    finally:
        pair.close()
        shutil.rmtree(place, ignore_errors=True)


def measure(pair: OurPair, groups: int, topics: int, links: int) -> None:
    """Hold the pulls, rest, wake."""
    host, _, port = pair.broker_address.rpartition(":")
    names = [f"Topic{number}" for number in range(topics)]
    sender = Link(host, int(port))
    for name in names:
        send(sender, name)
    time.sleep(SETTLE_S)
    before = pair.rss_anon_bytes()["broker"]
    crowd = [Link(host, int(port)) for _ in range(links)]
    begun = time.monotonic()
    for number in range(groups):
        link = crowd[number % links]
        group = f"group-{number}"
        link.socket.sendall(
            b"".join(link.tell(RequestCode.PULL_MESSAGE, pull(group, name)) for name in names)
        )
    # An answered request behind them shows that all were read.
    send(sender, names[0] + "Last")
    took = time.monotonic() - begun
    time.sleep(SETTLE_S)
    ready, _, _ = select.select([link.socket for link in crowd], [], [], 0)
    assert not ready, "a pull was answered that should wait"
    after = pair.rss_anon_bytes()["broker"]
    start_cpu, start = pair.cpu().pair_s, time.monotonic()
    time.sleep(REST_S)
    share = (pair.cpu().pair_s - start_cpu) / (time.monotonic() - start)
    begun = time.monotonic()
    # The pulls of the last topic were written last: when they are answered, all were held.
    send(sender, names[-1])
    woken = 0
    while woken < groups:
        ready, _, _ = select.select([link.socket for link in crowd], [], [], 10)
        assert ready, f"{woken} of {groups} groups got the message"
        for link in crowd:
            if link.socket in ready:
                woken += sum(1 for answer in link.read() if answer.code == 0)
    reached_ms = (time.monotonic() - begun) * 1000
    print(f"{groups * topics:,} held pulls, {groups:,} groups x {topics} topics, {links} links")
    print(
        f"RssAnon before {before / 1e6:.0f} MB, with them {after / 1e6:.0f} MB: {(after - before) / 1e6:+.0f} MB"
    )
    print(
        f"taken in {took:.1f} s; CPU of broker and name server at rest {share * 100:.1f} % of a core over {REST_S:.0f} s"
    )
    print(f"one message reached its {groups:,} groups in {reached_ms:.0f} ms, {woken} answers")


if __name__ == "__main__":
    main()
