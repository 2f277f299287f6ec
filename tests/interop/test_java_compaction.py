"""A topic that keeps the latest message of each key, in one store directory, brokers of two makes: what one compacted, the other serves.

The requests are made here, byte by byte, so that both brokers are asked the same. The official broker alone is the control.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import pairwise

import pytest

from interop.harness.cluster import Cluster, make_cluster
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from tests.interop.test_java_kinds_of_queues import Link, text
from txrocketmq.codec.record import decode_records
from txrocketmq.model.message import MessageExt

pytestmark = pytest.mark.java

TOPIC = "Compacted"
SETTINGS = {
    # Nine messages in a file.
    "compactionCqMappedFileSize": "460",
    "compactionMappedFileSize": "2300",
    "compactionScheduleInternal": "1000",
}
PATIENCE_S = 60.0
KEYS = 5
GONE = "gone"


def held(link: Link) -> list[MessageExt]:
    """All messages that a consumer gets which begins at 0."""
    found: list[MessageExt] = []
    offset = 0
    while True:
        answer = link.pull(TOPIC, offset)
        if answer.code != 0:
            return found
        found += decode_records(answer.body)
        offset = int(answer.ext_fields["nextBeginOffset"])


def wait_held(link: Link, accepts: Callable[[list[MessageExt]], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not accepts(held(link)):
        assert time.monotonic() < deadline, f"{what}: {[m.queue_offset for m in held(link)]}"
        time.sleep(0.2)


class Sent:
    """What was sent so far, under every owner."""

    def __init__(self) -> None:
        self.count = 0
        self.latest: dict[str, int] = {}

    def more(self, link: Link, keys: Iterable[str]) -> None:
        """Send messages; their offsets follow."""
        for key in keys:
            properties = text(KEYS=key, UNIQ_KEY=f"id-{self.count}", WAIT="true")
            body = b"" if key == GONE and self.count else b"%d" % self.count
            assert link.send(TOPIC, body, properties) == self.count
            self.latest[key] = self.count
            self.count += 1

    def is_served(self, link: Link) -> None:
        """The latest of each key is there, in order, each once; a key without a latest body is not asked for."""
        wait_held(
            link, lambda found: bool(found) and found[-1].queue_offset == self.count - 1, "the end"
        )
        found = held(link)
        offsets = [m.queue_offset for m in found]
        assert all(one < two for one, two in pairwise(offsets)), offsets
        assert all(m.body in (b"", b"%d" % m.queue_offset) for m in found)
        for key, offset in self.latest.items():
            assert offset in offsets or key == GONE, f"{key} {offset}: {offsets}"


def own(cluster: Cluster, sent: Sent) -> None:
    """An owner serves what is there, takes more, and compacts it."""
    with Link(cluster.broker_address) as link:
        if not sent.count:
            link.create_topic(TOPIC, "+cleanup.policy=COMPACTION")
            sent.more(link, [GONE, "once"])
        else:
            sent.is_served(link)
        sent.more(link, [f"k{number % KEYS}" for number in range(40)])
        takes_no_body = cluster.provider == "ours"
        if takes_no_body:
            # An official broker fails on a send without a body, though it would compact the message.
            sent.more(link, [GONE])
        sent.more(link, [f"k{number % KEYS}" for number in range(20)])
        # The newest file is not compacted, and no other has more than one of a key.
        wait_held(link, lambda found: len(found) <= KEYS + 2 + 10, "compaction")
        if takes_no_body:
            wait_held(
                link, lambda found: GONE not in {m.keys for m in found}, "a message without a body"
            )
        sent.is_served(link)


@pytest.mark.parametrize(
    ("owners", "hows"),
    by_tier(
        [
            (("official-5.4.0", "ours", "official-5.4.0"), ("SIGKILL", "SIGKILL")),
        ],
        [
            (("official-5.4.0", "official-5.4.0"), ("SIGTERM",)),
            (("ours", "official-5.4.0", "ours"), ("SIGTERM", "SIGTERM")),
            (("official-5.4.0", "ours", "official-5.4.0"), ("SIGTERM", "SIGTERM")),
        ],
    ),
)
def test_each_owner_goes_on_where_the_other_stood(
    owners: tuple[str, ...], hows: tuple[str, ...], jvm_slots: JvmSlots
) -> None:
    sent = Sent()
    with ExitStack() as stack:
        cluster = stack.enter_context(make_cluster(owners[0], jvm_slots, broker_settings=SETTINGS))
        own(cluster, sent)
        for owner, how in zip(owners[1:], hows, strict=True):
            cluster.stop_broker(signal.Signals[how])
            other = make_cluster(owner, jvm_slots, broker_settings=SETTINGS)
            other.take_over(cluster)
            cluster = stack.enter_context(other)
            own(cluster, sent)
        cluster.stop_broker(signal.SIGTERM)
        root = cluster.store / "compaction"
        names = {
            kind: sorted(p.name for p in (root / kind / TOPIC / "0").iterdir() if p.is_file())
            for kind in ("compactionLog", "compactionCq")
        }
        assert names["compactionLog"] == names["compactionCq"]
        positions = json.loads((root / "position-checkpoint").read_text())
        assert 0 < positions["queueOffsetMap"][f"{TOPIC}_0"] < sent.count
