"""What a topic, a group or a client says of itself, as running official clients feel it: permissions, types, namespaces, units, retry policies."""

from __future__ import annotations

import signal
import time
import zlib
from collections import Counter
from typing import Any

import pytest

from interop.harness import checks
from interop.harness.cell import Cell
from interop.harness.clients import Producer, PushConsumer, Row
from interop.harness.columns import by_tier
from interop.harness.kinds import TransactionProducer, WatchedConsumer
from interop.harness.puppet import PuppetError
from interop.harness.waiting import wait_until
from tests.interop.test_java_kinds_of_queues import Link, text
from txrocketmq.codec.record import encode_batch
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.flags import COMPRESSED_FLAG

pytestmark = [pytest.mark.java, pytest.mark.short_columns("ours/5.4.0-json")]
#: Brokers and tools of 4.9.7 know neither attributes of topics nor retry policies.
FIVE = (
    *("ours/5.4.0-json", "ours/5.4.0-rocketmq"),
    *("official-5.4.0/5.4.0-json", "official-5.4.0/5.4.0-rocketmq"),
)
SIZE = 160
QUICK: dict[str, Any] = {"poll_namesrv_ms": 1_000, "heartbeat_ms": 1_000}
INSIST_MS = 90_000


def make_topic(cell: Cell, producer: Producer, topic: str) -> None:
    """By its first message, which is not counted."""
    producer.send_text(topic, "makes the topic")
    cell.admin.wait_route(topic)


def counted(rows: list[Row]) -> list[Row]:
    """Without the message that made the topic."""
    return [row for row in rows if row.seq >= 0]


def firsts(rows: list[Row]) -> list[Row]:
    """Of each message the first copy, where its producer sent it again for want of an answer."""
    found: dict[int, Row] = {}
    for row in sorted(rows, key=lambda row: row.offset):
        found.setdefault(row.seq, row)
    return list(found.values())


def command(cell: Cell, *words: str) -> str:
    """What an operator types, and reads."""
    done = cell.admin.command(*words)
    assert not done["exception"], done["output"]
    output: str = done["output"]
    return output


def restart(cell: Cell, how: signal.Signals = signal.SIGKILL) -> None:
    cell.cluster.restart_broker(how)
    cell.admin.wait_broker(cell.cluster.broker_name)


class TestPermissions:
    """Whether a topic may be read and written is changed while clients use it."""

    def set_permission(self, cell: Cell, permission: int) -> None:
        words = ("-b", cell.cluster.broker_address, "-t", cell.topic, "-p", str(permission))
        assert "success" in command(cell, "updateTopicPerm", *words)

    def is_refused(self, cell: Cell, producer: Producer) -> bool:
        """Whether the producer has learnt by now that it may not write."""
        try:
            producer.send_text(cell.topic, "x")
        except PuppetError as refused:
            return "No route info of this topic" in str(refused)
        return False

    def is_taken(self, cell: Cell, producer: Producer) -> bool:
        try:
            producer.send_text(cell.topic, "x")
        except PuppetError:
            return False
        return True

    def test_they_are_changed_under_running_clients(self, cell: Cell) -> None:
        few = 20
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", retries=0, **QUICK) as producer,
        ):
            make_topic(cell, producer, cell.topic)
            with PushConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
            ) as consumer:
                producer.send(cell.topic, cell.seed, few, size=SIZE)
                assert consumer.wait(few + 1) >= few + 1
                # Write only: messages are taken, and nobody gets them.
                self.set_permission(cell, 2)
                producer.send(cell.topic, cell.seed, few, first=few, size=SIZE)
                with Link(cell.cluster.broker_address) as link:
                    answer = link.pull(cell.topic, 0, group=cell.group)
                assert answer.code == 16
                assert f"the topic[{cell.topic}] pulling message is forbidden" in str(answer.remark)
                assert {row.seq for row in counted(consumer.rows())} <= set(range(few + 4))
                # Read only: what is there comes, nothing more is taken; a restart changes nothing.
                self.set_permission(cell, 4)
                consumer.wait_for_all(range(2 * few))
                wait_until(lambda: self.is_refused(cell, producer), "a send is refused")
                restart(cell)
                wait_until(lambda: self.is_refused(cell, producer), "a send is refused")
                stored = cell.admin.read_topics([cell.topic])[cell.topic]
                # Both again.
                self.set_permission(cell, 6)
                wait_until(lambda: self.is_taken(cell, producer), "a send is taken")
                producer.send(cell.topic, cell.seed, few, first=2 * few, size=SIZE)
                rows = counted(consumer.wait_for_all(range(3 * few)))
        checks.nothing_is_lost(counted(stored), range(2 * few))
        checks.nothing_is_lost(rows, range(3 * few))
        checks.bodies_are_whole(rows, cell.seed, SIZE)

    def test_a_topic_is_made_of_another_one_if_that_may_be_inherited(self, cell: Cell) -> None:
        parent, barren, child = (f"{cell.topic}-{n}" for n in ("parent", "barren", "child"))
        broker = cell.cluster.broker_address
        for topic, permission in ((parent, "7"), (barren, "6")):
            words = ("-b", broker, "-t", topic, "-r", "3", "-w", "3", "-p", permission)
            assert "success" in command(cell, "updateTopic", *words)
            cell.admin.wait_route(topic)
        # Clients look at the queues of TBW102, whatever topic they name.
        settings: dict[str, Any] = {"retries": 0, "topic_queues": 3, **QUICK}
        with (
            Producer(
                cell.puppet, cell.namesrv, cell.group + "-1", topic_key=parent, **settings
            ) as allowed,
            Producer(
                cell.puppet, cell.namesrv, cell.group + "-2", topic_key=barren, **settings
            ) as refused,
        ):
            allowed.send(child, cell.seed, 9, size=SIZE)
            with pytest.raises(PuppetError) as failure:
                refused.send_text(child + "-2", "never")
        assert failure.value.code == 17, failure.value
        cell.admin.wait_route(child)
        restart(cell)
        cell.admin.wait_route(child)
        rows = cell.admin.read_topics([child])[child]
        # Not the permission to inherit further.
        checks.nothing_is_lost(rows, range(9))
        assert {row.queue for row in rows} == {0, 1, 2}
        route = command(cell, "topicRoute", "-t", child)
        assert '"perm":6' in route.replace(" ", ""), route


@pytest.mark.only_columns(*FIVE)
class TestMessageTypes:
    """Topics that say which type of message they are for: brokers keep it for those who act by it."""

    TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")

    def attributes(self, cell: Cell, topic: str) -> str:
        with Link(cell.cluster.broker_address) as link:
            return link.told(R.GET_TOPIC_CONFIG, topic=topic, lo="true").body.decode()

    def update(self, cell: Cell, topic: str, attributes: str) -> str:
        words = ("-b", cell.cluster.broker_address, "-t", topic, "-r", "4", "-w", "4")
        done = cell.admin.command("updateTopic", *words, "-a", attributes)
        output: str = done["output"]
        return output

    def test_each_type_is_kept_and_its_messages_come(self, cell: Cell) -> None:
        few = 20
        topics = {kind: f"{cell.topic}-{kind}" for kind in self.TYPES}
        for kind, topic in topics.items():
            assert "success" in self.update(cell, topic, f"+message.type={kind}")
            cell.admin.wait_route(topic)
        assert "queue.type" in self.update(cell, topics["FIFO"], "+queue.type=BatchCQ")
        refused = self.update(cell, cell.topic, "+message.type=SOMETHING")
        assert "success" not in refused
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer,
            TransactionProducer(
                cell.puppet, cell.namesrv, cell.group + "-t", ["commit", "rollback"], **QUICK
            ) as deciding,
            WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group + "-D", topics["DELAY"], **QUICK
            ) as delayed,
        ):
            producer.send(topics["NORMAL"], cell.seed, few, size=SIZE)
            producer.send(topics["FIFO"], cell.seed, few, "ordered", size=SIZE)
            producer.send(topics["DELAY"], cell.seed, few, size=SIZE, delay_levels=[1])
            deciding.send(topics["TRANSACTION"], cell.seed, few, size=SIZE)
            # A broker takes what does not fit, too: proxies are who refuse it.
            producer.send(topics["FIFO"], cell.seed, 1, first=few, size=SIZE, delay_levels=[1])
            restart(cell)
            delayed.wait_for_all(range(few))
            times = [t for t in delayed.times() if t.seq >= 0]
        assert min(t.stored_ms - t.born_ms for t in times) >= 1_000
        for kind, topic in topics.items():
            assert f'"message.type":"{kind}"' in self.attributes(cell, topic)
        wait_until(
            lambda: len(cell.admin.read_topics([topics["FIFO"]])[topics["FIFO"]]) > few, "all"
        )
        stored = cell.admin.read_topics(list(topics.values()))
        checks.nothing_is_lost(stored[topics["NORMAL"]], range(few))
        checks.nothing_is_lost(stored[topics["FIFO"]], range(few + 1))
        checks.nothing_is_lost(stored[topics["TRANSACTION"]], range(0, few, 2))
        checks.keys_stay_together([r for r in stored[topics["FIFO"]] if r.seq < few], 7)


class TestOrderSettings:
    """Topics whose number of queues operators fix at the name servers, so that no change of the brokers moves an ordered message."""

    @pytest.mark.short_columns("none")
    def test_producers_keep_to_the_queues_that_are_named(self, cell: Cell) -> None:
        few, broker = 40, cell.cluster.broker_name
        settings = ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v")
        command(cell, *settings, "true")
        # Official name servers die with the broker, and come back with what their file says.
        cell.cluster.name_server_settings["orderMessageEnable"] = "true"
        try:
            with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
                make_topic(cell, producer, cell.topic)
                assert len(producer.queues(cell.topic)) == 4
                order = ("updateOrderConf", "-t", cell.topic, "-m")
                command(cell, *order, "put", "-v", f"{broker}:2")
                wait_until(
                    lambda: producer.queues(cell.topic) == [(broker, 0), (broker, 1)], "two queues"
                )
                # The producer itself looks every second.
                wait_until(lambda: self.spreads_over(cell, producer) == {0, 1}, "two queues")
                producer.send(cell.topic, cell.seed, few, "ordered", size=SIZE)
                restart(cell)
                producer.send(
                    cell.topic, cell.seed, few, "ordered", first=few, size=SIZE, insist_ms=INSIST_MS
                )
                rows = counted(cell.admin.read_topics([cell.topic])[cell.topic])
                command(cell, *order, "delete")
                wait_until(lambda: len(producer.queues(cell.topic)) == 4, "four queues again")
        finally:
            del cell.cluster.name_server_settings["orderMessageEnable"]
            command(cell, *settings, "false")
        checks.nothing_is_lost(rows, range(2 * few))
        assert {row.queue for row in rows} == {0, 1}
        checks.keys_stay_together(firsts(rows), 7)

    def spreads_over(self, cell: Cell, producer: Producer) -> set[int]:
        """The queues that messages in a row go to; so many that none of four is left out by chance."""
        return {int(producer.send_text(cell.topic, "x")["queue"]) for _ in range(30)}


class TestNamespaces:
    """Clients of a namespace: ``name space%topic`` at the broker, plain names at both ends."""

    def test_a_namespace_keeps_its_messages_to_itself(self, cell: Cell) -> None:
        few, space = 40, f"Space-{cell.group}"
        inside, dead = f"{space}%{cell.topic}", f"%DLQ%{space}%{cell.group}"
        retry = f"%RETRY%{space}%{cell.group}"
        cell.admin.create_topic(cell.cluster.broker_address, retry, 1)
        cell.admin.wait_route(retry)
        own: dict[str, Any] = {"namespace": space, **QUICK}
        with (
            Producer(cell.puppet, cell.namesrv, cell.group + "-p", **own) as producer,
            Producer(cell.puppet, cell.namesrv, cell.group + "-q", **QUICK) as outside,
        ):
            make_topic(cell, outside, cell.topic)
            producer.send_text(cell.topic, "makes the topic")
            cell.admin.wait_route(inside)
            with (
                WatchedConsumer(
                    cell.puppet,
                    cell.namesrv,
                    cell.group,
                    cell.topic,
                    fail_times=[0, 1, 99],
                    max_reconsume=1,
                    retry_level=1,
                    **own,
                ) as consumer,
                WatchedConsumer(
                    cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK
                ) as stranger,
            ):
                consumer.wait(1)
                stranger.wait(1)
                producer.send(cell.topic, cell.seed, few, size=SIZE)
                outside.send(cell.topic, cell.seed, few, first=1000, size=SIZE)
                consumer.wait(few // 2)
                restart(cell)
                producer.send(cell.topic, cell.seed, few, first=few, size=SIZE, insist_ms=INSIST_MS)
                consumer.wait_for_all(range(2 * few))
                due = {seq for seq in range(2 * few) if seq % 3}
                wait_until(
                    lambda: due <= {row.seq for row in consumer.rows() if row.reconsumed},
                    "retries",
                )
                rows = counted(consumer.rows())
                stranger.wait_for_all(range(1000, 1000 + few))
                others = counted(stranger.rows())
        cell.admin.wait_route(dead)
        lost = set(range(2, 2 * few, 3))
        wait_until(
            lambda: lost <= {row.seq for row in cell.admin.read_topics([dead])[dead]},
            "dead letters",
        )
        buried = cell.admin.read_topics([dead])[dead]
        checks.nothing_is_lost(rows, range(2 * few))
        checks.bodies_are_whole(rows + buried, cell.seed, SIZE)
        checks.nothing_is_lost(buried, lost)
        checks.nothing_is_lost(others, range(1000, 1000 + few))
        stored = cell.admin.read_topics([inside, cell.topic])
        checks.nothing_is_lost(counted(stored[inside]), range(2 * few))
        checks.nothing_is_lost(counted(stored[cell.topic]), range(1000, 1000 + few))


class TestUnits:
    """Clients in unit mode mark their topics and retry topics; name servers list them."""

    def listed(self, cell: Cell, code: int) -> str:
        with Link(cell.namesrv) as link:
            return link.told(code).body.decode()

    def test_their_topics_are_listed(self, cell: Cell) -> None:
        with (
            Producer(
                cell.puppet, cell.namesrv, cell.group + "-p", unit_mode=True, **QUICK
            ) as producer,
            Producer(cell.puppet, cell.namesrv, cell.group + "-q", **QUICK) as plain,
        ):
            make_topic(cell, producer, cell.topic)
            make_topic(cell, plain, cell.topic + "-plain")
            with WatchedConsumer(
                cell.puppet, cell.namesrv, cell.group, cell.topic, unit_mode=True, **QUICK
            ) as consumer:
                producer.send(cell.topic, cell.seed, 20, size=SIZE)
                consumer.wait_for_all(range(20))
                retry = f'"%RETRY%{cell.group}"'
                for how in (None, signal.SIGTERM):
                    if how is not None:
                        restart(cell, how)
                    wait_until(
                        lambda: f'"{cell.topic}"' in self.listed(cell, R.GET_UNIT_TOPIC_LIST),
                        "unit topics",
                    )
                    wait_until(
                        lambda: retry in self.listed(cell, R.GET_HAS_UNIT_SUB_TOPIC_LIST),
                        "topics with subscriptions of units",
                    )
                    assert retry in self.listed(cell, R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
                    listed = self.listed(cell, R.GET_UNIT_TOPIC_LIST)
                    assert f'"{cell.topic}-plain"' not in listed
                    assert retry not in listed
                producer.send(cell.topic, cell.seed, 20, first=20, size=SIZE, insist_ms=INSIST_MS)
                rows = counted(consumer.wait_for_all(range(40)))
        checks.nothing_is_lost(rows, range(40))
        checks.bodies_are_whole(rows, cell.seed, SIZE)


@pytest.mark.only_columns(*FIVE)
class TestRetryPolicies:
    """Groups may say how long their retries wait: brokers keep it for proxies, and wait as the level says."""

    POLICIES = (
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":60000,"max":120000,"multiplier":3}}',
        '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[60000,70000]}}',
    )

    @pytest.mark.parametrize("kind", by_tier(["exponential"], ["customized"]))
    def test_it_is_kept_and_levels_count_all_the_same(self, cell: Cell, kind: str) -> None:
        number = ["exponential", "customized"].index(kind)
        few, broker = 20, cell.cluster.broker_address
        words = ("-b", broker, "-g", cell.group, "-p", self.POLICIES[number])
        assert "success" in command(cell, "updateSubGroup", *words)
        with Producer(cell.puppet, cell.namesrv, cell.group + "-p", **QUICK) as producer:
            make_topic(cell, producer, cell.topic)
            with WatchedConsumer(
                cell.puppet,
                cell.namesrv,
                cell.group,
                cell.topic,
                fail_times=[1],
                retry_level=1,
                **QUICK,
            ) as consumer:
                consumer.wait(1)
                restart(cell)
                producer.send(cell.topic, cell.seed, few, size=SIZE, insist_ms=INSIST_MS)
                wait_until(
                    lambda: sum(row.reconsumed == 1 for row in consumer.rows()) >= few, "retries"
                )
                rows, times = counted(consumer.rows()), consumer.times()
        came = Counter((row.seq, row.reconsumed) for row in rows)
        assert set(came) == {(seq, tries) for seq in range(few) for tries in (0, 1)}
        first = {t.seq: t.stored_ms for t in times if t.reconsumed == 0}
        waited = [t.stored_ms - first[t.seq] for t in times if t.reconsumed == 1]
        assert 1_000 <= min(waited) <= max(waited) < 30_000
        kept = command(cell, "getConsumerConfig", "-g", cell.group).replace(" ", "")
        policy = ("initial=60000,max=120000,multiplier=3", "next=[60000,70000]")[number]
        assert policy in kept, kept


class TestCompressedBatches:
    """Batches whose bodies are compressed one by one: no official client sends such, and all can read them."""

    def test_every_message_is_unpacked(self, cell: Cell) -> None:
        few, broker = 16, cell.cluster.broker_address
        cell.admin.create_topic(broker, cell.topic, 1)
        cell.admin.wait_route(cell.topic)
        bodies = [checks.expected_body(cell.seed, seq, SIZE) for seq in range(few)]
        properties = [text(UNIQ_KEY=f"id-{seq}", seq=str(seq)).encode() for seq in range(few)]
        batch = encode_batch(
            [
                (0, zlib.compress(body), props)
                for body, props in zip(bodies, properties, strict=True)
            ]
        )
        with Link(broker) as link:
            link.told(
                R.SEND_BATCH_MESSAGE,
                batch,
                a="P",
                b=cell.topic,
                c="TBW102",
                d=4,
                e=0,
                f=COMPRESSED_FLAG,
                g=int(time.time() * 1000),
                h=0,
                i=text(WAIT="true"),
                j=0,
                k="false",
                m="true",
            )
        restart(cell)
        with PushConsumer(cell.puppet, cell.namesrv, cell.group, cell.topic, **QUICK) as consumer:
            rows = consumer.wait_for_all(range(few))
        checks.bodies_are_whole(rows, cell.seed, SIZE)
        checks.nothing_is_lost(rows, range(few))
        checks.stored_in_send_order(rows)
        checks.nothing_came_twice(rows)
