"""Commands of operators that are several operations, that print one thing after the other, or that read and write files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from admin_world import CLUSTER, AdminWorld, address
from click.testing import CliRunner
from consumer_world import TOPIC, Diary
from test_admin import typed
from twisted.internet.defer import Deferred

from txrocketmq.cli.admin_monitor import Monitor
from txrocketmq.cli.main import main
from txrocketmq.cli.plain import plain
from txrocketmq.codec.record import encode_record
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.message import Message, MessageRecord

A, B = address(2), address(3)


@pytest.fixture(scope="module")
def world() -> AdminWorld:
    """Two brokers; every test has topics and groups of its own."""
    return AdminWorld(2)


def make(world: AdminWorld, topic: str, queues: int = 1, **options: str) -> None:
    """A topic at the first broker."""
    numbers = {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    typed(world, "updateTopic", topic=topic, brokerAddr=A, **numbers, **options)
    world.network.run(0.5)


# --------------------------------------------------------------------- messages


def test_messages_are_sent_and_printed(world: AdminWorld) -> None:
    make(world, "Printed", 2)
    sent = [
        typed(
            world,
            "sendMessage",
            topic="Printed",
            body=f"häll {number}",
            key=f"k{number}",
            tags="AB"[number % 2],
            broker="broker-2",
            qid=str(number % 2),
        )
        for number in range(5)
    ]
    assert [one["queue"]["queue_id"] for one in sent] == [0, 1, 0, 1, 0]
    # A broker without a queue chooses none, as in mqadmin.
    other = typed(world, "sendMessage", topic="Printed", body="x", broker="nobody", tags="C")
    assert other["queue"]["broker_name"] == "broker-2"
    shown = typed(world, "printMsg", topic="Printed", subExpression="A || B")
    assert [one["body"] for one in shown] == [f"häll {n}" for n in (0, 2, 4, 1, 3)]
    assert {one["properties"]["KEYS"] for one in shown} == {f"k{n}" for n in range(5)}
    assert [one["msg_id"] for one in shown] == [sent[n]["offset_msg_id"] for n in (0, 2, 4, 1, 3)]
    silent = typed(world, "printMsg", topic="Printed", printBody="false")
    assert [one["body"] for one in silent] == [None] * 6
    latin = typed(world, "printMsg", topic="Printed", charsetName="latin-1", subExpression="A")
    assert latin[0]["body"] == "häll 0".encode().decode("latin-1")
    with pytest.raises(MQClientError, match="no character set"):
        typed(world, "printMsg", topic="Printed", charsetName="none")
    where = {"topic": "Printed", "brokerName": "broker-2", "queueId": "0"}
    assert typed(world, "printMsgByQueue", **where) == []
    both = typed(world, "printMsgByQueue", **where, printMsg="true", calculate="true")
    assert [one.get("queue_offset") for one in both[:3]] == [0, 1, 2]
    assert next(one for one in both if "tag" in one) == {"tag": "A", "count": 3}
    some = typed(world, "consumeMessage", **where, offset="1", MessageNumber="1")
    assert [one["body"] for one in some] == ["häll 2"]
    assert len(typed(world, "consumeMessage", topic="Printed")) == 6
    later = typed(world, "consumeMessage", topic="Printed", beginTimestamp=_ms_from_now(world))
    assert later == []
    for wrong, word in (
        ({"queueId": "0"}, "-b"),
        ({"offset": "1"}, "-i"),
        ({"MessageNumber": "0"}, "-c"),
    ):
        with pytest.raises(MQClientError, match=word):
            typed(world, "consumeMessage", topic="Printed", **wrong)
    with pytest.raises(MQClientError, match="-b"):
        typed(world, "sendMessage", topic="Printed", body="x", qid="1")


def _ms_from_now(world: AdminWorld) -> str:
    return str(int(world.clock.seconds() * 1000) + 60_000)


def test_bodies_are_shown_in_a_character_set(world: AdminWorld) -> None:
    make(world, "Latin")
    message = Message("Latin", "häll".encode("latin-1"))
    sent = world.wait(world.admin.messages.send(message))
    where = {"topic": "Latin", "brokerName": "broker-2", "queueId": "0", "offset": "0"}
    for found in (
        typed(world, "queryMsgByOffset", **where, bodyFormat="latin-1"),
        typed(world, "queryMsgById", topic="Latin", msgId=sent.offset_msg_id, bodyFormat="latin-1"),
    ):
        assert found["body"] == "häll"
    assert typed(world, "queryMsgByOffset", **where)["body"] == "h\\xe4ll"
    where["offset"] = "7"
    assert typed(world, "queryMsgByOffset", **where, bodyFormat="latin-1") is None


def test_groups_that_are_far_behind_are_shown(world: AdminWorld) -> None:
    make(world, "Behind")
    consumer = world.consumer(Diary(), group="G-behind", subscriptions="Behind")
    producer = world.producer()
    world.wait(producer.send(Message("Behind", b"0")))
    world.network.run(6)
    world.wait(consumer.stop())
    for number in range(3):
        world.wait(producer.send(Message("Behind", b"%d" % number)))

    def queues(**level: str) -> list[str]:
        found = typed(world, "brokerConsumeStats", brokerAddr=A, **level)["consume_stats_list"]
        tables = [stats["offset_table"] for one in found for stats in one.get("G-behind", ())]
        return [queue for table in tables for queue in table if "/Behind/" in queue]

    assert queues() == queues(level="3") == ["broker-2/Behind/0"]
    assert queues(level="4") == []


def test_a_message_is_sent_again_and_tried(world: AdminWorld) -> None:
    make(world, "Again")
    sent = typed(world, "sendMessage", topic="Again", body="once", key="k")
    again = typed(
        world, "queryMsgById", topic="Again", msgId=sent["offset_msg_id"], sendMessage="true"
    )
    assert again["queue_offset"] == sent["queue_offset"] + 1
    assert [one["body"] for one in typed(world, "printMsg", topic="Again")] == ["once", "once"]
    with pytest.raises(MQClientError, match="no message"):
        typed(world, "queryMsgById", topic="Again", msgId="0" * 32, sendMessage="true")
    diary = Diary()
    consumer = world.consumer(diary, group="G-again", subscriptions="Again")
    world.until(lambda: len(diary.seen) == 2)
    who = {"consumerGroup": "G-again", "clientId": consumer.instance.client_id, "topic": "Again"}
    for name, msg_id in (
        ("queryMsgById", sent["offset_msg_id"]),
        ("queryMsgByUniqueKey", sent["msg_id"]),
    ):
        tried = typed(world, name, msgId=msg_id, **who)
        assert tried["consume_result"] == "CR_SUCCESS"
    assert diary.bodies == [b"once"] * 4
    members = typed(world, "consumer", consumerGroup="G-again")
    assert list(members["members"]) == [consumer.instance.client_id]
    assert members["connections"]["subscription_table"]["Again"]["sub_string"] == "*"
    world.wait(consumer.stop())


def test_ids_are_read(world: AdminWorld) -> None:
    sent = typed(world, "sendMessage", topic=TOPIC, body="x")
    told = typed(world, "DecodeMessageId", messageId=sent["offset_msg_id"])
    assert told["address"] in (A, B)
    with pytest.raises(MQClientError):
        typed(world, "DecodeMessageId", messageId="none")


# --------------------------------------------------------------------- topics and groups


def test_a_group_gets_the_settings_that_were_typed(world: AdminWorld) -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 7000}}
    done = typed(
        world,
        "updateSubGroup",
        clusterName=CLUSTER,
        groupName="G-typed",
        retryMaxTimes="3",
        consumeMessageOrderly="true",
        groupRetryPolicy=json.dumps(policy),
    )
    assert sorted(done) == [A, B]
    found = typed(world, "getConsumerConfig", groupName="G-typed")["broker-2"]
    assert (found["retry_max_times"], found["consume_message_orderly"]) == (3, True)
    assert found["group_retry_policy"]["exponential_retry_policy"]["initial"] == 7000
    # What is not said is as mqadmin has it, which is not as a broker makes groups by itself.
    assert (found["consume_from_min_enable"], found["consume_broadcast_enable"]) == (False, False)
    typed(world, "updateSubGroup", brokerAddr=A, groupName="G-typed")
    found = typed(world, "getConsumerConfig", groupName="G-typed")
    assert [found[name]["retry_max_times"] for name in ("broker-2", "broker-3")] == [16, 3]


def test_lists_come_from_files(world: AdminWorld, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"topicName": f"Listed-{n}", "writeQueueNums": n} for n in (1, 2)]))
    assert typed(world, "updateTopicList", brokerAddr=A, filename=str(path)) == [A]
    world.network.run(0.5)
    [data] = typed(world, "topicRoute", topic="Listed-2")["queue_datas"]
    assert data["write_queue_nums"] == 2
    path.write_text(json.dumps([{"groupName": "G-listed", "retryMaxTimes": 7}]))
    assert sorted(typed(world, "updateSubGroupList", clusterName=CLUSTER, filename=str(path))) == [
        A,
        B,
    ]
    assert (
        typed(world, "getConsumerConfig", groupName="G-listed")["broker-3"]["retry_max_times"] == 7
    )
    with pytest.raises(MQClientError, match="cannot be read"):
        typed(world, "updateTopicList", brokerAddr=A, filename=str(tmp_path / "none"))


def test_the_order_of_a_topic(world: AdminWorld) -> None:
    typed(world, "updateOrderConf", topic="Fixed", method="put", orderConf="broker-2:4")
    assert typed(world, "updateOrderConf", topic="Fixed", method="get") == "broker-2:4"
    typed(world, "updateOrderConf", topic="Fixed", method="delete")
    with pytest.raises(BrokerError):
        typed(world, "updateOrderConf", topic="Fixed", method="get")
    for wrong in ({"method": "put"}, {"method": "take"}):
        with pytest.raises(MQClientError):
            typed(world, "updateOrderConf", topic="Fixed", **wrong)


def test_topics_of_units_and_clusters(world: AdminWorld) -> None:
    make(world, "OfAUnit", unit="true", hasUnitSub="true")
    [data] = typed(world, "topicRoute", topic="OfAUnit")["queue_datas"]
    assert data["topic_sys_flag"] == 3
    table = typed(world, "topicList", clusterModel=True)
    assert {"cluster": CLUSTER, "topic": "OfAUnit", "group": ""} in table


def test_static_topics_grow_and_move(world: AdminWorld, tmp_path: Path) -> None:
    made = typed(world, "updateStaticTopic", topic="S", totalQueueNum="2", brokers="broker-2")
    world.network.run(0.5)
    moved = typed(world, "remappingStaticTopic", topic="S", clusters=CLUSTER)
    assert (moved["broker_to_map_in"], moved["broker_to_map_out"]) == (["broker-3"], ["broker-2"])
    stretches = moved["broker_config_map"]["broker-3"]["mapping_detail"]["hosted_queues"]
    [[old, new]] = stretches.values()
    assert (old["bname"], new["bname"], new["logic_offset"]) == ("broker-2", "broker-3", 10_000)
    assert made["epoch"] < moved["epoch"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"topic": "S2", "type": "CREATE_OR_UPDATE", "epoch": 5}))
    with pytest.raises(MQClientError, match="not for S"):
        typed(world, "updateStaticTopic", topic="S", totalQueueNum="3", mapFile=str(plan))
    with pytest.raises(MQClientError, match="no broker"):
        typed(world, "remappingStaticTopic", topic="S", clusters="none")
    with pytest.raises(MQClientError, match="either"):
        typed(world, "remappingStaticTopic", topic="S")


# --------------------------------------------------------------------- files


def test_exports_are_files_as_mqadmin_writes_them(world: AdminWorld, tmp_path: Path) -> None:
    make(world, "Exported", 3)

    def exported(name: str, **options: Any) -> tuple[str, Any]:
        path = Path(typed(world, name, filePath=str(tmp_path / "new"), **options))
        return path.name, json.loads(path.read_text())

    name, found = exported("exportMetadata", clusterName=CLUSTER)
    assert (name, sorted(found)) == (
        "metadata.json",
        ["exportTime", "subscriptionGroupTable", "topicConfigTable"],
    )
    assert found["topicConfigTable"]["Exported"]["writeQueueNums"] == 3
    assert exported("exportMetadata", brokerAddr=B, topic=True)[0] == "topic.json"
    assert (
        "Exported"
        not in exported("exportMetadata", brokerAddr=B, topic=True)[1]["topicConfigTable"]
    )
    name, found = exported("exportMetadata", clusterName=CLUSTER, subscriptionGroup=True)
    assert (name, sorted(found)) == (
        "subscriptionGroup.json",
        ["exportTime", "subscriptionGroupTable"],
    )
    name, found = exported("exportConfigs", clusterName=CLUSTER)
    assert (name, found["clusterScale"]["masterBrokerSize"]) == ("configs.json", 2)
    assert found["brokerConfigs"]["broker-2"]["brokerRole"] == "ASYNC_MASTER"
    name, found = exported("exportMetrics", clusterName=CLUSTER)
    assert (name, sorted(found["evaluateReport"])) == ("metrics.json", ["broker-2", "broker-3"])
    quota = found["evaluateReport"]["broker-2"]["runtimeQuota"]
    assert quota["topicSize"] >= 1
    assert set(quota["tps"]) == {"normalInTps", "normalOutTps", "transInTps", "scheduleInTps"}
    assert set(found["totalData"]) == {"totalTps", "totalOneDayNum"}
    (tmp_path / "file").write_text("")
    with pytest.raises(MQClientError, match="cannot be written"):
        typed(world, "exportConfigs", clusterName=CLUSTER, filePath=str(tmp_path / "file"))


def test_a_log_of_a_compacted_topic_is_read_up_to_its_end(
    world: AdminWorld, tmp_path: Path
) -> None:
    path = tmp_path / "00000000000000000000"
    records = [
        encode_record(MessageRecord(topic="C", queue_id=0, body=b"%d" % n), n, n * 100, 1)
        for n in range(3)
    ]
    path.write_bytes(b"".join(map(bytes, records)) + bytes(64))
    found = typed(world, "dumpCompactionLog", file=str(path))
    assert [(one["queue_offset"], one["body"]) for one in found] == [(0, "0"), (1, "1"), (2, "2")]


# --------------------------------------------------------------------- brokers


def test_what_brokers_of_ours_do_not_serve_says_why(world: AdminWorld) -> None:
    with pytest.raises(BrokerError):
        typed(world, "removeBroker", brokerContainerAddr=A, brokerIdentity=f"{CLUSTER}:broker-9:1")
    with pytest.raises(MQClientError, match="CLUSTER:NAME:ID"):
        typed(world, "removeBroker", brokerContainerAddr=A, brokerIdentity="broker-9")
    for name, options in (
        ("rocksDBConfigToJson", {"brokerAddr": A}),
        ("checkRocksdbCqWriteProgress", {"cluster": CLUSTER}),
        ("getBrokerEpoch", {"brokerName": "broker-2"}),
        ("addBroker", {"brokerContainerAddr": A, "brokerConfigPath": "/none"}),
    ):
        with pytest.raises(BrokerError):
            typed(world, name, **options)


def test_a_cluster_is_asked_broker_by_broker(world: AdminWorld) -> None:
    assert sorted(typed(world, "getColdDataFlowCtrInfo", clusterName=CLUSTER)) == [A, B]
    with pytest.raises(MQClientError, match="no cluster"):
        typed(world, "getColdDataFlowCtrInfo", clusterName="none")


# --------------------------------------------------------------------- monitoring


def test_who_is_behind_and_who_stands_still_is_told() -> None:
    world = AdminWorld()
    diary = Diary()
    consumer = world.consumer(diary, group="G-stuck")
    producer = world.producer()

    def send(count: int) -> None:
        for number in range(count):
            world.wait(producer.send(Message(TOPIC, b"%d" % number)))

    send(4)
    world.until(lambda: len(diary.seen) == 4)
    world.network.run(6)
    diary.answer = lambda messages, context: Deferred()
    send(8)
    world.network.run(130)
    lines = [plain(line) for line in world.collect(Monitor(world.admin).round())]
    behind = next(line for line in lines if line.get("topic") == TOPIC)
    assert (behind["undoneMsgsTotal"], behind["undoneMsgsSingleMQ"]) == (8, 2)
    assert 6_000 <= behind["undoneMsgsDelayTimeMills"] < 10_000
    odd = [line for line in lines if "odd" in line]
    assert {line["client"] for line in odd} == {consumer.instance.client_id}
    assert len(odd) == 4
    rounds = Monitor(world.admin).rounds()

    async def first() -> Any:
        return await anext(rounds)

    assert plain(world.wait(first()))["group"] == "G-stuck"


# --------------------------------------------------------------------- as it is typed


def test_all_commands_explain_themselves() -> None:
    group = main.commands["admin"]
    assert isinstance(group, click.Group)
    for name in group.commands:
        told = CliRunner().invoke(main, ["admin", name, "-h"])
        assert told.exit_code == 0, told.output
        assert "-n, --namesrvAddr" in told.output
    told = CliRunner().invoke(main, ["admin", "printMsg", "-h"])
    assert "The messages of a topic." in told.output
    listed = CliRunner().invoke(main, ["admin", "-h"]).output
    assert "Create a topic, or change it" in listed
    assert "``" not in listed
