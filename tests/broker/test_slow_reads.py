"""Cold reads have a limit for each group; groups that are far behind can be switched off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from small_broker import Peer, SmallBroker, pull_header

from txrocketmq.codec.headers import DeleteSubscriptionGroupRequestHeader
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.testing.disk import MemoryDisk

UPDATE = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
REMOVE = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
INFO = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
BUSY = "This consumer group is reading cold data. It has been flow control"


def limited_broker(**settings: Any) -> SmallBroker:
    """A broker of which nothing is in memory, with messages of about a kilobyte."""
    broker = SmallBroker(
        cold_data_flow_control_enable=True,
        access_message_in_memory_hot_ratio=0,
        memory_bytes=1,
        **settings,
    )
    peer = broker.connect()
    for number in range(10):
        peer.send(body=b"%d" % number * 1000)
    return broker


def info(peer: Peer) -> Any:
    return json.loads(peer.ask(INFO).body)


def join(peer: Peer, consume_type: str, group: str = "G") -> None:
    body = {
        "clientID": "client-1",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": consume_type,
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [],
                "unitMode": False,
            }
        ],
    }
    assert peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode()).code == 0


def read_cold(broker: SmallBroker, size: int, group: str = "G") -> None:
    """The group was given that many bytes for which the device was asked."""
    watch = broker.core.pull.watch
    assert watch is not None
    watch.read_cold(group, size)


# ----------------------------------------------------------------- limits


def test_a_push_consumer_that_had_its_share_is_told_to_wait() -> None:
    broker = limited_broker(cg_cold_read_threshold=2000)
    peer = broker.connect()
    join(peer, "CONSUME_PASSIVELY")
    assert peer.pull(max_msg_nums=1).code == 0
    read_cold(broker, 1999)
    assert peer.pull(max_msg_nums=1).code == 0
    read_cold(broker, 1)
    refused = peer.ask(RequestCode.PULL_MESSAGE, pull_header())
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_BUSY, BUSY)
    # Others have shares of their own.
    assert peer.pull(max_msg_nums=1, consumer_group="Other").code == 0
    broker.clock.advance(5)
    assert peer.pull(max_msg_nums=1).code == 0


def test_a_pull_consumer_is_held_and_gets_one_message() -> None:
    broker = limited_broker(cg_cold_read_threshold=100)
    peer = broker.connect()
    join(peer, "CONSUME_ACTIVELY")
    read_cold(broker, 100)
    waiting = peer.tell(RequestCode.PULL_MESSAGE, pull_header())
    assert peer.answer(waiting) is None
    # Two periods begin; its share is used up again before the second.
    broker.clock.advance(4.9)
    read_cold(broker, 100)
    assert peer.answer(waiting) is None
    broker.clock.advance(0.2)
    answer = peer.answer(waiting)
    assert answer is not None
    assert answer.code == 0


def test_what_is_in_memory_is_never_limited() -> None:
    broker = SmallBroker(cold_data_flow_control_enable=True, cg_cold_read_threshold=0)
    peer = broker.connect()
    peer.send()
    join(peer, "CONSUME_PASSIVELY")
    read_cold(broker, 1)
    assert peer.pull().bodies == [b"hello"]


def test_who_waits_for_news_is_held_as_ever_though_its_group_is_limited() -> None:
    broker = limited_broker(cg_cold_read_threshold=1)
    peer = broker.connect()
    join(peer, "CONSUME_PASSIVELY")
    read_cold(broker, 1)
    assert peer.ask(RequestCode.PULL_MESSAGE, pull_header()).code == ResponseCode.SYSTEM_BUSY
    header = pull_header(offset=10, sys_flag=6, suspend_timeout_millis=15_000)
    waiting = peer.tell(RequestCode.PULL_MESSAGE, header)
    assert peer.answer(waiting) is None


def test_what_is_cold_is_what_lies_beyond_the_hot_share() -> None:
    broker = limited_broker(cg_cold_read_threshold=1, access_message_in_memory_max_ratio=100)
    peer = broker.connect()
    join(peer, "CONSUME_PASSIVELY")
    read_cold(broker, 1)
    store = broker.store
    store.reader._memory_bytes = 2 * store.max_physical_offset()
    codes = []
    for ratio in (51, 49):
        broker.store_config.access_message_in_memory_hot_ratio = ratio
        codes.append(peer.ask(RequestCode.PULL_MESSAGE, pull_header(max_msg_nums=1)).code)
    assert codes == [0, ResponseCode.SYSTEM_BUSY]


def test_all_groups_together_have_a_limit() -> None:
    broker = limited_broker(global_cold_read_threshold=500)
    peer = broker.connect()
    for group in ("G", "Other"):
        read_cold(broker, 250, group)
        join(peer, "CONSUME_PASSIVELY", group)
    refused = peer.ask(RequestCode.PULL_MESSAGE, pull_header())
    assert refused.code == ResponseCode.SYSTEM_BUSY


def test_without_control_nothing_is_counted(broker: SmallBroker, peer: Peer) -> None:
    read_cold(broker, 10**12)
    assert info(peer)["globalAcc"] == 0


def test_reads_for_which_the_device_is_asked_count() -> None:
    broker = SmallBroker(cold_data_flow_control_enable=True)
    peer = broker.connect()
    peer.send(body=b"x" * 1000)
    watch = broker.core.pull.watch
    assert watch is not None
    found = broker.store.get_message("TopicA", 0, 0, 1, 10**6, None)
    broker.core.pull._note_read(found, "G", 0)
    assert watch.cold["G"].read_bytes == found.size_bytes > 1000


# ----------------------------------------------------------------- operators


def test_operators_set_limits_for_groups() -> None:
    broker = limited_broker(cg_cold_read_threshold=100)
    peer = broker.connect()
    join(peer, "CONSUME_PASSIVELY")
    assert peer.ask(UPDATE, None, b"# a remark\nG=300\nOther = 5\n").code == 0
    read_cold(broker, 299)
    assert info(peer)["configTable"] == {"G": 300, "Other": 5}
    assert info(peer)["runtimeTable"]["G"]["coldAcc"] == 299
    assert peer.pull(max_msg_nums=1).code == 0
    read_cold(broker, 1)
    assert peer.ask(RequestCode.PULL_MESSAGE, pull_header()).code == ResponseCode.SYSTEM_BUSY
    assert peer.ask(REMOVE, None, b"Other").code == 0
    assert info(peer)["configTable"] == {"G": 300}
    refused = peer.ask(UPDATE, None, b"G=7\nOther=many\n")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "'many' of group Other" in (refused.remark or "")
    assert info(peer)["configTable"] == {"G": 300}


def test_groups_without_cold_reads_are_forgotten() -> None:
    broker = limited_broker()
    peer = broker.connect()
    read_cold(broker, 10)
    broker.clock.advance(5)
    assert info(peer)["runtimeTable"]["G"]["coldAcc"] == 0
    for _ in range(12):
        broker.clock.advance(5)
    assert info(peer)["runtimeTable"] == {}


# ----------------------------------------------------------------- slow consumers


@pytest.mark.parametrize("threshold", [2_000, 2_000_000])
def test_a_group_that_is_far_behind_is_switched_off(threshold: int) -> None:
    broker = SmallBroker(
        disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=threshold
    )
    peer = broker.connect()
    for number in range(5):
        peer.send(body=b"%d" % number * 1000)
    peer.pull(max_msg_nums=1)
    peer.pull(offset=4, max_msg_nums=1, consumer_group="Fast")
    broker.clock.advance(181)
    again = broker.connect(40001)
    is_off = again.pull(max_msg_nums=1).code == ResponseCode.NO_PERMISSION
    assert is_off == (threshold == 2_000)
    assert again.pull(offset=4, consumer_group="Fast").code == 0


def test_by_default_nobody_is_switched_off(broker: SmallBroker, peer: Peer) -> None:
    broker.config.consumer_fallbehind_threshold = 0
    peer.send()
    peer.send()
    peer.pull(max_msg_nums=1)
    broker.clock.advance(181)
    assert broker.connect(40001).pull().code == 0


def test_a_group_that_is_gone_is_not_looked_for() -> None:
    broker = SmallBroker(
        disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=0
    )
    peer = broker.connect()
    for _ in range(2):
        peer.send()
    peer.pull(max_msg_nums=1)
    watch = broker.core.pull.watch
    assert watch is not None
    assert list(watch.too_slow()) == ["G"]
    header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=False)
    assert peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header).code == 0
    assert watch.too_slow() == {}


# ----------------------------------------------------------------- limits that adapt themselves (coldCtrStrategyEnable)


def adapting_broker(**settings: Any) -> SmallBroker:
    return SmallBroker(
        cold_data_flow_control_enable=True,
        cold_ctr_strategy_enable=True,
        cg_cold_read_threshold=1000,
        global_cold_read_threshold=10_000,
        **settings,
    )


def end_period(broker: SmallBroker, **read: int) -> Any:
    """Groups read that much in a period; the limits after it."""
    for group, size in read.items():
        read_cold(broker, size, group)
    broker.clock.advance(5)
    found: Any = info(broker.connect())["configTable"]
    return found


def test_a_limit_rises_for_who_reads_much_and_falls_when_all_read_too_much() -> None:
    broker = adapting_broker(use_pid_cold_ctr_strategy=False)
    assert end_period(broker, G=1000, H=999) == {"G||adaptive": 1500}
    assert end_period(broker, G=1500) == {"G||adaptive": 2250}
    # What it may now is not too much.
    read_cold(broker, 2249)
    assert not broker.core.pull.watch.is_limited("G")
    read_cold(broker, 1)
    assert broker.core.pull.watch.is_limited("G")
    assert end_period(broker, H=8000) == {"G||adaptive": 1800}
    assert end_period(broker, H=11_000) == {"G||adaptive": 1440}
    assert end_period(broker, H=11_000) == {"G||adaptive": 1152}
    # Never below what everybody may.
    assert end_period(broker, H=11_000) == {"G||adaptive": 1000}
    broker.stop()


def test_the_three_highest_limits_fall() -> None:
    broker = adapting_broker(use_pid_cold_ctr_strategy=False)
    assert len(end_period(broker, A=1000, B=1000, C=1000, D=1000)) == 4
    end_period(broker, D=1500)
    found = end_period(broker, X=20_000)
    assert found["D||adaptive"] == 1800
    assert sorted(found.values()) == [1200, 1200, 1500, 1800]
    broker.stop()


def test_the_regulator_waits_for_ten_periods_and_lets_limits_rise_while_there_is_room() -> None:
    broker = adapting_broker()
    for _ in range(9):
        assert end_period(broker, G=1000) == {}
    assert end_period(broker, G=1000) == {"G||adaptive": 1500}
    # 8,000 bytes are expected: too much brings it down again.
    highest = max(end_period(broker, G=9_900)["G||adaptive"] for _ in range(12))
    assert highest > 2000
    for _ in range(20):
        found = end_period(broker, G=9_900)
    assert found == {"G||adaptive": 1000}
    broker.stop()


def test_what_an_operator_said_is_not_adapted() -> None:
    broker = adapting_broker(use_pid_cold_ctr_strategy=False)
    assert broker.connect().ask(UPDATE, None, b"G=500").code == 0
    assert end_period(broker, G=600) == {"G": 500}
    assert broker.core.pull.watch.limit_of("G") == 500
    broker.stop()


def test_adapted_limits_go_with_the_group_and_with_the_strategy() -> None:
    broker = adapting_broker(use_pid_cold_ctr_strategy=False)
    end_period(broker, G=1000)
    for _ in range(13):
        found = end_period(broker)
    assert found == {}
    end_period(broker, G=1000)
    broker.config.cold_ctr_strategy_enable = False
    assert broker.core.pull.watch.limit_of("G") == 1000
    assert end_period(broker) == {}
    broker.stop()


# ----------------------------------------------------------------- reading ahead


def test_reading_ahead_is_switched(broker: SmallBroker, peer: Peer) -> None:
    asked: list[tuple[str, bool]] = []
    broker.disk.set_read_ahead = lambda path, is_on: asked.append((path, is_on))  # type: ignore[method-assign]
    code = RequestCode.SET_COMMITLOG_READ_MODE
    for mode, is_on in (("1", False), ("0", True)):
        answer = peer.ask(code, ext_fields={"READ_AHEAD_MODE": mode})
        said = f"set commitlog readahead mode success, mode: {mode}"
        assert (answer.code, answer.remark) == (0, said)
        assert asked[-1] == (broker.store_config.store_path_commit_log, is_on)
        assert broker.store_config.data_read_ahead_enable is is_on
    for fields, wanted, remark in (
        ({}, ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error"),
        ({"a": "b"}, ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed"),
        (
            {"READ_AHEAD_MODE": "4"},
            ResponseCode.INVALID_PARAMETER,
            "set commitlog readahead mode param value error",
        ),
    ):
        answer = peer.ask(code, ext_fields=fields)
        assert (answer.code, answer.remark) == (wanted, remark)
    assert len(asked) == 2


def test_reading_ahead_can_be_off_from_the_start() -> None:
    asked: list[tuple[str, bool]] = []

    class Disk(MemoryDisk):
        def set_read_ahead(self, directory: str, is_on: bool) -> None:
            asked.append((directory, is_on))

    broker = SmallBroker(Disk(), data_read_ahead_enable=False)
    assert asked == [(broker.store_config.store_path_commit_log, False)]
    broker.stop()
