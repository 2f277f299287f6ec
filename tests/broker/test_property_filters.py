"""SQL92 filters at the broker: pulled, held and checked; kept with versions, and over a restart."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from small_broker import ROOT, Peer, SmallBroker, properties, pull_header
from test_heartbeat import beat, consumer

from txrocketmq.broker.filter.bloom import has_bits
from txrocketmq.codec.bodies import CheckClientRequestBody, encode_body
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from txrocketmq.model.heartbeat import build_subscription
from txrocketmq.testing.disk import MemoryDisk

PULL = RequestCode.PULL_MESSAGE
FILE = f"{ROOT}/config/consumerFilter.json"


@pytest.fixture
def broker() -> SmallBroker:
    return SmallBroker(enable_property_filter=True)


@pytest.fixture
def peer(broker: SmallBroker) -> Peer:
    return broker.connect()


def sql(text: str, version: int = 1, topic: str = "TopicA") -> dict[str, Any]:
    return {
        "topic": topic,
        "subString": text,
        "tagsSet": [],
        "codeSet": [],
        "subVersion": version,
        "expressionType": "SQL92",
        "classFilterMode": False,
    }


def subscribe(peer: Peer, *subscriptions: dict[str, Any]) -> None:
    assert beat(peer, consumer(subscriptionDataSet=list(subscriptions))).code == 0


def known(peer: Peer, version: int = 0, offset: int = 0) -> Any:
    """A pull that relies on the heartbeat's subscription."""
    return peer.pull(
        sys_flag=0, subscription=None, expression_type=None, sub_version=version, offset=offset
    )


def send(peer: Peer, *values: str) -> None:
    for value in values:
        peer.send(body=value.encode(), properties=properties(a=value, TAGS="t"))


def test_a_pull_brings_its_filter(peer: Peer) -> None:
    send(peer, "1", "2", "3", "x")
    pulled = peer.pull(subscription="a > 1", expression_type="SQL92")
    assert pulled.bodies == [b"2", b"3"]
    assert pulled.header.next_begin_offset == 4
    nothing = peer.pull(subscription="a > 3", expression_type="SQL92")
    assert (nothing.code, nothing.header.next_begin_offset) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        4,
    )


def test_a_heartbeat_brings_the_filter(peer: Peer) -> None:
    send(peer, "1", "2", "3")
    subscribe(peer, sql("a in ('1', '3')"))
    assert known(peer, 1).bodies == [b"1", b"3"]
    subscribe(peer, sql("a = 2", 2))
    assert known(peer, 2).bodies == [b"2"]


def test_a_wrong_expression_is_refused(peer: Peer) -> None:
    send(peer, "1")
    refused = peer.pull(subscription="a >", expression_type="SQL92")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark == "parse the consumer's subscription failed"
    subscribe(peer, sql("a >"))
    refused = known(peer, 1)
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert refused.remark == (
        "The broker's consumer filter data is not exist!Your expression may be wrong!"
    )


def test_a_wrong_expression_replaces_a_right_one(peer: Peer) -> None:
    send(peer, "1")
    subscribe(peer, sql("a = 1"))
    assert known(peer, 1).bodies == [b"1"]
    subscribe(peer, sql("a =", 2))
    assert known(peer, 2).code == ResponseCode.FILTER_DATA_NOT_EXIST


LONG = " OR ".join(f"a = 'x{number}'" for number in range(1_000))
"""Reading it takes a twentieth of a second."""


def test_a_heartbeat_with_many_long_filters_holds_nobody_up(peer: Peer) -> None:
    send(peer, "1", "x7")
    topics = ["TopicA", *(f"T{number}" for number in range(200))]
    wanted = [sql(f"{LONG} OR b = '{topic}'", topic=topic) for topic in topics]
    began_s = process_time()
    subscribe(peer, *wanted)
    assert process_time() - began_s < 1
    assert known(peer, 1).bodies == [b"x7"]


def test_long_filters_are_not_read_all_for_one_message(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.config.enable_calc_filter_bit_map = True
    for number in range(5):
        text = f"{LONG} OR b = '{number}'"
        data = consumer(f"G{number}", subscriptionDataSet=[sql(text)])
        assert beat(broker.connect(41_000 + number), data).code == 0
    filters = broker.core.filters
    for read in (1, 2):
        bit_map = filters.bit_map("TopicA", {"a": "no"})
        assert bit_map is not None
        kept = list(filters._by_topic["TopicA"].values())
        assert sum(one.is_read for one in kept) == read
        # Who was not read yet is not told that it does not want the message.
        positions = [one.data.bloom_filter_data.bit_pos for one in kept]  # type: ignore[union-attr]
        assert [has_bits(bit_map, found or ()) for found in positions] == [
            number >= read for number in range(5)
        ]


def test_filters_have_so_many_characters_together(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txrocketmq.broker.filter.consumer_filters.MAX_CHARACTERS", 20)
    send(peer, "1")
    subscribe(peer, sql("a = 1"), sql("b = 12345678", topic="T1"), sql("c = 1", topic="T2"))
    assert broker.core.filters.get("T1", "G") is not None
    assert broker.core.filters.get("T2", "G") is None
    # One that is not wanted any more makes room.
    subscribe(peer, sql("a = 1"), sql("c = 1", topic="T2"))
    subscribe(peer, sql("a = 1"), sql("c = 1", topic="T2"))
    assert broker.core.filters.get("T1", "G") is None
    assert broker.core.filters.get("T2", "G") is not None
    assert known(peer, 1).bodies == [b"1"]


def test_an_earlier_version_changes_nothing(peer: Peer) -> None:
    send(peer, "1", "2")
    subscribe(peer, sql("a = 1", 5))
    subscribe(peer, sql("a = 2", 4))
    assert known(peer, 5).bodies == [b"1"]


def test_a_filter_that_is_behind_is_not_used(peer: Peer) -> None:
    send(peer, "1")
    subscribe(peer, sql("a = 1", 5))
    subscribe(peer, sql("", 6))
    refused = known(peer, 6)
    assert refused.code == ResponseCode.FILTER_DATA_NOT_LATEST
    assert refused.remark == "the consumer's consumer filter data not latest"


def test_without_the_setting_filters_are_refused() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    send(peer, "1")
    subscribe(peer, sql("a = 1"))
    words = "The broker does not support consumer to filter message by SQL92"
    for refused in (known(peer, 1), peer.pull(subscription="a =", expression_type="SQL92")):
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, words)
    broker.config.enable_property_filter = True
    assert known(peer, 1).bodies == [b"1"]


def test_other_kinds_of_filters_are_refused(peer: Peer) -> None:
    send(peer, "1")
    refused = peer.pull(subscription="a = 1", expression_type="XPATH")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "The broker does not support consumer to filter message by XPATH"


def test_a_held_pull_is_woken_by_what_it_wants(broker: SmallBroker, peer: Peer) -> None:
    send(peer, "0")
    other = broker.connect(40001)

    def hold(text: str) -> int:
        return other.tell(
            PULL,
            pull_header(
                offset=1,
                subscription=text,
                expression_type="SQL92",
                sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
                suspend_timeout_millis=15_000,
            ),
        )

    first, second = hold("a = 1"), hold("a = 2")
    send(peer, "2")
    broker.clock.advance(0)
    assert other.answer(first) is None
    answer = other.answer(second)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    broker.clock.advance(20)
    late = other.answer(first)
    assert late is not None
    assert late.code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_consumers_are_told_before_they_start(peer: Peer) -> None:
    def check(text: str) -> Any:
        subscription = build_subscription("T", text, "SQL92")
        body = CheckClientRequestBody(client_id="c", group="G", subscription_data=subscription)
        return peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    assert check("a > 1").code == ResponseCode.SUCCESS
    refused = check("a > ")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark == 'Encountered "<EOF>" at line 1, column 4.'


def saved(disk: MemoryDisk) -> Any:
    return json.loads(disk.read_file(FILE))


def test_filters_survive_a_restart(broker: SmallBroker, peer: Peer) -> None:
    subscribe(peer, sql("a = 1", 7))
    now_ms = broker.now_ms()
    again = broker.restarted(enable_property_filter=True)
    data = saved(again.disk)["filterDataByTopic"]["TopicA"]
    assert data["topic"] == "TopicA"
    kept = data["groupFilterData"]["G"]
    assert (kept["expression"], kept["expressionType"]) == ("a = 1", "SQL92")
    assert (kept["clientVersion"], kept["bornTime"]) == (7, now_ms)
    found = again.core.filters.get("TopicA", "G")
    assert found is not None
    assert found.data.dead
    peer = again.connect()
    subscribe(peer, sql("a = 1", 7))
    assert not found.data.dead


def test_filters_of_gone_consumers_go_after_a_day(broker: SmallBroker, peer: Peer) -> None:
    subscribe(peer, sql("a = 1"), sql("b = 1", topic="TopicB"))
    subscribe(peer, sql("a = 1"))
    peer.close()
    assert broker.core.filters.get("TopicB", "G") is not None
    broker.clock.pump([3600.0] * 25)
    assert broker.core.filters.get("TopicA", "G") is None
    assert broker.core.filters.get("TopicB", "G") is None
    assert saved(broker.disk) == {"filterDataByTopic": {}}


def test_a_damaged_filter_in_the_file_is_dropped(broker: SmallBroker) -> None:
    broker.stop()
    file = {
        "filterDataByTopic": {
            "TopicA": {
                "groupFilterData": {
                    "Bad": {"expression": "a =", "expressionType": "SQL92", "bornTime": 1},
                    "Good": {"expression": "a = 1", "expressionType": "SQL92", "bornTime": 1},
                },
                "topic": "TopicA",
            }
        }
    }
    broker.disk.replace_file(FILE, json.dumps(file).encode(), True)
    again = SmallBroker(broker.disk, broker.clock)
    assert again.core.filters.get("TopicA", "Bad") is None
    assert again.core.filters.get("TopicA", "Good") is not None


def test_an_operator_sees_the_filter_of_a_group(peer: Peer) -> None:
    send(peer, "1")
    subscribe(peer, sql("a = 1"))
    fields = {"topic": "TopicA", "queueId": "0", "index": "0", "count": "1", "consumerGroup": "G"}
    answer = peer.ask(RequestCode.QUERY_CONSUME_QUEUE, None, ext_fields=fields)
    shown = json.loads(json.loads(answer.body)["filterData"])
    assert shown["expression"] == "a = 1"
