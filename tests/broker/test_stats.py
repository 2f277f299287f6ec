"""Counters over minute, hour and day; midnight; rates and times as brokers spell them; the one definition of lag."""

from __future__ import annotations

import pytest
from operators import Client, commit, create_group, create_topic, queues, refused, told
from small_broker import START_S, Peer, SmallBroker

from txrocketmq.broker.figures import Snapshot
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.throughput import Throughput
from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode


class Day:
    """Counters with the sweeps that the broker runs."""

    def __init__(self) -> None:
        self.now_s = START_S
        self.stats = BrokerStats(
            lambda: self.now_s * 1000, "ClusterA", lambda topic: topic.startswith("SYS")
        )

    def pass_s(self, seconds: int, each_s: int = 0) -> None:
        """Time goes by; `each_s` messages come every second, in calls of one."""
        for _ in range(seconds):
            counter = self.stats.of_topic("T")
            counter.messages += each_s
            counter.calls += each_s
            counter.size_bytes += 100 * each_s
            self.now_s += 1
            passed = self.now_s - START_S
            if passed % 10 == 0:
                self.stats.sample_for_minute()
            if passed % 600 == 0:
                self.stats.sample_for_hour()
            if passed % 3600 == 0:
                self.stats.sample_for_day()


def test_a_minute_an_hour_and_a_day() -> None:
    day = Day()
    day.pass_s(10, 2)
    found = day.stats.find("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == Snapshot(20, 2.0, 1.0)
    assert found.hour == found.day == Snapshot(0, 0.0, 0.0)
    day.pass_s(7200 - 10, 2)
    found = day.stats.find("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == Snapshot(120, 2.0, 1.0)
    assert found.hour == Snapshot(7200, 2.0, 1.0)
    assert found.day == Snapshot(14_400, 2.0, 1.0)
    day.pass_s(60)
    assert day.stats.put_rate("T") == 0.0
    sizes = day.stats.find("TOPIC_PUT_SIZE", "T")
    assert sizes is not None
    assert (sizes.hour.total, sizes.hour.average) == (720_000, 100.0)


def test_the_day_keeps_twenty_four_hours() -> None:
    day = Day()
    day.pass_s(3600, 1)
    day.pass_s(24 * 3600)
    found = day.stats.find("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.day == Snapshot(0, 0.0, 0.0)


def test_midnight_moves_the_marks_and_leaves_the_systems_own_traffic_out() -> None:
    day = Day()
    day.pass_s(5, 1)
    day.stats.of_topic("SYS").messages += 100
    day.stats.midnight()
    day.pass_s(3, 1)
    day.stats.midnight()
    day.pass_s(1, 1)
    assert day.stats.put_marks == (8, 5)
    assert (day.stats.put_total(), day.stats.put_total(True)) == (9, 109)


def test_deleted_topics_leave_their_share_in_the_brokers_figures() -> None:
    day = Day()
    day.pass_s(5, 1)
    day.stats.of_group("T", "G").messages += 4
    day.stats.of_group("U", "G").messages += 2
    day.stats.topic_deleted("T")
    assert day.stats.find("TOPIC_PUT_NUMS", "T") is None
    assert day.stats.find("GROUP_GET_NUMS", "T@G") is None
    assert day.stats.find("GROUP_GET_NUMS", "U@G") is not None
    assert (day.stats.put_total(), day.stats.get_total()) == (5, 6)
    day.stats.group_deleted("G")
    assert day.stats.find("GROUP_GET_NUMS", "U@G") is None
    assert day.stats.get_total() == 6


def test_the_brokers_own_figures_have_the_cluster_for_a_key() -> None:
    day = Day()
    day.pass_s(10, 3)
    found = day.stats.find("BROKER_PUT_NUMS", "ClusterA")
    assert found is not None
    assert found.minute.total == 30
    assert day.stats.find("BROKER_PUT_NUMS", "Other") is None
    assert day.stats.find("NO_SUCH_FIGURE", "T") is None


# ----------------------------------------------------------------- rates and times


def test_rates_appear_when_the_broker_runs_long_enough() -> None:
    flow = Throughput()
    for second in range(62):
        flow.found = flow.transferred = second * 4
        flow.sample((START_S + second) * 1000, second * 5)
    assert flow.rates("put") == "5.0 5.0 "
    assert flow.rates("transferred") == "4.0 4.0 "
    assert flow.total_read_rates() == "4.0 4.0 0.0"
    assert Throughput().rates("put") == "  "


def test_times_of_sends_are_those_of_the_last_full_minute() -> None:
    flow = Throughput()
    assert flow.put_times() == "null"
    flow.instant_puts = 90
    for took in (1, 9, 10, 99, 20_000):
        flow.put_took(took)
    for second in range(62):
        flow.sample((START_S + second) * 1000, 0)
    assert flow.put_times() == (
        "[<=0ms]:90 [0~10ms]:2 [10~50ms]:1 [50~100ms]:1 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert flow.put_max_ms == 20_000
    assert flow.put_share(0.5) == "0.52"
    assert (flow.failed_puts, flow.get_max_ms) == (0, 0)


# ----------------------------------------------------------------- BR-63, OBS-05


def stand(peer: Peer, topic: str = "T", group: str = "G") -> dict[tuple[str, int], dict[str, int]]:
    answer = told(peer, R.GET_CONSUME_STATS, consumerGroup=group, topic=topic)
    return queues(answer["offsetTable"])


def test_how_full_a_topic_is(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T", 2)
    for _ in range(6):
        peer.send("T")
        broker.clock.advance(5)
    answer = told(peer, R.GET_TOPIC_STATS_INFO, topic="T")
    assert queues(answer["offsetTable"]) == {
        ("T", 0): {
            "minOffset": 0,
            "maxOffset": 6,
            "lastUpdateTimestamp": (START_S + 25) * 1000,
        },
        ("T", 1): {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0},
    }
    assert answer["topicPutTps"] == 0.2
    assert refused(peer, R.GET_TOPIC_STATS_INFO, topic="No") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[No] not exist",
    )


def test_how_far_a_group_is(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T")
    for _ in range(5):
        peer.send("T")
        broker.clock.advance(1)
    # It never committed: it stands at the beginning.
    assert stand(peer)["T", 0] == {
        "brokerOffset": 5,
        "consumerOffset": 0,
        "lastTimestamp": 0,
        "pullOffset": 0,
    }
    peer.pull("T", max_msg_nums=4)
    commit(peer, "G", "T", 0, 3)
    assert stand(peer)["T", 0] == {
        "brokerOffset": 5,
        "consumerOffset": 3,
        "lastTimestamp": (START_S + 2) * 1000,
        "pullOffset": 4,
    }
    for _ in range(6):
        broker.clock.advance(10)
    assert told(peer, R.GET_CONSUME_STATS, consumerGroup="G")["consumeTps"] == pytest.approx(4 / 60)


@pytest.mark.parametrize("offset", [6, 10_000, 2**62])
def test_lag_is_never_negative(broker: SmallBroker, peer: Peer, offset: int) -> None:
    create_topic(peer, "T")
    create_group(peer, "G")
    for _ in range(5):
        peer.send("T")
    commit(peer, "G", "T", 0, offset)
    where = stand(peer)["T", 0]
    assert (where["brokerOffset"], where["consumerOffset"], where["pullOffset"]) == (5, 5, 5)
    whole = told(peer, R.GET_BROKER_CONSUME_STATS, isOrder=False)
    assert (whole["totalDiff"], whole["totalInflightDiff"]) == (0, 0)


def test_which_topics_of_a_group_are_shown(broker: SmallBroker, peer: Peer) -> None:
    create_group(peer, "G")
    for topic in ("T", "U", "V"):
        create_topic(peer, topic)
        commit(peer, "G", topic, 0, 0)

    def shown(**fields: object) -> set[str]:
        answer = told(peer, R.GET_CONSUME_STATS, consumerGroup="G", **fields)
        return {topic for topic, _ in queues(answer["offsetTable"])}

    assert shown() == {"T", "U", "V"}
    assert shown(topic="T") == {"T"}
    assert shown(topicList="T;V;NotThere") == {"T", "V"}
    assert shown(topic="NotThere") == set()
    # Members that are online say which topics the group has today.
    Client(broker).beat(T="*", V="*")
    assert shown() == {"T", "V"}
    assert shown(topic="U") == set()


def test_a_topic_that_is_listed_often_is_looked_at_once(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(peer, "T")
    create_group(peer, "G")
    looked: list[int] = []
    max_offset = broker.store.max_offset

    def counting(topic: str, queue_id: int) -> int:
        looked.append(queue_id)
        return max_offset(topic, queue_id)

    monkeypatch.setattr(broker.store, "max_offset", counting)
    stats = told(peer, R.GET_CONSUME_STATS, consumerGroup="G", topicList="T;" * 5000)
    assert set(queues(stats["offsetTable"])) == {("T", 0)}
    assert looked == [0]


def test_all_groups_of_a_broker(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T")
    create_topic(peer, "Ordered", order=True)
    create_group(peer, "G")
    for topic in ("T", "Ordered"):
        for _ in range(4):
            peer.send(topic)
        commit(peer, "G", topic, 0, 1)
    peer.pull("T", max_msg_nums=3)
    answer = told(peer, R.GET_BROKER_CONSUME_STATS, isOrder=False)
    (of_group,) = [groups["G"] for groups in answer["consumeStatsList"] if "G" in groups]
    found = {
        key: value for stats in of_group for key, value in queues(stats["offsetTable"]).items()
    }
    assert {key[0] for key in found} == {"T", "Ordered"}
    assert (answer["totalDiff"], answer["totalInflightDiff"]) == (6, 2)
    assert answer["brokerAddr"] == "192.0.2.1:10911"
    answer = told(peer, R.GET_BROKER_CONSUME_STATS, isOrder=True)
    assert (answer["totalDiff"], answer["totalInflightDiff"]) == (3, 0)


# ----------------------------------------------------------------- BR-65, the time span


def test_how_late_a_group_is(broker: SmallBroker, peer: Peer) -> None:
    create_topic(peer, "T", 2)
    create_group(peer, "G")
    for _ in range(5):
        peer.send("T")
        broker.clock.advance(10)
    commit(peer, "G", "T", 0, 2)
    spans = told(peer, R.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")["consumeTimeSpanSet"]
    first, second = sorted(spans, key=lambda span: int(span["messageQueue"]["queueId"]))
    assert first["minTimeStamp"] == START_S * 1000
    assert first["maxTimeStamp"] == (START_S + 40) * 1000
    assert first["consumeTimeStamp"] == (START_S + 10) * 1000
    # The next message came 30 seconds ago.
    assert first["delayTime"] == 30_000
    assert (second["minTimeStamp"], second["maxTimeStamp"], second["delayTime"]) == (-1, -1, 0)
    commit(peer, "G", "T", 0, 5)
    spans = told(peer, R.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")["consumeTimeSpanSet"]
    assert {span["delayTime"] for span in spans} == {0}


# ----------------------------------------------------------------- BR-72


def test_figures_over_the_wire(broker: SmallBroker, peer: Peer) -> None:
    for _ in range(6):
        peer.send("T")
    peer.pull("T", max_msg_nums=4)
    peer.pull("T", 0, 4)
    broker.clock.advance(10)

    def minute(name: str, key: str) -> dict[str, float]:
        answer = told(peer, R.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        found: dict[str, float] = answer["statsMinute"]
        return found

    assert minute("TOPIC_PUT_NUMS", "T") == {"sum": 6, "tps": 0.6, "avgpt": 1.0}
    assert minute("GROUP_GET_NUMS", "T@G") == {"sum": 6, "tps": 0.6, "avgpt": 3.0}
    size = broker.store.max_physical_offset() // 6
    assert minute("TOPIC_PUT_SIZE", "T")["sum"] == 6 * size
    assert minute("GROUP_GET_SIZE", "T@G")["sum"] == 6 * size
    assert minute("BROKER_PUT_NUMS", "ClusterA")["sum"] == 6
    assert minute("BROKER_GET_NUMS", "ClusterA")["sum"] == 6
    assert refused(peer, R.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="No") == (
        ResponseCode.SYSTEM_ERROR,
        "The stats <TOPIC_PUT_NUMS> <No> not exist",
    )
