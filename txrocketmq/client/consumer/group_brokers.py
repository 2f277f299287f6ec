"""What does a consumer group ask of brokers? Offsets, locks, pulls and messages given back, each at the right member.

Stands for the broker halves of ``PullAPIWrapper``, ``RemoteBrokerOffsetStore``, ``RebalanceImpl.lock`` and ``sendMessageBack`` of the official
consumers. Who keeps a queue is looked up in the route table; a broker that is not in it makes the route be asked for once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.offload import LARGE_BODY_BYTES, threads_of
from txrocketmq.client.results import FoundBroker, PullResult
from txrocketmq.client.static_topics import is_logical
from txrocketmq.codec.compress import DEFAULT_LEVEL, compress_body
from txrocketmq.codec.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocketmq.errors import BrokerError, MQClientError, RocketMQError
from txrocketmq.model import properties as props
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB_TYPE,
    PULL_COMMIT_OFFSET,
)
from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.names import AUTO_CREATE_TOPIC_KEY_TOPIC, MASTER_ID, retry_topic
from txrocketmq.model.properties import format_properties

if TYPE_CHECKING:
    from txrocketmq.client.instance import ClientInstance

log = Logger()

OFFSET_TIMEOUT_MS = 5000
LOCK_TIMEOUT_MS = 1000
SEND_BACK_TIMEOUT_MS = 5000
CLIENT_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
FIRST_RETRY_LEVEL = 3
"""Delay level of a first retry; each further one is one level later."""

COMPRESSED_FROM = 4_096
"""Bodies of at least so many bytes are compressed when they are sent anew (official default of producers)."""


class GroupBrokers:
    """The brokers as one consumer group of one client sees them.

    :param group: with its name space.
    """

    def __init__(self, instance: ClientInstance, group: str, unit_mode: bool = False) -> None:
        self._instance = instance
        self._api = instance.api
        self._routes = instance.routes
        self._group = group
        self._unit_mode = unit_mode
        self._no_lite_pull: set[str] = set()

    # ------------------------------------------------------------------ members

    async def _find(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, only_this: bool = False
    ) -> FoundBroker:
        """A member of the queue's broker group; the route is asked for once when there is none."""
        found = self._routes.find_broker(self._routes.broker_of(queue), broker_id, only_this)
        if found is None:
            await self._routes.update(queue.topic)
            found = self._routes.find_broker(self._routes.broker_of(queue), broker_id, False)
        if found is None:
            raise MQClientError(f"The broker[{queue.broker_name}] not exist")
        return found

    async def _master(self, queue: MessageQueue) -> str:
        found = await self._find(queue, only_this=True)
        if found.is_slave:
            raise MQClientError(
                f"broker {queue.broker_name} has no master now; a slave cannot say this"
            )
        return found.address

    def refresh_route(self, topic: str) -> None:
        """Ask the name server for a topic's route in the background: some broker of it cannot be reached."""
        self._routes.update(topic).addErrback(_ignored)

    # ------------------------------------------------------------------ offsets

    def query_offset(self, queue: MessageQueue) -> Deferred[int | None]:
        """See `IBrokerOffsets`. What a slave does not know is not taken for "no offset": its knowledge is older."""
        return Deferred.fromCoroutine(self._query_offset(queue))

    async def _query_offset(self, queue: MessageQueue) -> int | None:
        found = await self._find(queue, only_this=True)
        try:
            return await self._api.query_consumer_offset(
                found.address,
                self._group,
                queue,
                OFFSET_TIMEOUT_MS,
                zero_if_not_found=False if found.is_slave else None,
            )
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            if found.is_slave:
                raise MQClientError(
                    f"only a slave of broker {queue.broker_name} could be asked for the offset of "
                    f"group {self._group}, and it knows none"
                ) from None
            return None

    def commit_offset(self, queue: MessageQueue, offset: int, wait: bool) -> Deferred[None]:
        """See `IBrokerOffsets`."""
        return Deferred.fromCoroutine(self._commit_offset(queue, offset, wait))

    async def _commit_offset(self, queue: MessageQueue, offset: int, wait: bool) -> None:
        found = await self._find(queue)
        await self._api.update_consumer_offset(
            found.address, self._group, queue, offset, OFFSET_TIMEOUT_MS, oneway=not wait
        )

    def max_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The offset that the next message of a queue will get. Asked of the master alone."""
        return Deferred.fromCoroutine(self._max_offset(queue))

    async def _max_offset(self, queue: MessageQueue) -> int:
        return await self._api.max_offset(await self._master(queue), queue, OFFSET_TIMEOUT_MS)

    def min_offset(self, queue: MessageQueue) -> Deferred[int]:
        """The smallest offset that can be read."""
        return Deferred.fromCoroutine(self._min_offset(queue))

    async def _min_offset(self, queue: MessageQueue) -> int:
        return await self._api.min_offset(await self._master(queue), queue, OFFSET_TIMEOUT_MS)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> Deferred[int]:
        """The offset of the first message that was stored then or later."""
        return Deferred.fromCoroutine(self._search_offset(queue, timestamp_ms))

    async def _search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        address = await self._master(queue)
        return await self._api.search_offset(address, queue, timestamp_ms, OFFSET_TIMEOUT_MS)

    # ------------------------------------------------------------------ pull

    def pull(
        self,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        broker_id: int,
        timeout_ms: int,
        lite: bool = False,
    ) -> Deferred[tuple[PullResult, bool]]:
        """Pull from a member of the queue's brokers, or another one when that is not known.

        :return: the result, and whether a slave gave it.
        """
        found = self._routes.find_broker(self._routes.broker_of(queue), broker_id)
        if found is None:
            return Deferred.fromCoroutine(self._find(queue, broker_id)).addCallback(
                self._pull_from, queue, header, timeout_ms, lite
            )
        return self._pull_from(found, queue, header, timeout_ms, lite)

    def _pull_from(
        self,
        found: FoundBroker,
        queue: MessageQueue,
        header: PullMessageRequestHeader,
        timeout_ms: int,
        lite: bool,
    ) -> Deferred[tuple[PullResult, bool]]:
        if found.is_slave:
            # A slave's offsets come from its master.
            header.sys_flag &= ~PULL_COMMIT_OFFSET
        lite = lite and found.address not in self._no_lite_pull
        asked = self._api.pull_message(found.address, queue.broker_name, header, timeout_ms, lite)
        if lite:
            asked.addErrback(
                self._without_lite, found.address, queue.broker_name, header, timeout_ms
            )
        if is_logical(queue.broker_name):
            asked.addCallback(_number_logically, queue)
        return asked.addCallback(lambda result: (result, found.is_slave))

    def _without_lite(
        self,
        failure: Failure,
        address: str,
        broker_name: str,
        header: PullMessageRequestHeader,
        timeout_ms: int,
    ) -> Deferred[PullResult] | Failure:
        """Brokers of the 4.9 line know no request of its own for lite pulls: they are asked for plain ones from then on."""
        error = failure.value
        if (
            not isinstance(error, BrokerError)
            or error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        ):
            return failure
        self._no_lite_pull.add(address)
        return self._api.pull_message(address, broker_name, header, timeout_ms, False)

    # ------------------------------------------------------------------ locks

    def lock(
        self, queues: Iterable[MessageQueue]
    ) -> Deferred[tuple[set[MessageQueue], set[MessageQueue]]]:
        """Ask the masters for queues to own alone: those that were granted, and those that were refused. Queues whose broker did not
        answer are in neither."""
        client_id = self._instance.client_id
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()

        def answered(yes: set[MessageQueue], mine: list[MessageQueue]) -> None:
            granted.update(yes)
            refused.update(set(mine) - yes)

        asked = [
            self._api.lock_batch(
                address, self._group, client_id, mine, LOCK_TIMEOUT_MS
            ).addCallbacks(answered, self._not_locked, callbackArgs=(mine,), errbackArgs=(name,))
            for name, address, mine in self._by_master(queues)
        ]
        done: Deferred[list[None]] = gatherResults(asked)
        return done.addCallback(lambda _: (granted, refused))

    def _not_locked(self, failure: Failure, broker_name: str) -> None:
        log.warn(
            "group {group}: no lock from broker {broker}: {reason}",
            group=self._group,
            broker=broker_name,
            reason=failure.getErrorMessage(),
        )

    def unlock(self, queues: Iterable[MessageQueue], oneway: bool = True) -> Deferred[None]:
        """Give queues back; failures are logged, the broker forgets locks that are not renewed."""
        client_id = self._instance.client_id
        asked = [
            self._api.unlock_batch(
                address, self._group, client_id, mine, LOCK_TIMEOUT_MS, oneway
            ).addErrback(self._not_unlocked, name)
            for name, address, mine in self._by_master(queues)
        ]
        if not asked:
            return succeed(None)
        done: Deferred[list[None]] = gatherResults(asked)
        return done.addCallback(lambda _: None)

    def _not_unlocked(self, failure: Failure, broker_name: str) -> None:
        log.warn(
            "group {group}: broker {broker} could not be told of given back queues: {reason}",
            group=self._group,
            broker=broker_name,
            reason=failure.getErrorMessage(),
        )

    def _by_master(
        self, queues: Iterable[MessageQueue]
    ) -> list[tuple[str, str, list[MessageQueue]]]:
        """Queues by broker name, with the master's address; without those that have no master."""
        by_name: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_name.setdefault(self._routes.broker_of(queue), []).append(queue)
        found = []
        for name, mine in by_name.items():
            address = self._routes.master_address(name)
            if address is not None:
                found.append((name, address, mine))
        return found

    # ------------------------------------------------------------------ messages given back

    async def send_back(
        self, message: MessageExt, origin_topic: str, delay_level: int, max_reconsume_times: int
    ) -> None:
        """Have a message consumed again later: its broker is told, else it is sent anew to the group's retry topic.

        :param origin_topic: its topic, with name space.
        :param delay_level: 0 has the broker choose by the number of tries, -1 gives the message up.
        :raises RocketMQError: neither worked; the message is still in the hands of the caller.
        """
        if is_logical(message.broker_name):
            # Its place is one of the logical queue, by which no broker finds it.
            await self.send_anew(message, origin_topic, max_reconsume_times)
            return
        address = self._routes.master_address(message.broker_name)
        try:
            if address is None:
                raise MQClientError(f"Broker[{message.broker_name}] master node does not exist")
            header = ConsumerSendMsgBackRequestHeader(
                group=self._group,
                origin_topic=origin_topic,
                offset=message.physical_offset,
                delay_level=delay_level,
                origin_msg_id=message.uniq_key or message.msg_id,
                max_reconsume_times=max_reconsume_times,
                unit_mode=self._unit_mode,
                broker_name=message.broker_name,
            )
            await self._api.send_message_back(address, header, SEND_BACK_TIMEOUT_MS)
        except RocketMQError as error:
            log.warn(
                "group {group}: message {id} could not be given back: {reason}; sending it anew",
                group=self._group,
                id=message.msg_id,
                reason=error,
            )
            await self.send_anew(message, origin_topic, max_reconsume_times)

    async def send_anew(
        self, message: MessageExt, origin_topic: str, max_reconsume_times: int
    ) -> None:
        """Send a message to the group's retry topic; the broker makes a dead letter of it when it was tried too often.

        :raises RocketMQError: no broker took it.
        """
        body, sys_flag = await self._wire_body(message)
        topic = retry_topic(self._group)
        tries = message.reconsume_times + 1
        properties = dict(message.properties)
        properties.setdefault(props.ORIGIN_MESSAGE_ID, message.uniq_key or message.msg_id)
        properties[props.RETRY_TOPIC] = origin_topic
        properties[props.RECONSUME_TIME] = str(tries)
        properties[props.MAX_RECONSUME_TIMES] = str(max_reconsume_times)
        properties[props.DELAY_TIME_LEVEL] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        properties.pop(props.TRANSACTION_PREPARED, None)
        publish = await self._routes.find_publish(topic)
        # Its own broker first, any other that has the topic after it.
        queues = sorted(publish.queues, key=lambda q: q.broker_name != message.broker_name)
        last: RocketMQError = MQClientError(f"topic {topic} has no queue to write to")
        tried: set[str] = set()
        for queue in queues:
            address = self._routes.master_address(queue.broker_name)
            if address is None or queue.broker_name in tried:
                continue
            tried.add(queue.broker_name)
            header = SendMessageRequestHeaderV2(
                producer_group=CLIENT_INNER_PRODUCER,
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
                default_topic_queue_nums=1,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=int(self._instance.clock.seconds() * 1000),
                flag=message.flag,
                properties=format_properties(properties).decode("utf-8", "replace"),
                reconsume_times=tries,
                unit_mode=self._unit_mode,
                max_reconsume_times=max_reconsume_times,
                broker_name=queue.broker_name,
            )
            try:
                await self._api.ask(
                    address, RequestCode.SEND_MESSAGE_V2, header, body, SEND_BACK_TIMEOUT_MS
                )
            except RocketMQError as error:
                last = error
            else:
                return
        raise last

    async def _wire_body(self, message: MessageExt) -> tuple[bytes, int]:
        """A message's body as it is sent anew, with the flags for it: compressed like that of any producer, for it may be larger than the
        broker's limit without.

        :raises MQClientError: the body was not read.
        """
        config = self._instance.config
        if not config.decode_read_body:
            raise MQClientError("the body was not read, see decode_read_body")
        body, was_compressed = message.body, message.sys_flag & COMPRESSED_FLAG
        if was_compressed and not config.decode_decompress_body:
            return body, message.sys_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)
        if len(body) < COMPRESSED_FROM:
            return body, 0
        kind = message.sys_flag & COMPRESSION_TYPE_MASK if was_compressed else 0
        kind = kind or COMPRESSION_ZLIB_TYPE
        offload = threads_of(self._instance.clock) if len(body) >= LARGE_BODY_BYTES else None
        if offload is None:
            return compress_body(body, kind, DEFAULT_LEVEL), COMPRESSED_FLAG | kind
        packed: bytes = await offload(compress_body, body, kind, DEFAULT_LEVEL)
        return packed, COMPRESSED_FLAG | kind


def _number_logically(result: PullResult, queue: MessageQueue) -> PullResult:
    for message in result.messages:
        message.queue_id = queue.queue_id
    return result


def _ignored(failure: Failure) -> None:
    """Somebody else will notice, and say so."""
