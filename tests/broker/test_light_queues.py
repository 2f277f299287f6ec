"""Do light queues work over the wire: messages that name them, consumers that pull them without a topic or group having been made?"""

from __future__ import annotations

import pytest
from operators import R, commit, committed, told
from small_broker import Peer, SmallBroker, properties, pull_header, send_header
from test_retry import send_back

from txrocketmq.codec.fastjson import loads
from txrocketmq.model.codes import RequestCode, ResponseCode

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}
ONE, GROUP = "%LMQ%one", "%LMQ%group"


@pytest.fixture
def light() -> SmallBroker:
    return SmallBroker(**LIGHT)


def send(peer: Peer, number: int, names: str) -> None:
    text = properties(UNIQ_KEY=f"id{number}", INNER_MULTI_DISPATCH=names)
    peer.send("TopicA", b"%d" % number, queue_id=number % 4, properties=text)


def test_a_light_queue_is_pulled_as_a_topic_with_one_queue(light: SmallBroker) -> None:
    peer = light.connect()
    for number in range(6):
        send(peer, number, "%LMQ%one,%LMQ%two")
    pulled = peer.pull(ONE, consumer_group="CG_lmq")
    assert pulled.bodies == [b"0", b"1", b"2", b"3", b"4", b"5"]
    header = pulled.header
    assert (header.min_offset, header.max_offset, header.next_begin_offset) == (0, 6, 6)
    # The topic of the record is the one it was sent to, as are queue id and offset.
    last = pulled.messages[-1]
    assert (last.topic, last.queue_id, last.queue_offset) == ("TopicA", 1, 1)
    assert last.properties["INNER_MULTI_QUEUE_OFFSET"] == "5,5"
    assert peer.pull("%LMQ%two", offset=4).bodies == [b"4", b"5"]
    assert peer.pull("%LMQ%none").code == ResponseCode.PULL_NOT_FOUND
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_header(ONE, 1))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    light.stop()


def test_neither_topics_nor_groups_are_made_of_light_queues(light: SmallBroker) -> None:
    peer = light.connect()
    topics, groups = len(light.core.topics), len(light.core.groups)
    send(peer, 0, ONE)
    peer.pull(ONE, consumer_group=GROUP)
    commit(peer, GROUP, ONE, 0, 1)
    peer.send(ONE, b"direct")
    assert (len(light.core.topics), len(light.core.groups)) == (topics + 1, groups)
    table = told(peer, R.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    assert not any(name.startswith("%LMQ%") for name in table)
    assert peer.pull(ONE).bodies == [b"0", b"direct"]
    light.stop()


def test_a_held_pull_of_a_light_queue_is_answered(light: SmallBroker) -> None:
    peer = light.connect()
    waiting = peer.tell(
        RequestCode.PULL_MESSAGE,
        pull_header(ONE, sys_flag=6, suspend_timeout_millis=20_000),
    )
    assert peer.answer(waiting) is None
    send(light.connect(41000), 0, ONE)
    light.clock.advance(0)
    answer = peer.answer(waiting)
    assert answer is not None
    assert answer.code == 0
    light.stop()


def test_offsets_of_light_groups_are_kept_in_the_official_file(light: SmallBroker) -> None:
    peer = light.connect()
    for number in range(3):
        send(peer, number, ONE)
    commit(peer, GROUP, ONE, 0, 2)
    peer.pull("TopicA", consumer_group="G")
    commit(peer, "G", "TopicA", 0, 1)
    again = light.restarted(**LIGHT)
    kept = loads(again.disk.read_file("/store/config/lmqConsumerOffset.json"))
    assert kept["lmqOffsetTable"] == {f"{ONE}@{GROUP}": 2}
    assert kept["offsetTable"] == {"TopicA@G": {"0": 1}}
    assert not again.disk.exists("/store/config/consumerOffset.json")
    peer = again.connect()
    assert committed(peer, GROUP, ONE) == 2
    assert committed(peer, "G", "TopicA") == 1
    again.stop()


def test_switching_light_queues_on_forgets_no_offset(broker: SmallBroker, peer: Peer) -> None:
    peer.send("TopicA", b"x")
    peer.pull("TopicA", consumer_group="G")
    commit(peer, "G", "TopicA", 0, 1)
    again = broker.restarted(**LIGHT)
    assert committed(again.connect(), "G", "TopicA") == 1
    again.stop()


def test_without_the_option_there_are_no_light_queues(broker: SmallBroker, peer: Peer) -> None:
    send(peer, 0, ONE)
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_header(ONE))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "INNER_MULTI_QUEUE_OFFSET" not in peer.pull("TopicA").messages[0].properties


def test_too_many_light_queues_are_refused_in_the_official_words() -> None:
    broker = SmallBroker(**LIGHT, max_lmq_consume_queue_num=1)
    peer = broker.connect()
    send(peer, 0, ONE)
    text = properties(UNIQ_KEY="u", INNER_MULTI_DISPATCH="%LMQ%two")
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_header(properties=text), b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
    broker.stop()


WAITING = [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}]


@pytest.mark.parametrize("later", WAITING)
def test_what_could_not_be_put_when_its_time_has_come_is_refused_at_once(
    later: dict[str, str],
) -> None:
    broker = SmallBroker(max_lmq_consume_queue_num=1, **LIGHT)
    peer = broker.connect()
    send(peer, 0, ONE)
    for names, code in (
        ("%LMQ%other", ResponseCode.SYSTEM_ERROR),
        ("plain", ResponseCode.MESSAGE_ILLEGAL),
        (ONE, ResponseCode.SUCCESS),
    ):
        text = properties(UNIQ_KEY="id", INNER_MULTI_DISPATCH=names, **later)
        answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_header(properties=text), b"later")
        assert answer.code == code
    for _ in range(30):
        broker.clock.advance(0.1)
    assert peer.pull(ONE).bodies == [b"0", b"later"]
    broker.stop()


@pytest.mark.parametrize("later", WAITING)
def test_a_message_for_too_many_light_queues_holds_up_nobody_when_its_time_has_come(
    later: dict[str, str],
) -> None:
    broker = SmallBroker(max_lmq_consume_queue_num=1, **LIGHT)
    peer = broker.connect()
    for body, names in ((b"light", ONE), (b"plain", "")):
        found = {"INNER_MULTI_DISPATCH": names} if names else {}
        text = properties(UNIQ_KEY=body.decode(), **found, **later)
        assert peer.send(body=body, properties=text).queue_offset >= 0
    send(peer, 1, "%LMQ%first")
    for _ in range(30):
        broker.clock.advance(0.1)
    assert peer.pull("TopicA").bodies == [b"light", b"plain"]
    assert peer.pull(ONE).code == ResponseCode.PULL_NOT_FOUND
    broker.stop()


def test_a_message_of_light_queues_is_sent_back_however_many_there_are() -> None:
    """A retry is put into no light queue."""
    broker = SmallBroker(max_lmq_consume_queue_num=0, enable_multi_dispatch=True)
    peer = broker.connect()
    send(peer, 0, "%LMQ%one,%LMQ%two")
    (message,) = peer.pull("TopicA").messages
    broker.store_config.enable_lmq = True
    send_back(peer, message)
    for _ in range(11):
        broker.clock.advance(1)
    assert peer.pull("%RETRY%G").bodies == [b"0"]
    broker.stop()


@pytest.mark.parametrize("each", [False, True])
def test_light_queues_are_counted_together_unless_wanted_otherwise(each: bool) -> None:
    broker = SmallBroker(**LIGHT, enable_lmq_stats=each)
    peer = broker.connect()
    for name in ("%LMQ%one", "%LMQ%two"):
        send(peer, 0, name)
        peer.pull(name, consumer_group=GROUP)
    wanted = {f"%LMQ%one@{GROUP}", f"%LMQ%two@{GROUP}"} if each else {"%LMQ%@%LMQ%"}
    assert set(broker.core.stats.groups) == wanted
    assert sum(counter.messages for counter in broker.core.stats.groups.values()) == 2
    broker.stop()
