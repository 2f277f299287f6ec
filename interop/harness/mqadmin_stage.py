"""Which mqadmin commands are run, on what? One stage of topics, messages, groups and live clients; the same steps for every make of servers.

Commands are those of the rows AD-01 to AD-11 of the compatibility page, in an order in which each finds what the ones before it left.
All run in one Java process, which holds the clients, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from .clients import PATIENCE_MS, Admin, Producer, PushConsumer
from .cluster import Cluster
from .jvm import LINES
from .mqadmin_text import Masks, Record, parse
from .puppet import Puppet
from .waiting import wait_until

CLUSTER_NAME = "InteropCluster"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
#: Keys that stages set, so that both makes have a topic for traces and the same figures.
BROKER_SETTINGS = {"traceTopicEnable": "true"}

TAGS = ("red", "green")
PER_QUEUE, LATER_PER_QUEUE, QUEUES = 10, 2, 4
FIRST_ROUND = PER_QUEUE * QUEUES
ALL_MESSAGES = FIRST_ROUND + LATER_PER_QUEUE * QUEUES

#: Figures that time, chance or the machine decides; their form is compared.
_FIGURES = (
    r"TPS|Tps|\bRT\b|#RT|^rt$|Latency|TimeMax|TimeMills|HeadWait|pageCacheLock|SPACE|DiskRatio|DirCapacity|^Hour$|PCWait|LOAD"
    r"|^runtime$|24Hour|DistributeTime|costTime|CostTimes|spentTimeMills|START_TIMESTAMP|remainHowManyDataToFlush|ToFlush"
    r"|lastLock|lastPull|lastConsume|pushConsumerStartTime|dropped|^idx$"
)

_EXCEPTION = re.compile(
    r"^(Caused by: )?\w+(\.[\w$]+)+(Exception|Error)(:|$)|^\s+at [\w.$/]+\(", re.MULTILINE
)


@dataclass(frozen=True)
class Step:
    """One command.

    :ivar row: of the compatibility page.
    :ivar text: its words, with names of the stage in braces.
    :ivar lines: of the tool that have it.
    :ivar figures: more fields of which only the form is compared.
    :ivar limit_ms: for commands that go on for ever.
    :ivar refused: official servers refuse it, and the tool prints an exception.
    :ivar quick: part of the small set.
    :ivar remember: name for the message id in its output, for later steps.
    """

    row: str
    text: str
    lines: tuple[str, ...] = LINES
    figures: str = ""
    limit_ms: int = PATIENCE_MS
    refused: bool = False
    quick: bool = False
    remember: str = ""

    @property
    def command(self) -> str:
        """The command's name."""
        return self.text.split()[0]


class Outcome(NamedTuple):
    """What one step gave: records for the comparison, the text for people, and whether it is a failure in itself."""

    step: Step
    records: list[Record]
    output: str
    exception: bool


class Stage:
    """Servers of one make, with clients of one line."""

    def __init__(self, cluster: Cluster, puppet: Puppet) -> None:
        self._cluster = cluster
        self._puppet = puppet
        self._admin = Admin(puppet, cluster.namesrv)
        self._stack = ExitStack()
        self._producer: Producer | None = None
        self._live: PushConsumer | None = None
        broker, port = cluster.broker_address, cluster.broker_address.rpartition(":")[2]
        servers = cluster.namesrv.split(";")
        self.names = {
            "cluster": CLUSTER_NAME,
            "broker": cluster.broker_name,
            "addr": broker,
            "orders": "MqaOrders",
            "single": "MqaSingle",
            "ordered": "MqaOrdered",
            "live": "mqa-live",
            "behind": "mqa-behind",
            "copy": "mqa-copy",
            "sender": "mqa-sender",
            # The first message of all is the only one of its topic; its id is its place.
            "offset_id": f"7F000001{int(port):08X}{0:016X}",
            "began_ms": str(int(time.time() * 1000) - 60_000),
        }
        self._texts = {
            re.escape(broker): "<broker>",
            "|".join(map(re.escape, servers)): "<namesrv>",
            rf"7F000001{int(port):08X}": "<host>",
            **{re.escape(path): "<home>" for path in [*cluster.homes, puppet.home]},
            **{
                rf"(?<!\w){number}(?!\w)": name
                for number, name in (
                    (int(port) - 2, "<fast port>"),
                    (int(port), "<port>"),
                    (int(port) + 1, "<ha port>"),
                    *((one.rpartition(":")[2], "<namesrv port>") for one in servers),
                )
            },
        }

    def run(self, steps: list[Step | Callable[[Stage], None]]) -> Iterator[Outcome]:
        """Do all steps in order."""
        self._admin.wait_broker(self._cluster.broker_name)
        with self._stack:
            for step in steps:
                if isinstance(step, Step):
                    yield self._run_command(step)
                else:
                    step(self)

    def _run_command(self, step: Step) -> Outcome:
        words = step.text.format_map(self.names).split()
        output: str = self._admin.command(*words, limit_ms=step.limit_ms)["output"]
        if step.remember and (message_id := re.search(r"\b[0-9A-F]{32}\b", output)):
            self.names[step.remember] = message_id[0]
        figures = "|".join(filter(None, (_FIGURES, step.figures)))
        records = parse(output, Masks(self._texts, re.compile(figures)))
        return Outcome(step, records, output, bool(_EXCEPTION.search(output)))

    # ----------------------------------------------------------------- what happens between commands

    def start_clients(self) -> None:
        """A producer, and the consumer that lives to the end."""
        namesrv = self._cluster.namesrv
        # With a retry topic from the start, a consumer has it from its first look at the queues and not from a later one.
        retries = [f"%RETRY%{self.names[group]}" for group in ("live", "behind")]
        for topic in retries:
            self._admin.create_topic(self._cluster.broker_address, topic, queues=1)
        for topic in (*retries, self.names["orders"], self.names["single"]):
            self._admin.wait_route(topic)
        self._producer = self._stack.enter_context(
            Producer(self._puppet, namesrv, self.names["sender"], instance="mqa-sender")
        )
        sent = self._producer.send(
            self.names["single"], "single", 1, "queue", queue=0, size=64, tags=["only"], keys=True
        )
        self.names["unique_id"] = sent.sent[0].msg_id
        self._wait_sender()
        self._live = self._stack.enter_context(self._consumer("live", persist_offset_ms=500))
        self._live.wait_assigned(QUEUES)
        self.names["client"] = self._admin.consumer_ids(self.names["live"])[0]

    def _wait_sender(self) -> None:
        """The broker knows the producer: one whose first message was late beats half a minute later."""
        words = ("producerConnection", "-g", self.names["sender"], "-t", self.names["orders"])
        wait_until(
            lambda: not _EXCEPTION.search(self._admin.command(*words)["output"]),
            "the broker knows the producer",
            pause_s=0.2,
        )

    def _consumer(self, group: str, **settings: Any) -> PushConsumer:
        return PushConsumer(
            self._puppet,
            self._cluster.namesrv,
            self.names[group],
            self.names["orders"],
            instance=f"mqa-{group}",
            **settings,
        )

    def fill(self) -> None:
        """Messages on every queue, and a group that took the first of them and left."""
        self._send_to_each_queue(0, PER_QUEUE)
        with self._consumer("behind") as behind:
            assert behind.wait(FIRST_ROUND) == FIRST_ROUND
        self._send_to_each_queue(FIRST_ROUND, LATER_PER_QUEUE)
        assert self._live is not None
        assert self._live.wait(ALL_MESSAGES) == ALL_MESSAGES
        self.wait_committed()

    def _send_to_each_queue(self, first: int, count: int) -> None:
        assert self._producer is not None
        for queue in range(QUEUES):
            self._producer.send(
                self.names["orders"],
                "orders",
                count,
                "queue",
                queue=queue,
                first=first + queue * count,
                size=64,
                tags=list(TAGS),
                keys=True,
            )

    def wait_committed(self) -> None:
        """The live group has committed all it got."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            rows = self._admin.consume_offsets(self.names["live"])
            if rows and all(row[3] == row[4] for row in rows):
                return
            assert time.monotonic() < deadline, f"not committed: {rows}"

    def wait_retry_position(self) -> None:
        """The live group has a position in its retry topic, too: clients report it when their first long pull came back."""
        retry = f"%RETRY%{self.names['live']}"
        wait_until(
            lambda: retry in [row[0] for row in self._admin.consume_offsets(self.names["live"])],
            f"a position in {retry}",
            pause_s=0.2,
        )

    def fresh_figures(self) -> None:
        """Each topic has got a message within the last minute, and the broker counted it, which it does every ten seconds."""
        for text in (
            "sendMessage -t {orders} -p fresh -b {broker} -i 3",
            "sendMessage -t {single} -p fresh -m true",
            "sendMsgStatus -b {broker} -c 1",
        ):
            self._admin.command(*text.format_map(self.names).split())
        wanted = {self.names[name] for name in ("orders", "single", "broker")} | {TRACE_TOPIC}
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            shown = self._admin.command("statsAll", "-a")["output"]
            if wanted <= set(re.findall(r"^\S+", shown, re.MULTILINE)):
                return
            assert time.monotonic() < deadline, shown

    def wait_trace(self) -> None:
        """The trace of a message sent by the tool can be found."""
        self._admin.wait_key(TRACE_TOPIC, self.names["traced"])


T4 = ("4.9.7",)
T5 = ("5.4.0",)
_CHANCE = r"^queueId$|^queueOffset$|^QID$|^Offset$"


def _topics_and_groups() -> list[Step]:
    one, two = "AD-01", "AD-02"
    return [
        Step(one, "updateTopic -c {cluster} -t {orders} -r 4 -w 4", quick=True),
        Step(one, "updateTopic -b {addr} -t {single} -r 1 -w 1 -p 6", quick=True),
        # The tool prints the name server's answer that there is no such setting yet.
        Step(one, "updateTopic -b {addr} -t {ordered} -r 2 -w 2 -o true", refused=True),
        Step(one, "updateTopic -b {addr} -t bad!name", refused=True),
        Step(two, "updateSubGroup -c {cluster} -g {live} -r 3", quick=True),
        Step(two, "updateSubGroup -b {addr} -g {behind} -s true -m false -d true -q 2 -i 0 -w 1"),
        Step(two, "updateSubGroup -b {addr} -g {copy}"),
        Step(two, "updateSubGroup -b {addr} -g {copy} -o true", lines=T5),
    ]


def _views() -> list[Step]:
    one, two, three, four, five = (f"AD-0{number}" for number in range(1, 6))
    return [
        Step(one, "topicList", quick=True),
        Step(one, "topicList -c"),
        Step(one, "topicRoute -t {orders}", quick=True),
        Step(one, "topicRoute -t {orders} -l", lines=T5),
        Step(one, "topicRoute -t nowhere", refused=True),
        Step(one, "topicStatus -t {orders}", quick=True),
        Step(one, "topicClusterList -t {orders}"),
        Step(one, "updateTopicPerm -b {addr} -t {ordered} -p 4"),
        Step(two, "consumerProgress", quick=True),
        Step(two, "consumerProgress -g {live}", quick=True),
        Step(two, "consumerProgress -g {behind}", quick=True),
        Step(two, "consumerProgress -g {live} -s true"),
        Step(two, "consumerProgress -g {live} -t {orders}"),
        Step(two, "consumerConnection -g {live}", quick=True),
        Step(two, "consumerConnection -g {live} -b {addr}"),
        Step(two, "consumerConnection -g {behind}", refused=True),
        Step(two, "consumerStatus -g {live}"),
        Step(two, "consumerStatus -g {live} -i {client}"),
        Step(two, "getConsumerConfig -g {live}"),
        Step(three, "producer -b {addr}", lines=T5),
        Step(three, "producerConnection -g {sender} -t {orders}", quick=True),
        Step(three, "producerConnection -g nobody -t {orders}", refused=True),
        Step(four, "brokerStatus -b {addr}", quick=True),
        Step(four, "brokerStatus -c {cluster}"),
        Step(four, "getBrokerConfig -b {addr}", quick=True),
        Step(four, "getBrokerConfig -c {cluster}"),
        Step(four, "updateBrokerConfig -b {addr} -k waitTimeMillsInSendQueue -v 300", quick=True),
        Step(four, "updateBrokerConfig -c {cluster} -k waitTimeMillsInSendQueue -v 200"),
        Step(four, "updateBrokerConfig -b {addr} -k brokerConfigPath -v x", refused=True),
        Step(four, "brokerConsumeStats -b {addr}", quick=True),
        Step(four, "brokerConsumeStats -b {addr} -l 1 -t 5000"),
        Step(four, "sendMsgStatus -b {broker} -c 3 -s 64", figures=_CHANCE),
        Step(five, "clusterList", quick=True),
        Step(five, "clusterList -m"),
        Step(five, "clusterRT -a 3 -i 60 -c {cluster}", limit_ms=4000),
    ]


def _messages() -> list[Step]:
    row = "AD-06"
    return [
        Step(row, "queryMsgById -t {single} -i {offset_id}", quick=True),
        Step(row, "queryMsgById -t {single} -i {offset_id} -g {live} -d {client}"),
        Step(row, "queryMsgById -t {single} -i {offset_id} -s true"),
        Step(row, "queryMsgByKey -t {orders} -k orders-3", quick=True),
        Step(row, "queryMsgByKey -t {orders} -k nothing", refused=True),
        Step(row, "queryMsgByUniqueKey -t {single} -i {unique_id}", quick=True),
        Step(row, "queryMsgByUniqueKey -t {single} -i {unique_id} -g {live} -d {client}"),
        Step(row, "queryMsgByOffset -t {orders} -b {broker} -i 1 -o 3", quick=True),
        Step(row, "printMsg -t {orders}"),
        Step(row, "printMsg -t {orders} -s red -d true"),
        Step(row, "printMsgByQueue -t {orders} -a {broker} -i 2 -p true -d true -f true"),
        Step(row, "sendMessage -t {single} -p hello -k mk -c mt", quick=True),
        Step(row, "sendMessage -t {single} -p again -b {broker} -i 0"),
        Step(row, "consumeMessage -t {single}", quick=True),
        Step(row, "consumeMessage -t {single} -b {broker} -i 0 -o 1 -c 1"),
        Step(row, "sendMessage -t {single} -p traced -k tk -m true", remember="traced"),
    ]


def _positions() -> list[Step]:
    row = "AD-07"
    return [
        Step(row, "cloneGroupOffset -s {live} -d {copy} -t {orders}"),
        # The group has no retry topic, by which the tool looks for brokers.
        Step("AD-02", "consumerProgress -g {copy}", refused=True),
        Step(row, "resetOffsetByTime -g {behind} -t {orders} -s {began_ms}"),
        Step("AD-02", "consumerProgress -g {behind}"),
        Step(row, "resetOffsetByTime -g {live} -t {orders} -s now", quick=True),
        Step(row, "resetOffsetByTime -g {live} -t {orders} -s -1", lines=T5),
        Step(row, "skipAccumulatedMessage -g {behind} -t {orders}"),
        Step(row, "skipAccumulatedMessage -g {live} -t {orders}", quick=True),
        Step("AD-02", "consumerProgress -g {behind}"),
    ]


def _name_servers() -> list[Step]:
    row = "AD-08"
    return [
        Step(row, "updateKvConfig -s NS1 -k k -v v", quick=True),
        Step(row, "deleteKvConfig -s NS1 -k k"),
        Step(row, "getNamesrvConfig", quick=True),
        Step(row, "updateNamesrvConfig -k orderMessageEnable -v true"),
        Step(row, "updateNamesrvConfig -k kvConfigPath -v x", refused=True),
        Step(row, "updateOrderConf -t {ordered} -m put -v {broker}:2"),
        Step(row, "updateOrderConf -t {ordered} -m get"),
        Step("AD-01", "topicRoute -t {ordered}"),
        Step(row, "updateOrderConf -t {ordered} -m delete"),
        Step(row, "wipeWritePerm -b {broker}", quick=True),
        Step("AD-01", "topicRoute -t {orders}"),
        Step(row, "addWritePerm -b {broker}", quick=True),
    ]


def _upkeep() -> list[Step]:
    nine = "AD-09"
    return [
        Step(nine, "cleanExpiredCQ -b {addr}"),
        Step(nine, "cleanExpiredCQ -c {cluster}"),
        Step(nine, "cleanUnusedTopic -b {addr}"),
        Step(nine, "cleanUnusedTopic -c {cluster}"),
        Step(nine, "deleteExpiredCommitLog -b {addr}", lines=T5),
    ]


def _the_rest() -> list[Step]:
    ten, eleven = "AD-10", "AD-11"
    return [
        Step(ten, "statsAll", quick=True),
        Step(ten, "statsAll -a"),
        Step(ten, "statsAll -t {orders}"),
        Step(ten, "allocateMQ -t {orders} -i 10.0.0.1,10.0.0.2"),
        Step(ten, "checkMsgSendRT -t {single} -a 3 -s 16", figures=_CHANCE),
        Step(eleven, "queryCq -t {orders} -q 0 -i 0 -b {addr}", quick=True),
        Step(eleven, "queryCq -t {orders} -q 0 -i 8 -c 2 -g {live} -b {addr}"),
        Step("AD-01", "deleteTopic -t {ordered} -c {cluster}", quick=True),
        Step("AD-02", "deleteSubGroup -b {addr} -g {copy}"),
        Step("AD-02", "deleteSubGroup -c {cluster} -g {behind} -r true", lines=T5),
        Step("AD-02", "deleteSubGroup -c {cluster} -g {behind}", lines=T4),
        Step("AD-01", "topicList"),
        Step("AD-02", "consumerProgress"),
        # Its threads stay; it is the last.
        Step(ten, "startMonitoring", limit_ms=4000),
    ]


def plan(line: str, quick: bool = False) -> list[Step | Callable[[Stage], None]]:
    """All steps for a tool of one line; a small set of them on demand."""
    steps: list[Step | Callable[[Stage], None]] = [
        *_topics_and_groups(),
        Stage.start_clients,
        Stage.fill,
        *([] if quick else [Stage.wait_retry_position]),
        *_views(),
        *_messages(),
        *([] if quick else [Stage.wait_trace]),
        Step("AD-11", "queryMsgTraceById -i {traced}"),
        *_positions(),
        *_name_servers(),
        *_upkeep(),
        *([] if quick else [Stage.fresh_figures]),
        *_the_rest(),
    ]
    return [
        step
        for step in steps
        if not isinstance(step, Step) or (line in step.lines and (step.quick or not quick))
    ]
