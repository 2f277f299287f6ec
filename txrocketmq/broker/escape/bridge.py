"""Where does a broker put what it delivers later: delayed and timed messages, open transactions, records of POP?

Stands for ``EscapeBridge``. A master puts it into its own log. A slave that acts for its lost master must not write, else its log
would not be the beginning of the master's: with `enableRemoteEscape` it sends the message to another master of the cluster, as a producer
would. A message whose topic no other broker has stays where it is, and whoever wants to deliver it tries again::

    put(record) -> master: its own store
                -> slave: route of the topic -> SEND_MESSAGE_V2 to the next queue of another broker
                                             `-> a queue that is always the same one, for records that must meet

Also the other way: a check point of POP that came here from elsewhere names messages of its own broker, which are read there (`find`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.escape.places import Place, places_of, specific_place
from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.static_topics.table import NowAt
from txrocketmq.broker.stored import NEVER_TAKEN, value_of
from txrocketmq.broker.timer.times import TIMER_PROPERTIES
from txrocketmq.codec.headers import (
    GetMinOffsetRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocketmq.codec.record import decode_record
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import BodyError, RecordError, ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.message import MessageExt, MessageRecord
from txrocketmq.model.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    is_retry_topic,
)
from txrocketmq.model.properties import format_properties, parse_properties
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

FRESH_MS = 5_000
"""How long a route is believed; less when a broker of it did not take a message."""
NOWHERE_MS = 1_000
"""How long it is believed that no other broker has a topic: messages are tried again ten times a second."""
MAX_ROUTES = 1_000
NEW_TOPIC_QUEUES = 8
PULL_BYTES = 2**31 - 1
_SUBSCRIPTION = 4
"""Bit of a pull's system flag: the subscription is in the request."""
_OLD_HOSTS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
"""Bits of a message's flag that say what its hosts are; the other broker writes hosts of its own."""
_SLAVE = "SLAVE"
AGAIN_LEVEL = 3
"""The delay level (ten seconds) of a message that another broker has to take, and does not."""
ASKS_FOR_DELAY = (props.DELAY_TIME_LEVEL, *TIMER_PROPERTIES)
"""What would delay a message again at another broker."""

_STATUSES = {
    ResponseCode.SUCCESS.value: PutMessageStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: PutMessageStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: PutMessageStatus.SLAVE_NOT_AVAILABLE,
}
_NEVER_STORED = (props.TRANSACTION_PREPARED,)
"""A committed transaction still has this property; sent again it would be half a message once more."""


_PERHAPS_LIGHT = (*NEVER_TAKEN, PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
_NOT_TAKEN = PutMessageResult(PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL, is_remote=True)


class _Route(NamedTuple):
    places: list[Place]
    until_ms: int


class EscapeBridge:
    """Puts messages here or elsewhere.

    :ivar now_at: where the logical queue is by now of which a queue of this broker was a stretch; see `StaticTopics.now_at`.
    :ivar escaped: how many other brokers took since the start.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        others: OtherBrokers,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._store = store
        self._others = others
        self._now_ms = now_ms
        self._routes: dict[str, _Route] = {}
        self._turn = 0
        self._refusal: str | None = None
        self.now_at: Callable[[str, int], NowAt | None] = lambda topic, queue_id: None
        self.escaped = 0

    @property
    def is_local(self) -> bool:
        """Whether messages go into this broker's own log."""
        return self._store_config.broker_role != _SLAVE

    @property
    def is_open(self) -> bool:
        """Whether messages can be put anywhere at all."""
        config = self._config
        return self.is_local or (config.enable_slave_acting_master and config.enable_remote_escape)

    # ----------------------------------------------------------------- putting

    def put(self, record: MessageRecord) -> PutMessageResult | Deferred[PutMessageResult]:
        """Put a message into its topic: here on a master, at any other broker on a slave.

        A slave's result says nothing of where the message is (`PutMessageResult.is_remote`); nothing is raised.
        """
        if self.is_local:
            return self._put_here(record)
        is_specific = record.topic.startswith(REVIVE_TOPIC_PREFIX)
        return Deferred.fromCoroutine(self._escape(record, is_specific=is_specific))

    def _put_here(self, record: MessageRecord) -> PutMessageResult | Deferred[PutMessageResult]:
        """Put a message that waited. Where it cannot be put into its light queues, as there are too many by now, it goes to its topic alone:
        it was acknowledged, and others wait behind it."""
        moved = self.now_at(record.topic, record.queue_id)
        if moved is not None and moved.broker_name is not None:
            return Deferred.fromCoroutine(
                self._send_on(record, Place(moved.broker_name, moved.queue_id))
            )
        if moved is not None:
            record = msgspec.structs.replace(record, queue_id=moved.queue_id)
        put = self._store.put_message(record)
        if (
            isinstance(put, Deferred)
            or put.status not in _PERHAPS_LIGHT
            or props.INNER_MULTI_DISPATCH.encode() not in record.properties
        ):
            return put
        self._log.error(
            "a message of {topic} cannot be put into its light queues, and is put to its topic alone: {status}",
            topic=record.topic,
            status=put.status.name,
        )
        return self._store.put_message(without(record, props.INNER_MULTI_DISPATCH))

    async def _send_on(self, record: MessageRecord, place: Place) -> PutMessageResult:
        """Send a message that waited to the broker that leads its logical queue by now: behind the end of its old queue nobody looks. While that
        broker does not take it, it waits once more."""
        try:
            return await self._send(without(record, *ASKS_FOR_DELAY), place, False)
        except (ResponseError, BodyError) as error:
            self._refused(str(error), record.topic)
        again = {
            **parse_properties(record.properties),
            props.DELAY_TIME_LEVEL: str(AGAIN_LEVEL),
            props.REAL_TOPIC: record.topic,
            props.REAL_QUEUE_ID: str(record.queue_id),
        }
        waits = msgspec.structs.replace(
            record,
            topic=SCHEDULE_TOPIC,
            queue_id=AGAIN_LEVEL - 1,
            properties=format_properties(again),
        )
        return await value_of(self._store.put_message(waits))

    def has_moved(self, record: MessageRecord) -> bool:
        """Whether a message's queue was one of a logical queue that is elsewhere by now."""
        return self.is_local and self.now_at(record.topic, record.queue_id) is not None

    def put_to_specific_queue(
        self, record: MessageRecord, beside: str | None = None
    ) -> PutMessageResult | Deferred[PutMessageResult]:
        """As `put`, with one queue for all messages of a topic.

        :param beside: where no other broker has the topic, it is made at one that has this topic.
        """
        if self.is_local:
            return self._store.put_message(record)
        return Deferred.fromCoroutine(self._escape(record, is_specific=True, beside=beside))

    async def put_half(self, record: MessageRecord) -> bool:
        """Let another broker ask for the outcome of a transaction; whether one does.

        :param record: the message for its own topic, prepared.
        """
        return (await self._escape(record, is_half=True)).is_ok

    async def _escape(
        self,
        record: MessageRecord,
        *,
        is_specific: bool = False,
        is_half: bool = False,
        beside: str | None = None,
    ) -> PutMessageResult:
        if not self.is_open:
            self._refused(
                "enableSlaveActingMaster and enableRemoteEscape are not both set", record.topic
            )
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        try:
            places = await self._places(record.topic, beside)
            if not places:
                self._refused("no other broker has a queue for it", record.topic)
                return _NOT_TAKEN
            if is_specific:
                place = specific_place(places, record.topic, record.store_host)
            else:
                place = places[self._turn % len(places)]
                self._turn += 1
            return await self._send(record, place, is_half)
        except (ResponseError, BodyError) as error:
            self._routes.pop(record.topic, None)
            self._refused(str(error), record.topic)
            return _NOT_TAKEN

    async def _places(self, topic: str, beside: str | None) -> list[Place]:
        now_ms = self._now_ms()
        known = self._routes.get(topic)
        if known is not None and now_ms < known.until_ms:
            return known.places
        own_name = self._config.broker_name
        route = await self._others.route(topic)
        places = [] if route is None else places_of(route, own_name)
        if not places and beside is not None:
            route = await self._others.route(beside)
            found = [] if route is None else places_of(route, own_name)
            places = [Place(name, 0) for name in dict.fromkeys(name for name, _ in found)]
        elif not places and is_retry_topic(topic):
            # Consumers find such a topic wherever it is; the broker makes it.
            places = [Place(name, 0) for name in await self._others.masters()]
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        self._routes[topic] = _Route(places, now_ms + (FRESH_MS if places else NOWHERE_MS))
        return places

    async def _send(self, record: MessageRecord, place: Place, is_half: bool) -> PutMessageResult:
        found = parse_properties(record.properties)
        if not is_half:
            for name in _NEVER_STORED:
                found.pop(name, None)
        header = SendMessageRequestHeaderV2(
            producer_group=found.get(props.PRODUCER_GROUP) or self._inner_group("Producer"),
            topic=record.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=place.queue_id,
            sys_flag=record.sys_flag & ~_OLD_HOSTS,
            born_timestamp=record.born_timestamp,
            flag=record.flag,
            properties=format_properties(found).decode("utf-8", "replace"),
            reconsume_times=record.reconsume_times,
            unit_mode=False,
            batch=False,
        )
        answer = await self._others.ask(
            place.broker_name, RequestCode.SEND_MESSAGE_V2, header, record.body
        )
        status = _STATUSES.get(answer.code)
        if status is None:
            raise ResponseError(answer.code, f"{place.broker_name} says: {answer.remark}")
        self._refusal = None
        self.escaped += 1
        return PutMessageResult(status, is_remote=True)

    def _inner_group(self, kind: str) -> str:
        config = self._config
        return f"Inner{kind}Group_{config.broker_name}_{config.broker_id}"

    def _refused(self, reason: str, topic: str) -> None:
        """Said once for each reason: whoever puts tries again soon."""
        if reason != self._refusal:
            self._refusal = reason
            self._log.warn(
                "a message of {topic} is not taken by another broker and waits: {reason}",
                topic=topic,
                reason=reason,
            )

    # ----------------------------------------------------------------- reading

    async def find(
        self, broker_name: str, topic: str, queue_id: int, offset: int
    ) -> MessageExt | None:
        """A message of another broker; None when that has it no more.

        :raises ResponseError: that broker cannot be asked now, or does not say.
        """
        header = PullMessageRequestHeader(
            consumer_group=self._inner_group("Consumer"),
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=self._now_ms(),
            expression_type="TAG",
            max_msg_bytes=PULL_BYTES,
            broker_name=broker_name,
        )
        answer = await self._others.ask_any(broker_name, RequestCode.PULL_MESSAGE, header)
        code = answer.code
        if code == ResponseCode.PULL_NOT_FOUND:
            await self._assert_settled(broker_name, topic, queue_id)
        if code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            return None
        if code != ResponseCode.SUCCESS:
            raise ResponseError(code, f"{broker_name} says: {answer.remark}")
        try:
            message, _ = decode_record(bytes(answer.body))
        except RecordError as error:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"what {broker_name} has there cannot be read: {error}"
            ) from error
        return message if message.queue_offset == offset else None

    async def _assert_settled(self, broker_name: str, topic: str, queue_id: int) -> None:
        """What a broker of ours does not find it may have all the same, while it derives the queue from its log.

        :raises ResponseError: it does.
        """
        header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, broker_name=broker_name)
        answer = await self._others.ask_any(broker_name, RequestCode.GET_MIN_OFFSET, header)
        if answer.code == ResponseCode.SYSTEM_BUSY:
            raise ResponseError(answer.code, f"{broker_name} says: {answer.remark}")


def without(record: MessageRecord, *names: str) -> MessageRecord:
    """A record that lacks some properties."""
    found = parse_properties(record.properties)
    if found.keys().isdisjoint(names):
        return record
    kept = {name: value for name, value in found.items() if name not in names}
    return msgspec.structs.replace(record, properties=format_properties(kept))
