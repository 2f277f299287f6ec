"""Sending against brokers of ours in memory."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import ClientWorld
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from txrocketmq.client.producer.producer import BatchPartError
from txrocketmq.client.producer.sending import SendFailedError
from txrocketmq.client.results import SendResult, SendStatus
from txrocketmq.codec.compress import decompress_body
from txrocketmq.errors import BrokerError, MQClientError, NoRouteError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import COMPRESSED_FLAG
from txrocketmq.model.javahash import java_hash
from txrocketmq.model.message import Message, MessageQueue


def test_a_message_is_stored_and_its_place_told() -> None:
    world = ClientWorld()
    producer = world.producer()
    message = Message("TopicTest", b"hello")
    message.tags, message.keys = "TagA", "k1 k2"
    result: SendResult = world.wait(producer.send(message))
    assert result.status is SendStatus.SEND_OK
    assert result.queue.topic == "TopicTest"
    assert result.msg_id == message.uniq_key
    assert len(result.offset_msg_id) == 32
    [(broker, queue_id, body, properties)] = world.stored("TopicTest")
    assert (broker, queue_id, body) == ("broker-2", result.queue.queue_id, b"hello")
    assert properties[props.UNIQ_KEY] == result.msg_id
    assert (properties[props.TAGS], properties[props.KEYS]) == ("TagA", "k1 k2")
    assert properties[props.WAIT_STORE_MSG_OK] == "true"


def test_queues_take_turns() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer()
    used = [
        (result.queue.broker_name, result.queue.queue_id)
        for result in (world.wait(producer.send(Message("TopicTest", b"x"))) for _ in range(16))
    ]
    # A topic that is made by its first messages has its four queues on each broker, as far as the route tells.
    assert {used.count(place) for place in set(used)} == {2}
    assert len(set(used)) == 8


def test_sends_before_the_start_and_after_the_stop_are_refused() -> None:
    world = ClientWorld()
    producer = world.producer()
    world.wait(producer.stop())
    with pytest.raises(MQClientError, match="not started"):
        world.wait(producer.send(Message("TopicTest", b"x")))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("TopicTest", b""), "has no body"),
        (Message("TopicTest", b"x" * 101), "101 bytes, the limit of this client is 100"),
        (Message("no spaces", b"x"), "illegal characters"),
        (Message("", b"x"), "blank"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "forbidden"),
        (Message("TopicTest", b"x", 0, {"a": "1\x022"}), "0x01 or 0x02"),
        (Message("TopicTest", b"x", 0, {"a": "1" * 40_000}), "the most is 32767"),
    ],
)
def test_what_no_broker_takes_is_refused_here(message: Message, text: str) -> None:
    world = ClientWorld()
    producer = world.producer(max_message_size=100)
    with pytest.raises(MQClientError, match=text):
        world.wait(producer.send(message))
    assert producer.in_flight == 0
    assert world.stored("TopicTest") == []


def test_no_route_says_why() -> None:
    world = ClientWorld(auto_create_topic_enable=False)
    producer = world.producer()
    with pytest.raises(NoRouteError, match="knows no topic Absent and no broker makes new topics"):
        world.wait(producer.send(Message("Absent", b"x")))


def test_a_dead_broker_in_the_route_costs_a_try_and_nothing_else() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer()
    for _ in range(8):
        world.wait(producer.send(Message("TopicTest", b"x")))
    world.network.kill("192.0.2.2:10911")
    for _ in range(8):
        result = world.wait(producer.send(Message("TopicTest", b"y")))
        assert result.queue.broker_name == "broker-3"


def test_a_send_with_its_own_time_out_waits_for_no_others() -> None:
    world = ClientWorld()
    producer = world.producer(auto_batch=True, batch_max_delay_ms=30_000)
    began_s = world.clock.seconds()
    result = world.wait(producer.send(Message("T", b"x"), timeout_ms=1000))
    assert result.status is SendStatus.SEND_OK
    assert world.clock.seconds() - began_s < 1


def test_whoever_waits_no_longer_until_a_send_would_go_leaves_nothing() -> None:
    world = ClientWorld()
    producer = world.producer(back_pressure_for_async_send_num=1)
    sent = producer.send(Message("T", b"x"))
    told: list[object] = []
    waiting = [producer.when_free().addBoth(told.append) for _ in range(3)]
    for one in waiting[:2]:
        one.cancel()
    assert [type(found) for found in told] == [Failure] * 2
    assert len(producer._sender.permits._when_free) == 1
    also = producer.when_free().addBoth(told.append)
    waiting[2].addCallback(lambda _: also.cancel())
    world.wait(sent)
    assert told[2] is None
    assert [type(found) for found in told[3:]] == [Failure]


def test_a_silent_name_server_costs_no_more_than_the_time_of_the_send() -> None:
    world = ClientWorld()
    producer = world.producer()
    table = world.name_server.dispatcher._table
    code = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    _, *rest = table[code]
    table[code] = (lambda request: Deferred(), *rest)
    began_s = world.clock.seconds()
    outcome = world.outcome(producer.send(Message("T", b"x"), timeout_ms=1000))
    assert outcome.check(SendFailedError)
    assert "no try: the route was not known within 1000 ms" in outcome.getErrorMessage()
    assert world.clock.seconds() - began_s < 1.2
    assert producer.in_flight == 0


def test_a_silent_broker_uses_up_the_time_of_all_tries() -> None:
    world = ClientWorld()
    producer = world.producer()
    world.wait(producer.send(Message("TopicTest", b"x")))
    world.network.kill("192.0.2.2:10911")
    world.network.block("192.0.2.2:10911")
    began = world.clock.seconds()
    with pytest.raises(SendFailedError, match="failed after 3"):
        world.wait(producer.send(Message("TopicTest", b"y")))
    assert 2.9 < world.clock.seconds() - began < 3.6
    assert producer.in_flight == 0


def test_one_try_may_be_kept_short_so_that_another_broker_gets_its_chance() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer(send_msg_max_timeout_per_request=500)
    for _ in range(8):
        world.wait(producer.send(Message("TopicTest", b"x")))
    world.network.kill("192.0.2.2:10911")
    world.network.block("192.0.2.2:10911")
    for _ in range(4):
        assert world.wait(producer.send(Message("TopicTest", b"y"))).queue.broker_name == "broker-3"


def test_brokers_that_take_a_request_and_say_nothing_use_up_one_budget() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer(send_msg_max_timeout_per_request=2000)
    asked: list[Any] = []
    for broker in world.brokers.values():
        _, *rest = broker.dispatcher._table[310]
        broker.dispatcher._table[310] = (asked.append, *rest)
    began = world.clock.seconds()
    with pytest.raises(SendFailedError, match="2 tries at broker-"):
        world.wait(producer.send(Message("TopicTest", b"y")))
    assert 2.9 < world.clock.seconds() - began < 3.6
    assert len(asked) == 2


class Refusing:
    """Has a broker refuse sends with a code, some times."""

    def __init__(self, broker: Any, code: int, times: int) -> None:
        from txrocketmq.remoting.dispatch import Reply

        self.asked = 0
        table = broker.dispatcher._table
        handler, *rest = table[310]

        def refuse(request: Any) -> Any:
            self.asked += 1
            if self.asked <= times:
                return Reply(code, remark="no")
            return handler(request)

        table[310] = (refuse, *rest)


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205])
def test_answers_after_which_another_try_is_made(code: int) -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer()
    for _ in range(8):
        world.wait(producer.send(Message("TopicTest", b"x")))
    refusing = Refusing(world.brokers[2], code, 100)
    for _ in range(8):
        assert world.wait(producer.send(Message("TopicTest", b"y"))).queue.broker_name == "broker-3"
    assert 1 <= refusing.asked <= 8


def test_an_answer_after_which_no_try_helps_is_raised_at_once() -> None:
    world = ClientWorld(brokers=2)
    producer = world.producer()
    refusing = [Refusing(broker, 13, 100) for broker in world.brokers.values()]
    with pytest.raises(BrokerError, match="CODE: 13 DESC: no") as caught:
        world.wait(producer.send(Message("TopicTest", b"y")))
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert sum(one.asked for one in refusing) == 1


def test_tries_are_counted() -> None:
    world = ClientWorld()
    producer = world.producer(retry_times_when_send_failed=1)
    refusing = Refusing(world.brokers[2], 2, 100)
    with pytest.raises(SendFailedError, match="2 tries at broker-2, broker-2: CODE: 2") as caught:
        world.wait(producer.send(Message("TopicTest", b"y")))
    assert caught.value.code == 2
    assert isinstance(caught.value.__cause__, BrokerError)
    assert refusing.asked == 2


def test_a_given_queue_has_one_try() -> None:
    world = ClientWorld()
    producer = world.producer()
    queue = MessageQueue(topic="TopicTest", broker_name="broker-2", queue_id=2)
    assert world.wait(producer.send(Message("TopicTest", b"y"), queue)).queue == queue
    refusing = Refusing(world.brokers[2], 2, 100)
    with pytest.raises(BrokerError, match="CODE: 2"):
        world.wait(producer.send(Message("TopicTest", b"y"), queue))
    assert refusing.asked == 1


def test_stored_but_not_safe_is_a_status_or_a_reason_to_try_again() -> None:
    world = ClientWorld(brokers=2)
    Refusing(world.brokers[2], int(ResponseCode.FLUSH_DISK_TIMEOUT), 0)
    plain = world.producer("P1")
    again = world.producer("P2", retry_another_broker_when_not_store_ok=True)
    for number in world.brokers:
        _say_not_flushed(world.brokers[number])
    result = world.wait(plain.send(Message("TopicTest", b"y")))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    before = len(world.stored("TopicTest"))
    result = world.wait(again.send(Message("TopicTest", b"y")))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(world.stored("TopicTest")) == before + 3


def _say_not_flushed(broker: Any) -> None:
    table = broker.dispatcher._table
    handler, *rest = table[310]

    def serve(request: Any) -> Any:
        reply = handler(request)
        reply.code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
        return reply

    table[310] = (serve, *rest)


def test_a_key_has_its_queue() -> None:
    world = ClientWorld()
    producer = world.producer()
    for key in ("order-1", "order-2", "Aa", "polygenelubricants"):
        found = {
            world.wait(producer.send_ordered(Message("TopicTest", b"x"), key)).queue.queue_id
            for _ in range(3)
        }
        assert found == {abs(java_hash(key)) % 4}


def test_a_selector_picks_and_its_faults_are_the_senders() -> None:
    world = ClientWorld()
    producer = world.producer()
    picked = world.wait(producer.send_by(Message("T", b"x"), lambda queues, message: queues[3]))
    assert picked.queue.queue_id == 3
    with pytest.raises(ZeroDivisionError):
        world.wait(producer.send_by(Message("T", b"x"), lambda queues, message: queues[1 // 0]))
    with pytest.raises(MQClientError, match="must return a queue"):
        world.wait(producer.send_by(Message("T", b"x"), lambda queues, message: None))  # type: ignore[arg-type,return-value]
    assert producer.in_flight == 0


def test_oneway() -> None:
    world = ClientWorld()
    producer = world.producer()
    assert world.wait(producer.send_oneway(Message("TopicTest", b"x"))) is None
    world.network.run(0.1)
    assert len(world.stored("TopicTest")) == 1


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_large_bodies_are_compressed(kind: str) -> None:
    world = ClientWorld()
    producer = world.producer(compress_type=kind)
    body = b"abcdefgh" * 1024
    message = Message("TopicTest", body)
    world.wait(producer.send(message))
    world.wait(producer.send(Message("TopicTest", body[:4095])))
    assert message.body == body
    stored = world.brokers[2].store
    found = {}
    for queue_id in range(4):
        for size, sys_flag, plain in _bodies(stored, queue_id):
            found[plain] = (size, sys_flag & COMPRESSED_FLAG)
    assert found[body][0] < 1000
    assert found[body][1] == COMPRESSED_FLAG
    assert found[body[:4095]] == (4095, 0)


def test_a_large_body_is_compressed_elsewhere_and_may_be_cancelled_meanwhile() -> None:
    world = ClientWorld()
    producer = world.producer()
    working: list[tuple[Deferred[Any], Any]] = []

    def offload(function: Any, *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        working.append((done, lambda: function(*arguments)))
        return done

    producer._sender.offload = offload
    body = b"abcdefgh" * 64 * 1024
    sends = [producer.send(Message("TopicTest", body)) for _ in range(3)]
    assert len(working) == 3
    sends[1].cancel()
    assert isinstance(world.outcome(sends[1]).value, CancelledError)
    done, work = working[0]
    done.callback(work())
    assert world.wait(sends[0]).status is SendStatus.SEND_OK
    working[2][0].errback(MemoryError("no room"))
    assert isinstance(world.outcome(sends[2]).value, MemoryError)
    assert producer.in_flight == 0
    [(_, _, stored, _)] = world.stored("TopicTest")
    assert len(stored) < len(body) / 10


def _bodies(store: Any, queue_id: int) -> list[tuple[int, int, bytes]]:
    from client_world import _messages

    found = []
    for offset in range(store.max_offset("TopicTest", queue_id)):
        result = store.get_message("TopicTest", queue_id, offset, 1, 1 << 24, None)
        for item in _messages(result):
            found.append((len(item.body), item.sys_flag, decompress_body(item.body, item.sys_flag)))
    return found


def test_a_batch_is_one_request_and_a_large_one_several() -> None:
    world = ClientWorld()
    producer = world.producer(max_message_size=2000)
    messages = [Message("TopicTest", bytes([65 + n]) * 200) for n in range(12)]
    results = world.wait(producer.send_batch(messages))
    assert 1 < len(results) < 12
    assert sum(len(result.msg_id.split(",")) for result in results) == 12
    assert sorted(body for _, _, body, _ in world.stored("TopicTest")) == [m.body for m in messages]
    ids = {properties[props.UNIQ_KEY] for _, _, _, properties in world.stored("TopicTest")}
    assert ids == {message.uniq_key for message in messages}
    assert len(world.wait(producer.send_batch([Message("TopicTest", b"x")]))) == 1


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "at least one"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic, not A and B"),
        ([Message("A", b"x"), Message("A", b"x", 0, {"WAIT": "false"})], "wait_store_msg_ok"),
        ([Message("A", b"x", 0, {"DELAY": "3"})], "delayed"),
        ([Message("%RETRY%G", b"x")], "retry"),
    ],
)
def test_what_cannot_be_a_batch(messages: list[Message], text: str) -> None:
    world = ClientWorld()
    producer = world.producer()
    with pytest.raises(MQClientError, match=text):
        world.wait(producer.send_batch(messages))


def test_a_part_that_fails_tells_what_is_stored() -> None:
    world = ClientWorld()
    producer = world.producer(max_message_size=2000, retry_times_when_send_failed=0)
    table = world.brokers[2].dispatcher._table
    handler, *rest = table[320]
    asked = []

    def serve(request: Any) -> Any:
        from txrocketmq.remoting.dispatch import Reply

        asked.append(request)
        return handler(request) if len(asked) == 1 else Reply(2, remark="busy")

    table[320] = (serve, *rest)
    messages = [Message("TopicTest", bytes([65 + n]) * 200) for n in range(12)]
    with pytest.raises(BatchPartError, match="part 2 of 2") as caught:
        world.wait(producer.send_batch(messages))
    stored = len(world.stored("TopicTest"))
    assert len(caught.value.sent) == 1
    assert caught.value.rest == messages[stored:]


def test_a_send_can_be_cancelled_in_each_state() -> None:
    world = ClientWorld()
    producer = world.producer(back_pressure_for_async_send_num=1)
    looking = producer.send(Message("TopicTest", b"1"))
    waiting = producer.send(Message("TopicTest", b"2"))
    for deferred in (waiting, looking):
        deferred.cancel()
        assert isinstance(world.outcome(deferred).value, CancelledError)
    asking = producer.send(Message("TopicTest", b"3"))
    world.network.run(0.002)
    asking.cancel()
    assert isinstance(world.outcome(asking).value, CancelledError)
    assert producer.in_flight == 0
    assert world.wait(producer.send(Message("TopicTest", b"4"))).status is SendStatus.SEND_OK


def test_names_carry_the_name_space_on_the_wire_alone() -> None:
    world = ClientWorld()
    producer = world.producer(client={"namespace": "NS"})
    result = world.wait(producer.send(Message("TopicTest", b"x")))
    assert result.queue.topic == "TopicTest"
    assert len(world.stored("NS%TopicTest")) == 1
    assert producer.group == "NS%PG"
    [(_, _, _, properties)] = world.stored("NS%TopicTest")
    assert properties[props.INSTANCE_ID] == "NS"


def test_the_second_listener_is_used_on_demand() -> None:
    world = ClientWorld()
    producer = world.producer(client={"vip_channel_enabled": True})
    world.wait(producer.send(Message("TopicTest", b"x")))
    assert "192.0.2.2:10909" in world.network.connects


def test_hooks_see_each_try_and_may_add_properties() -> None:
    world = ClientWorld()
    producer = world.producer()
    seen: list[Any] = []

    class Hook:
        name = "recorder"

        def before_send(self, context: Any) -> None:
            context.message.properties["added"] = "1"
            seen.append(("before", context.kind, context.queue.broker_name))

        def after_send(self, context: Any) -> None:
            seen.append(("after", context.result and context.result.status, context.error))

    class Broken:
        name = "broken"

        def before_send(self, context: Any) -> None:
            raise RuntimeError("hook")

        after_send = before_send

    producer.add_send_hook(Broken())  # type: ignore[arg-type]
    producer.add_send_hook(Hook())  # type: ignore[arg-type]
    Refusing(world.brokers[2], 2, 1)
    world.wait(producer.send(Message("TopicTest", b"x")))
    assert [item[0] for item in seen] == ["before", "after", "before", "after"]
    assert seen[1][1] is None
    assert isinstance(seen[1][2], BrokerError)
    assert seen[3][1] is SendStatus.SEND_OK
    assert world.stored("TopicTest")[0][3]["added"] == "1"


def test_a_forbidden_hook_refuses() -> None:
    world = ClientWorld()
    producer = world.producer()

    def forbid(context: Any) -> None:
        raise MQClientError("not on Sundays")

    producer.add_forbidden_hook(forbid)
    with pytest.raises(MQClientError, match="not on Sundays"):
        world.wait(producer.send(Message("TopicTest", b"x")))
    assert world.stored("TopicTest") == []
    assert producer.in_flight == 0


def test_collected_messages_become_a_batch_and_each_has_its_result() -> None:
    world = ClientWorld()
    producer = world.producer(auto_batch=True, batch_max_bytes=1000)
    first = [producer.send(Message("TopicTest", bytes([65 + n]) * 100)) for n in range(5)]
    results = [world.wait(deferred) for deferred in first]
    assert len({result.msg_id for result in results}) == 5
    assert [result.queue_offset for result in results] == list(range(5))
    assert len({result.offset_msg_id for result in results}) == 5
    bodies = {
        properties[props.UNIQ_KEY]: body for _, _, body, properties in world.stored("TopicTest")
    }
    assert [bodies[result.msg_id][:1] for result in results] == [b"A", b"B", b"C", b"D", b"E"]
    delayed = Message("TopicTest", b"x")
    delayed.delay_time_level = 1
    assert world.wait(producer.send(delayed)).status is SendStatus.SEND_OK
    failing = [producer.send(Message("a topic that is none", b"x")) for _ in range(2)]
    assert all(isinstance(world.outcome(one), Failure) for one in failing)
