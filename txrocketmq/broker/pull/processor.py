"""How is a pull answered: PULL_MESSAGE, LITE_PULL_MESSAGE?

Stands for ``PullMessageProcessor`` and ``DefaultPullMessageResultHandler``. A pull that finds nothing new waits in
`txrocketmq.broker.longpoll`; a woken pull is answered with whatever there is, is not held again and commits no offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from txrocketmq.broker.clients import Consumers
from txrocketmq.broker.consumer_offsets import SEPARATOR, ConsumerOffsets
from txrocketmq.broker.filter.consumer_filters import ConsumerFilters
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.longpoll import USUAL_PULL_BYTES, HeldPull, HeldPulls
from txrocketmq.broker.pull.broadcast import BroadcastOffsets
from txrocketmq.broker.pull.subscriptions import (
    BROKER_FORBIDDEN,
    GROUP_FORBIDDEN,
    TOPIC_FORBIDDEN,
    PullForbidden,
    Subscriptions,
)
from txrocketmq.broker.remarks import group_not_exist, topic_not_exist_for_pull
from txrocketmq.broker.slow_reads.watch import ReadWatch
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.broker.throughput import Throughput
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ResponseError, RocketMQError
from txrocketmq.interfaces import IMessageFilter, IMessageStore
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PERM_READ, PULL_COMMIT_OFFSET, PULL_SUSPEND
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.names import MASTER_ID
from txrocketmq.model.topic import TopicConfig
from txrocketmq.remoting.dispatch import Reply, Request, refusal_of
from txrocketmq.store.results import GetMessageResult, GetMessageStatus

NO_BYTE_LIMIT = 2**31 - 1

_SUCCESS = ResponseCode.SUCCESS.value
_NOT_FOUND = ResponseCode.PULL_NOT_FOUND.value
_RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY.value
_MOVED = ResponseCode.PULL_OFFSET_MOVED.value
_ALL_READ = GetMessageStatus.OFFSET_OVERFLOW_ONE
_SLAVE = "SLAVE"
_LITE_PULL = RequestCode.LITE_PULL_MESSAGE.value

#: What a consumer is told for each outcome of the store; an empty queue depends on the offset asked for as well.
_CODES = {
    GetMessageStatus.FOUND: _SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetMessageStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: _NOT_FOUND,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: _NOT_FOUND,
    GetMessageStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: _MOVED,
    GetMessageStatus.OFFSET_RESET: _MOVED,
}
_EMPTY_QUEUE = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)
_REMARKS = {status: status.name for status in GetMessageStatus}
# Official brokers make a queue when it is asked for, so consumers never hear that there is none.
_REMARKS[GetMessageStatus.NO_MATCHED_LOGIC_QUEUE] = GetMessageStatus.NO_MESSAGE_IN_QUEUE.name

Pull = Request[PullMessageRequestHeader]
Outcome = Reply | None


def _unknown() -> bool | None:
    return None


class PullProcessor:
    """Answers pulls.

    :ivar broadcast: where clients of broadcasting groups are.
    :ivar on_found: is told of each pull that is answered with messages.
    :ivar watch: sees reads that are cold or far behind; None: nobody does.
    :ivar master_is_there: of a slave: whether the group has a master; None where that is not looked at (no acting-master mode).
    :ivar held: the pulls that wait; its `HeldPulls.message_arrived` listens to the store.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        clock: IReactorTime,
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        consumers: Consumers,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        throughput: Throughput,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._stats = stats
        self._throughput = throughput
        self._clock = clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self.watch: ReadWatch | None = None
        self.on_found: Callable[[PullMessageRequestHeader, GetMessageResult], object] | None = None
        self.master_is_there: Callable[[], bool | None] = _unknown
        self.broadcast = BroadcastOffsets(
            config, store, consumers, offsets, lambda: int(clock.seconds() * 1000)
        )
        self._subscriptions = Subscriptions(config, consumers, groups, filters)
        self.held = HeldPulls(
            clock,
            self._answer_woken,
            store.is_readable,
            lambda: config.pull_thread_pool_queue_capacity,
            self._newest_record,
        )

    def pull_message(self, request: Pull) -> Outcome | Deferred[Outcome]:
        """Hand out messages of one queue, or keep the request until there are some."""
        return self._pull(request, True)

    def _newest_record(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The record of a message that just arrived, None where it is not at hand."""
        found = self._store.get_message(topic, queue_id, offset, 1, NO_BYTE_LIMIT, None)
        if found.__class__ is not GetMessageResult:
            cast("Deferred[object]", found).addErrback(lambda failure: None)
            return None
        return b"".join(found.records) if found.message_count == 1 else None

    def _answer_woken(self, pull: HeldPull) -> None:
        self.answer_again(pull.request)

    def answer_again(self, request: Pull) -> None:
        """Answer a pull that was held, with whatever there is."""
        try:
            outcome = self._pull(request, False)
        except (RocketMQError, OSError) as error:
            outcome = refusal_of(error)
        if isinstance(outcome, Deferred):
            outcome.addCallbacks(
                self._answer_later, self._answer_failed, (request,), errbackArgs=(request,)
            )
        elif outcome is not None:
            request.answer(outcome)

    @staticmethod
    def _answer_later(outcome: Outcome, request: Pull) -> None:
        if outcome is not None:
            request.answer(outcome)

    @staticmethod
    def _answer_failed(failure: Failure, request: Pull) -> None:
        request.answer(
            Reply(ResponseCode.SYSTEM_ERROR.value, remark=f"reading failed: {failure.value}")
        )

    def _pull(self, request: Pull, may_hold: bool) -> Outcome | Deferred[Outcome]:
        header = request.header
        try:
            group, topic = self._check(request)
            wanted = self._subscriptions.filter_for(header, group)
        except PullForbidden as error:
            return Reply(
                error.code, remark=error.remark, ext_fields={"forbiddenType": str(error.kind)}
            )
        reset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None and self._config.use_server_side_reset_offset:
            return self._compose(
                self._moved_to(reset, header), request, group, topic, wanted, False
            )
        begin = self.broadcast.begin(request)
        if begin >= 0:
            moved = self._moved_to(begin, header)
            return self._compose(moved, request, group, topic, wanted, False)
        watch = self.watch
        if watch is not None and watch.must_wait(request, may_hold):
            return None
        max_bytes = header.max_msg_bytes
        if max_bytes is None or max_bytes <= 0:
            max_bytes = NO_BYTE_LIMIT
        found = self._store.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            max_bytes,
            wanted,
        )
        if found.__class__ is GetMessageResult:
            return self._compose(found, request, group, topic, wanted, may_hold)
        reading = cast("Deferred[GetMessageResult]", found)
        begun_ms = int(self._clock.seconds() * 1000)
        reading.addCallback(self._note_read, header.consumer_group, begun_ms)
        return reading.addCallback(self._compose, request, group, topic, wanted, may_hold, begun_ms)

    def _note_read(self, found: GetMessageResult, group: str, begun_ms: int) -> GetMessageResult:
        """A read for which the device was asked."""
        self._throughput.get_took(int(self._clock.seconds() * 1000) - begun_ms)
        if self.watch is not None:
            self.watch.read_cold(group, found.size_bytes)
        return found

    def _moved_to(self, offset: int, header: PullMessageRequestHeader) -> GetMessageResult:
        """The outcome of a pull whose group an operator moved to another offset."""
        store = self._store
        return GetMessageResult(
            GetMessageStatus.OFFSET_RESET,
            offset,
            store.min_offset(header.topic, header.queue_id),
            store.max_offset(header.topic, header.queue_id),
        )

    def _check(self, request: Pull) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        config, header = self._config, request.header
        if not config.broker_permission & PERM_READ:
            raise PullForbidden(
                BROKER_FORBIDDEN, f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        if request.command.code == _LITE_PULL and not config.lite_pull_message_enable:
            raise PullForbidden(
                BROKER_FORBIDDEN,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, group_not_exist(header.consumer_group)
            )
        if not group.consume_enable:
            raise PullForbidden(
                GROUP_FORBIDDEN, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise ResponseError(
                ResponseCode.TOPIC_NOT_EXIST, topic_not_exist_for_pull(header.topic)
            )
        if not topic.perm & PERM_READ:
            raise PullForbidden(
                TOPIC_FORBIDDEN, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{request.connection.remote_text}]",
            )
        return group, topic

    def _compose(
        self,
        found: GetMessageResult,
        request: Pull,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        wanted: IMessageFilter | None,
        may_hold: bool,
        begun_ms: int | None = None,
    ) -> Outcome:
        """The answer.

        :param begun_ms: when the read began; None where it took no time.
        """
        header = request.header
        status = found.status
        code = _CODES[status]
        if status in _EMPTY_QUEUE and header.queue_offset != 0:
            code = _MOVED
        suggested = self._suggested(found, group)
        following = found.next_begin_offset
        if self._store_config.broker_role == _SLAVE:
            before = code
            code, suggested = self._as_slave(code, suggested, group, found)
            if code != before:
                # It is sent away with nothing: past what it was not handed out it must not go.
                following = header.queue_offset
        self.broadcast.pulled(
            request, found.next_begin_offset if code == _MOVED else header.queue_offset
        )
        key = f"{header.topic}{SEPARATOR}{header.consumer_group}"
        self._offsets.note_pull(key, header.queue_id, following)
        if may_hold and header.sys_flag & PULL_COMMIT_OFFSET:
            self._offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                request.connection.remote_text,
            )
        if (
            code == _NOT_FOUND
            and may_hold
            and header.sys_flag & PULL_SUSPEND
            and self._hold(request, wanted)
        ):
            return None
        if code == _SUCCESS:
            self._count(found, key, header, begun_ms)
        else:
            self._throughput.missed += 1
            if status is _ALL_READ:
                self._stats.by_queue.read_all(header.topic, header.consumer_group, header.queue_id)
        return Reply(
            code,
            PullMessageResponseHeader(
                suggest_which_broker_id=suggested,
                next_begin_offset=following,
                min_offset=found.min_offset,
                max_offset=found.max_offset,
                topic_sys_flag=topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag,
            ),
            found.records if code == _SUCCESS else b"",
            _REMARKS[status],
        )

    def _suggested(self, found: GetMessageResult, group: SubscriptionGroupConfig) -> int:
        """The broker id that the consumer should ask next time."""
        if not self._config.slave_read_enable or self._config.is_in_broker_container:
            return MASTER_ID
        if found.suggest_pull_from_slave:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _as_slave(
        self, code: int, suggested: int, group: SubscriptionGroupConfig, found: GetMessageResult
    ) -> tuple[int, int]:
        """What a slave answers instead. With reads off it sends consumers to the master at once, as the 4.x line does;
        and it corrects no offsets, since it may merely be behind: who is ahead of it waits until it has come so far.

        In acting-master mode whoever reads the newest goes back to a master that is there, and a slave serves while there is none."""
        has_master = self.master_is_there()
        if has_master and not found.suggest_pull_from_slave:
            return code if code == _SUCCESS else _RETRY, MASTER_ID
        if not self._config.slave_read_enable and has_master is None:
            return _RETRY, MASTER_ID
        status = found.status
        if code == _MOVED and not self._store_config.offset_check_in_slave:
            is_ahead = status != GetMessageStatus.OFFSET_TOO_SMALL
            return _NOT_FOUND if is_ahead else _RETRY, group.broker_id
        return code, suggested

    def _count(
        self,
        found: GetMessageResult,
        key: str,
        header: PullMessageRequestHeader,
        begun_ms: int | None,
    ) -> None:
        if self.watch is not None:
            self.watch.note_behind(header, found)
        flow = self._throughput
        flow.found += 1
        flow.transferred += found.message_count
        counter = self._stats.groups.get(key)
        if counter is None:
            counter = self._stats.of_group(header.topic, header.consumer_group)
        counter.messages += found.message_count
        counter.calls += 1
        counter.size_bytes += found.size_bytes
        now_ms = int(self._clock.seconds() * 1000)
        if self.on_found is not None:
            self.on_found(header, found)
        by_queue = self._stats.by_queue
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        by_queue.get_took(topic, group, queue_id, 0 if begun_ms is None else now_ms - begun_ms)
        if found.queue_offsets:
            log_end = self._store.max_physical_offset()
            by_queue.note_read(topic, group, queue_id, found.queue_offsets[-1], log_end, now_ms)

    def _hold(self, request: Pull, wanted: IMessageFilter | None) -> bool:
        header, config = request.header, self._config
        hold_ms = header.suspend_timeout_millis
        if not config.long_polling_enable:
            hold_ms = config.short_polling_time_mills
        now_ms = int(self._clock.seconds() * 1000)
        return self.held.hold(
            HeldPull(
                (header.topic, header.queue_id),
                header.queue_offset,
                now_ms + max(0, hold_ms),
                wanted,
                request.connection,
                request,
                USUAL_PULL_BYTES + len(header.subscription or "") + len(request.body),
            )
        )
