"""When is an old stretch of a logical queue forgotten?

Stands for ``TopicQueueMappingCleanService``. In the hours of `deleteWhen`: a leader forgets its queues' oldest stretch once that holds no
message any more, and a broker forgets a queue that was led elsewhere and has moved on from there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.static_topics.table import StaticTopics
from txrocketmq.codec.bodies import TopicStatsTable, decode_body
from txrocketmq.codec.headers import GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader
from txrocketmq.errors import BodyError, ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)


class MappingCleaner:
    """Goes over the mappings, one topic after the other."""

    _log = Logger()

    def __init__(
        self,
        store: IMessageStore,
        table: StaticTopics,
        others: OtherBrokers,
        broker: str,
        is_time: Callable[[], bool],
    ) -> None:
        self._store = store
        self._table = table
        self._others = others
        self._broker = broker
        self._is_time = is_time
        self._running: Deferred[None] | None = None

    def sweep(self) -> None:
        """Begin a round if it is time for one."""
        if self._running is None and self._is_time():
            self._running = Deferred.fromCoroutine(self._clean())
            self._running.addErrback(self._failed).addCallback(self._ended)

    def stop(self) -> None:
        """Give up a round that runs."""
        if self._running is not None:
            self._running.cancel()

    def _failed(self, failure: Failure) -> None:
        self._log.warn("a round over static topics failed: {reason}", reason=failure.value)

    def _ended(self, ignored: None) -> None:
        self._running = None

    async def _clean(self) -> None:
        for topic in tuple(self._table.names):
            for clean in (self._forget_empty, self._forget_moved):
                detail = self._table.names.get(topic)
                if detail is None:
                    break
                try:
                    queues = await clean(topic, detail)
                except (ResponseError, BodyError) as error:
                    self._log.warn("{topic} is not cleaned: {error}", topic=topic, error=error)
                    continue
                if queues != detail.hosted_queues and self._table.names.get(topic) is detail:
                    changed = msgspec.structs.replace(detail, hosted_queues=queues)
                    await self._table.put(changed)

    # ----------------------------------------------------------------- stretches without messages

    async def _forget_empty(
        self, topic: str, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        queues = dict(detail.hosted_queues)
        stats: dict[str, TopicStatsTable] = {}
        for number in self._table.led(topic):
            items = queues[number]
            if len(items) > 1 and await self._is_empty(topic, items[0], stats):
                queues[number] = items[1:]
                self._log.info(
                    "{topic}-{number}: the stretch of broker {broker} is empty and forgotten",
                    topic=topic,
                    number=number,
                    broker=items[0].bname,
                )
        return queues

    async def _is_empty(
        self, topic: str, item: LogicQueueMappingItem, stats: dict[str, TopicStatsTable]
    ) -> bool:
        broker = item.bname or ""
        if broker == self._broker:
            if self._store.incomplete(topic, item.queue_id) is not None:
                return False
            start = self._store.min_offset(topic, item.queue_id)
            end = self._store.max_offset(topic, item.queue_id)
            return start == end or end == 0
        if broker not in stats:
            header = GetTopicStatsInfoRequestHeader(topic=topic, broker_name=broker, logical=False)
            answer = await self._others.ask(broker, RequestCode.GET_TOPIC_STATS_INFO, header)
            if answer.code != ResponseCode.SUCCESS:
                raise ResponseError(answer.code, answer.remark or "")
            stats[broker] = decode_body(TopicStatsTable, bytes(answer.body))
        found = stats[broker].offset_table.get(
            MessageQueue(topic=topic, broker_name=broker, queue_id=item.queue_id)
        )
        # Nothing known of the queue is no proof that it is empty.
        return found is not None and found.max_offset in (0, found.min_offset)

    # ----------------------------------------------------------------- queues that moved on

    async def _forget_moved(
        self, topic: str, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        elsewhere = {
            number: items[-1].bname
            for number, items in detail.hosted_queues.items()
            if items and items[-1].bname != self._broker
        }
        if not elsewhere:
            return detail.hosted_queues
        route = await self._others.route(topic)
        infos = {} if route is None else route.topic_queue_mapping_by_broker or {}
        led_now = {
            number: (info.epoch, broker)
            for broker, info in sorted(infos.items(), key=lambda pair: pair[1].epoch)
            for number in info.curr_id_map
        }
        queues = dict(detail.hosted_queues)
        for number, believed in elsewhere.items():
            _, leader = led_now.get(number, (0, believed))
            if leader in (believed, None) or leader == self._broker:
                continue
            if await self._is_led_by(leader or "", topic, number, detail):
                del queues[number]
                self._log.info(
                    "{topic}-{number} moved on to broker {broker} and is forgotten here",
                    topic=topic,
                    number=number,
                    broker=leader,
                )
        return queues

    async def _is_led_by(
        self, broker: str, topic: str, number: int, ours: TopicQueueMappingDetail
    ) -> bool:
        header = GetTopicConfigRequestHeader(topic=topic, broker_name=broker, logical=True)
        answer = await self._others.ask(broker, RequestCode.GET_TOPIC_CONFIG, header)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "")
        theirs = decode_body(TopicConfigAndQueueMapping, bytes(answer.body)).mapping_detail
        if theirs is None or (theirs.epoch, theirs.total_queues) != (ours.epoch, ours.total_queues):
            return False
        items = theirs.hosted_queues.get(number)
        return bool(items) and items is not None and items[-1].bname == broker
