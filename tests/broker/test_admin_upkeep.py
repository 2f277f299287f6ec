"""Raw entries of queues, clean-up on demand, and what a running broker says of itself."""

from __future__ import annotations

import re

import pytest
from operators import Client, create_topic, refused, tell, told
from small_broker import Peer, SmallBroker, properties

from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.javahash import tags_code

R = RequestCode


# ----------------------------------------------------------------- BR-73


def test_entries_of_a_queue_as_they_are(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T")
    for tag in ("x", "y", "x"):
        peer.send("T", properties=properties(TAGS=tag))
    answer = told(peer, R.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=1, count=5)
    assert (answer["minQueueIndex"], answer["maxQueueIndex"]) == (0, 3)
    sizes = broker.store.max_physical_offset() // 3
    assert [
        (row["physicOffset"], row["physicSize"], row["tagsCode"]) for row in answer["queueData"]
    ] == [
        (sizes, sizes, tags_code("y")),
        (2 * sizes, sizes, tags_code("x")),
    ]
    answer = tell(peer, R.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=1, count=1)
    assert answer.remark == "not set any response code"


def test_what_a_group_wants_of_the_queue_is_shown_beside(broker: SmallBroker, peer: Peer) -> None:
    peer.send("T")
    asked = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "G"}
    assert told(peer, R.QUERY_CONSUME_QUEUE, **asked)["filterData"] == "G@T is not online!"
    Client(broker).beat(T="x")
    answer = told(peer, R.QUERY_CONSUME_QUEUE, **asked)
    assert answer["subscriptionData"]["subString"] == "x"
    assert answer["filterData"] == "null"


def test_entries_that_are_not_there(peer: Peer) -> None:
    asked = {"topic": "T", "queueId": 0, "index": 7, "count": 1}
    assert refused(peer, R.QUERY_CONSUME_QUEUE, **asked) == (
        ResponseCode.SYSTEM_ERROR,
        "0@T is not exist!",
    )
    peer.send("T")
    answer = tell(peer, R.QUERY_CONSUME_QUEUE, **asked)
    assert (answer.code, answer.remark) == (0, "Index 7 of 0@T is not exist!")


# ----------------------------------------------------------------- BR-74


def fill(broker: SmallBroker, peer: Peer, hours: int) -> None:
    """A megabyte of messages each hour, one log file."""
    for _ in range(hours):
        for _ in range(9):
            peer.send("Old", body=bytes(110_000))
        broker.clock.advance(3600)


def test_old_files_are_deleted_on_demand_and_what_pointed_there_with_them(
    broker: SmallBroker, peer: Peer
) -> None:
    broker.store_config.file_reserved_time = 2
    broker.store_config.delete_commit_log_files_interval = 0
    fill(broker, peer, 5)
    files = broker.disk.listdir("/store/commitlog")
    last = peer.send("Old")
    assert tell(peer, R.DELETE_EXPIRED_COMMITLOG).code == 0
    left = broker.disk.listdir("/store/commitlog")
    assert 0 < len(left) < len(files)
    start = int(left[0])
    assert broker.store.min_physical_offset() == start
    answer = told(peer, R.GET_TOPIC_STATS_INFO, topic="Old")
    (range_of_queue,) = [q for q in answer["offsetTable"].values() if q["maxOffset"]]
    assert range_of_queue["minOffset"] > 0
    assert range_of_queue["maxOffset"] == last.queue_offset + 1
    pulled = peer.pull("Old", 0, 0)
    assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
    assert pulled.header.next_begin_offset == range_of_queue["minOffset"]


def test_the_file_that_is_written_stays_however_old(broker: SmallBroker, peer: Peer) -> None:
    broker.store_config.file_reserved_time = 1
    peer.send("T")
    broker.clock.advance(100 * 3600)
    assert tell(peer, R.DELETE_EXPIRED_COMMITLOG).code == 0
    assert peer.pull("T").bodies == [b"hello"]


def test_queues_without_a_message_left_are_forgotten(broker: SmallBroker, peer: Peer) -> None:
    broker.store_config.file_reserved_time = 2
    peer.send("Gone")
    fill(broker, peer, 4)
    tell(peer, R.DELETE_EXPIRED_COMMITLOG)
    assert ("Gone", 0) in broker.store.queues()
    assert tell(peer, R.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
    assert ("Gone", 0) not in broker.store.queues()
    assert ("Old", 0) in broker.store.queues()
    assert "Gone" not in broker.disk.listdir("/store/consumequeue") or (
        broker.disk.listdir("/store/consumequeue/Gone") == []
    )


# ----------------------------------------------------------------- BR-71

#: All of them but those of levels of delay, and of a buffer outside of the log's files.
OFFICIAL_KEYS = {
    *("brokerActive", "brokerVersionDesc", "brokerVersion", "bootTimestamp", "runtime"),
    *("startAcceptSendRequestTimeStamp", "earliestMessageTimeStamp", "dispatchBehindBytes"),
    *("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
    *("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
    *("timerReadBehind", "timerOffsetBehind", "timerCongestNum"),
    *("timerEnqueueTps", "timerDequeueTps", "pageCacheLockTimeMills"),
    *("remainTransientStoreBufferNumbs", "remainHowManyDataToFlush", "commitLogDirCapacity"),
    *("sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity"),
    *("pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity"),
    *("litePullThreadPoolQueueSize", "litePullThreadPoolQueueCapacity"),
    *("queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity"),
    *("ackThreadPoolQueueSize", "ackThreadPoolQueueCapacity"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueHeadWaitTimeMills", "EndTransactionQueueSize"),
    *("EndTransactionThreadPoolQueueCapacity", "putMessageEntireTimeMax", "putMessageTimesTotal"),
    *("putMessageFailedTimes", "putMessageSizeTotal", "putMessageDistributeTime"),
    *("putMessageAverageSize", "dispatchMaxBuffer", "getMessageEntireTimeMax"),
    *("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"),
    *("putLatency99", "putLatency999", "commitLogDiskRatio", "commitLogDiskRatio_<path>"),
    *("consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset"),
}


@pytest.fixture
def figures(broker: SmallBroker, peer: Peer) -> dict[str, str]:
    for _ in range(4):
        peer.send("T")
    peer.pull("T", max_msg_nums=3)
    peer.pull("Nobody")
    broker.clock.advance(90_061)
    table: dict[str, str] = told(peer, R.GET_BROKER_RUNTIME_INFO)["table"]
    return table


def test_every_official_key_is_there(figures: dict[str, str]) -> None:
    keys = {re.sub("_/.*", "_<path>", key) for key in figures}
    assert keys >= OFFICIAL_KEYS


def test_figures_are_those_of_the_broker(figures: dict[str, str], broker: SmallBroker) -> None:
    size = broker.store.max_physical_offset()
    expected = {
        "brokerVersionDesc": "V5_4_0",
        "brokerVersion": "493",
        "brokerActive": "true",
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
        "putMessageTimesTotal": "4",
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": repr(size / 4),
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(size),
        "dispatchBehindBytes": "0",
        "msgPutTotalTodayNow": "4",
        "msgGetTotalTodayNow": "3",
        "remainHowManyDataToFlush": "0 B",
        "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueCapacity": "10000",
    }
    assert {key: figures[key] for key in expected} == expected
    # The day before was the first one, this morning everything had come.
    assert figures["msgPutTotalTodayMorning"] == figures["msgGetTotalTodayMorning"].replace(
        "3", "4"
    )
    assert "messagesRefused" not in figures
    assert not [key for key in figures if key.startswith("subscriptionDifference")]


def test_what_is_wrong_is_shown(broker: SmallBroker, peer: Peer) -> None:
    Client(broker, "a", port=50_001).beat(T="x")
    Client(broker, "b", port=50_002).beat(T="y")
    table = told(peer, R.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["consumerGroupsSubscribingDifferently"] == "1"
    assert table["subscriptionDifference_G"] == "T (a: TAG x; b: TAG y)"
