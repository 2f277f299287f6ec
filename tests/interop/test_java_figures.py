"""What brokers tell of each kind of message: after the same load of official clients, ours gives the figures of official 5.4.0."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from interop.harness.clients import Admin, Producer
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.jvm import JvmSlots
from interop.harness.kinds import TransactionProducer, WatchedConsumer
from interop.harness.puppet import Puppet, PuppetPool
from interop.harness.waiting import wait_until
from tests.interop.test_java_kinds_of_queues import Link
from txrocketmq.model.codes import RequestCode as R

pytestmark = pytest.mark.java

MODEL = "official-5.4.0"
CLUSTER = "InteropCluster"
SIZE, FEW, SEED = 160, 24, "figures-seed"
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
PLAIN, LEVELS, TIMED, HALVES, FAILING, POPPED = (
    f"Figures-{kind}" for kind in ("plain", "levels", "timed", "halves", "failing", "popped")
)
TOPICS = (PLAIN, LEVELS, TIMED, HALVES, FAILING, POPPED)
SYSTEM_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    f"rmq_sys_REVIVE_LOG_{CLUSTER}",
)
SAMPLED_S = 10.0
"""How often brokers note a figure for the sums of the last minute."""


def group_of(topic: str) -> str:
    return f"{topic}-group"


class Seen(NamedTuple):
    """The runtime info, and the sum and the times of each statistic that there is."""

    info: dict[str, str]
    stats: dict[str, tuple[int, int]]


def keys_of_interest() -> list[tuple[str, str]]:
    """Names and keys of statistics that the load moves, or that must not be there."""
    found = [
        (name, topic)
        for topic in (*TOPICS, *SYSTEM_TOPICS)
        for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
    ]
    for topic in TOPICS:
        group = group_of(topic)
        for place in (topic, f"%RETRY%{group}", f"%DLQ%{group}"):
            found += [(name, place) for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")]
            found += [(name, f"{place}@0") for name in ("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE")]
            found += [
                ("TOPIC_PUT_LATENCY", f"0@{place}"),
                ("GROUP_GET_LATENCY", f"0@{place}@{group}"),
            ]
            found += [(name, f"{place}@0@{group}") for name in ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE")]
            found += [
                (name, f"{place}@{group}")
                for name in (
                    "GROUP_GET_NUMS",
                    "GROUP_GET_SIZE",
                    "SNDBCK_PUT_NUMS",
                    "DLQ_PUT_NUMS",
                    "GROUP_CK_NUMS",
                    "GROUP_ACK_NUMS",
                )
            ]
    kinds = (
        "PUT_NUMS",
        "GET_NUMS",
        "PUT_NUMS_WITHOUT_SYSTEM_TOPIC",
        "GET_NUMS_WITHOUT_SYSTEM_TOPIC",
        "CK_NUMS",
        "ACK_NUMS",
    )
    return list(dict.fromkeys([*found, *((f"BROKER_{kind}", CLUSTER) for kind in kinds)]))


class Watcher:
    """Asks a broker for all of these again and again, and keeps the largest sum of each: sums are those of a minute."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.stats: dict[str, tuple[int, int]] = {}
        self._changed = time.monotonic()

    def look(self) -> None:
        for name, key in keys_of_interest():
            answer = self._link.ask(R.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            if answer.code != 0:
                continue
            found = json.loads(answer.body)["statsMinute"]
            times = round(found["sum"] / found["avgpt"]) if found["avgpt"] else 0
            known = self.stats.get(f"{name} {key}")
            if known is None or found["sum"] > known[0]:
                self.stats[f"{name} {key}"] = found["sum"], times
                self._changed = time.monotonic()

    def is_settled(self) -> bool:
        """Whether nothing new came for longer than figures are noted."""
        self.look()
        return time.monotonic() - self._changed > 1.5 * SAMPLED_S


def figures_of(servers: str, line: str, puppets: PuppetPool, slots: JvmSlots) -> Seen:
    puppet = puppets.get(line, "JSON")
    with puppet.in_use(), make_cluster(servers, slots) as cluster:
        admin = Admin(puppet, cluster.namesrv)
        admin.wait_broker(cluster.broker_name)
        try:
            with Link(cluster.broker_address) as link:
                watcher = Watcher(link)
                load(cluster, puppet, admin, watcher)
                wait_until(
                    lambda: is_measured(link), "the latencies of a minute are there", 120, pause_s=1
                )
                table: dict[str, str] = json.loads(link.told(R.GET_BROKER_RUNTIME_INFO).body)[
                    "table"
                ]
        except BaseException as failure:
            failure.add_note(cluster.logs())
            raise
        admin.forget()
    return Seen(table, watcher.stats)


def load(cluster: Cluster, puppet: Puppet, admin: Admin, watcher: Watcher) -> None:
    """Some of each kind, and wait until all of it has come to its end."""
    topics = [topic for topic in TOPICS if topic != POPPED or puppet.line == "5.4.0"]
    for topic in topics:
        for name in (topic, f"%RETRY%{group_of(topic)}"):
            admin.create_topic(cluster.broker_address, name, 1)
            admin.wait_route(name)
    if POPPED in topics:
        words = (
            "-b",
            cluster.broker_address,
            "-t",
            POPPED,
            "-g",
            group_of(POPPED),
            "-m",
            "POP",
            "-q",
            "0",
        )
        assert "success" in admin.command("setConsumeMode", *words)["output"]
    settings: dict[str, dict[str, Any]] = {
        FAILING: {"fail_times": [0, 1, 99], "max_reconsume": 1, "retry_level": 1},
        POPPED: {"pop_invisible_ms": 10_000},
    }
    with (
        Producer(puppet, cluster.namesrv, "figures-p", **QUICK) as producer,
        TransactionProducer(
            puppet, cluster.namesrv, "figures-t", ["commit", "rollback", "unknown:commit"], **QUICK
        ) as deciding,
        ExitStack() as stack,
    ):
        consumers = {
            topic: stack.enter_context(
                WatchedConsumer(
                    puppet,
                    cluster.namesrv,
                    group_of(topic),
                    topic,
                    **settings.get(topic, {}),
                    **QUICK,
                )
            )
            for topic in topics
        }
        for consumer in consumers.values():
            consumer.wait_assigned(1)
        asked: dict[str, dict[str, Any]] = {
            LEVELS: {"delay_levels": [1]},
            TIMED: {"timed": ["TIMER_DELAY_MS=1500"]},
        }
        for topic in topics:
            if topic == HALVES:
                deciding.send(topic, SEED, FEW, size=SIZE)
            else:
                producer.send(topic, SEED, FEW, size=SIZE, **asked.get(topic, {}))
        due = dict.fromkeys(topics, FEW)
        due[FAILING] += FEW * 2 // 3
        due[HALVES] = FEW * 2 // 3

        def came() -> bool:
            watcher.look()
            return all(
                consumer.wait_rows(due[topic], 100) >= due[topic]
                for topic, consumer in consumers.items()
            )

        wait_until(came, "everything comes", pause_s=1)
        dead = f"%DLQ%{group_of(FAILING)}"
        admin.wait_route(dead)
        wait_until(
            lambda: admin.offsets(dead, cluster.broker_name, 0)[1] == FEW // 3,
            "dead letters",
            pause_s=1,
        )
        # What consumers did is told while they are there.
        wait_until(watcher.is_settled, "the figures stand still", 90, pause_s=1)


def is_measured(link: Link) -> bool:
    """Whether a whole minute is over: before, brokers have no percentiles and no distribution of times."""
    table = json.loads(link.told(R.GET_BROKER_RUNTIME_INFO).body)["table"]
    return str(table["putMessageDistributeTime"]) != "null"


#: What a machine, its load and the moment decide; their form is compared.
VARYING = {
    *("bootTimestamp", "runtime", "earliestMessageTimeStamp", "commitLogDirCapacity"),
    *("commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogDiskRatio_<path>"),
    *("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"),
    *("timerEnqueueTps", "timerDequeueTps", "pageCacheLockTimeMills"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("litePullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueHeadWaitTimeMills", "remainHowManyDataToFlush", "dispatchBehindBytes"),
    *("putLatency99", "putLatency999", "putMessageEntireTimeMax", "getMessageEntireTimeMax"),
    "putMessageDistributeTime",
    # Records of POP wait in the official timer, and are stored a second time.
    *("commitLogMaxOffset", "putMessageTimesTotal", "putMessageSizeTotal", "putMessageAverageSize"),
}
#: In milliseconds; nothing of so small a load may take longer, whoever serves it.
TIMES_MS = ("putLatency99", "putLatency999", "putMessageEntireTimeMax", "getMessageEntireTimeMax")
LONGEST_MS = 5_000.0
#: What brokers of ours tell besides.
BESIDES = {
    *("brokerVersion", "getTransferedTps"),
    *("transactionChecks", "transactionsCommitted", "transactionsRolledBack"),
}
#: How often somebody asked, and records that are gathered or stored another number of times.
OWN_WAY = re.compile(
    r"(BROKER|GROUP)_CK_NUMS|BROKER_(PUT|GET)_NUMS |_LATENCY |REVIVE_LOG|TRANS_OP_HALF"
)


def by_name(info: dict[str, str]) -> dict[str, str]:
    return {re.sub("_/.*", "_<path>", key): value for key, value in info.items()}


def form_of(value: str) -> str:
    """A text with its numbers left out; several rates in a row are as one."""
    return re.sub(r"(#\s*)+", "# ", re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "#", value)).strip()


def expected(line: str) -> dict[str, int]:
    """What this load is, in figures of each kind."""
    failing, halves = group_of(FAILING), FEW * 2 // 3
    found = {
        f"TOPIC_PUT_NUMS {PLAIN}": FEW,
        f"GROUP_GET_NUMS {PLAIN}@{group_of(PLAIN)}": FEW,
        # Two thirds of what fails waits for a level, too.
        "TOPIC_PUT_NUMS SCHEDULE_TOPIC_XXXX": FEW + FEW * 2 // 3,
        f"TOPIC_PUT_NUMS {LEVELS}": FEW,
        f"GROUP_GET_NUMS {LEVELS}@{group_of(LEVELS)}": FEW,
        "TOPIC_PUT_NUMS rmq_sys_wheel_timer": FEW,
        f"TOPIC_PUT_NUMS {TIMED}": FEW,
        f"GROUP_GET_NUMS {TIMED}@{group_of(TIMED)}": FEW,
        f"TOPIC_PUT_NUMS {HALVES}": halves,
        f"GROUP_GET_NUMS {HALVES}@{group_of(HALVES)}": halves,
        f"TOPIC_PUT_NUMS %RETRY%{failing}": FEW * 2 // 3,
        f"GROUP_GET_NUMS %RETRY%{failing}@{failing}": FEW * 2 // 3,
        # Those that die were given back twice.
        f"SNDBCK_PUT_NUMS {FAILING}@{failing}": FEW,
    }
    if line == "5.4.0":
        found |= {
            f"TOPIC_PUT_NUMS {POPPED}": FEW,
            f"GROUP_GET_NUMS {POPPED}@{group_of(POPPED)}": FEW,
            f"GROUP_ACK_NUMS {POPPED}@{group_of(POPPED)}": FEW,
            f"BROKER_ACK_NUMS {CLUSTER}": FEW,
        }
    return found


@pytest.mark.short_columns("none")
@pytest.mark.parametrize("line", ["5.4.0", "4.9.7"])
def test_figures_of_each_kind_are_the_official_ones(
    line: str, clusters: dict[str, Cluster], puppets: PuppetPool, jvm_slots: JvmSlots
) -> None:
    close_all(clusters)
    model, ours = (figures_of(servers, line, puppets, jvm_slots) for servers in (MODEL, "ours"))
    for seen in (model, ours):
        wanted = expected(line)
        assert {name: seen.stats[name][0] for name in wanted} == wanted
    # The same statistics, with the same sums; dead letters by group are told by ours alone.
    dead = f"DLQ_PUT_NUMS {FAILING}@{group_of(FAILING)}"
    counted = {name for name, (total, _) in ours.stats.items() if total > 0}
    assert counted - set(model.stats) == {dead}
    assert ours.stats[dead][0] == FEW // 3
    assert set(model.stats) <= set(ours.stats)
    differing = {
        name: (total, ours.stats[name][0])
        for name, (total, _) in model.stats.items()
        if not OWN_WAY.search(name) and ours.stats[name][0] != total
    }
    assert not differing, differing
    for name, (total, _) in ours.stats.items():
        if "_LATENCY " in name:
            assert total <= FEW * LONGEST_MS, name
        elif OWN_WAY.search(name) and name in model.stats:
            assert total > 0, name
    official, own = by_name(model.info), by_name(ours.info)
    assert set(official) - set(own) == set()
    assert set(own) - set(official) == BESIDES
    assert own["transactionsCommitted"] == str(FEW * 2 // 3)
    assert own["transactionsRolledBack"] == str(FEW // 3)
    assert int(own["transactionChecks"]) >= FEW // 3
    unlike = {
        key: (value, own[key])
        for key, value in official.items()
        if (form_of(value) != form_of(own[key]) if key in VARYING else value != own[key])
    }
    assert not unlike, unlike
    for info in (official, own):
        for key in TIMES_MS:
            assert 0 <= float(info[key]) <= LONGEST_MS, (key, info[key])
        # Every put is in one of the classes of time.
        distribution = re.findall(r"\]:(\d+)", info["putMessageDistributeTime"])
        assert len(distribution) > 8
    # What is stored is counted: in the log, and by its size.
    assert int(own["putMessageSizeTotal"]) <= int(own["commitLogMaxOffset"])
    assert int(own["putMessageTimesTotal"]) <= int(official["putMessageTimesTotal"])
