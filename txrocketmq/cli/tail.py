"""What does ``txrocketmq tail`` do? Pulls every queue of a topic with long polling and shows what arrives.

It belongs to no consumer group of its own and keeps no offset: nothing on the broker changes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from txrocketmq.cli.directory import Directory, NoSuchTopicError, Queue
from txrocketmq.cli.session import one_line
from txrocketmq.codec.compress import decompress_body
from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.errors import BodyError, BrokerError, MQClientError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import pull_sys_flag
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import TOOLS_CONSUMER_GROUP, topic_fault

BATCH = 32
HOLD_MS = 15_000
PULL_TIMEOUT_MS = 30_000
OFFSET_TIMEOUT_MS = 3000
#: Seconds between two looks for a topic that is not there, or for queues that are new.
WAIT_FOR_TOPIC_S = 1.0
REFRESH_S = 10.0
#: Seconds before a broker that failed is asked again.
RETRY_S = 2.0
#: A pull that brings nothing is meant to be held by the broker; one that was not is repeated only after this many seconds.
PAUSE_S = 0.5

_FLAGS = pull_sys_flag(commit_offset=False, suspend=True, subscription=True)


class Tail:
    """Follows one topic.

    :param show: given each message as a line.
    :param note: given remarks for the operator.
    :param count: messages after which to end; None for no end.
    """

    def __init__(
        self,
        reactor: Any,
        client: IRemotingClient,
        directory: Directory,
        topic: str,
        *,
        show: Callable[[str], None],
        note: Callable[[str], None],
        from_start: bool = False,
        count: int | None = None,
    ) -> None:
        self._reactor = reactor
        self._client = client
        self._directory = directory
        self._topic = topic
        self._show = show
        self._note = note
        self._from_start = from_start
        self._left = count
        self._followed: dict[tuple[str, int], Deferred[None]] = {}
        self._away: set[Queue] = set()
        self._told: set[str] = set()
        self._ended: Deferred[None] = Deferred()

    async def run(self) -> None:
        """Follow until the wanted number was shown, or the caller cancels.

        :raises MQClientError: no name server or no broker is there, or reading is not allowed.
        :raises BrokerError: a broker refuses to be read.
        """
        fault = topic_fault(self._topic)
        if fault is not None:
            raise MQClientError(fault)
        refreshing = Deferred.fromCoroutine(self._follow_all())
        refreshing.addErrback(self._fail)
        try:
            await self._ended
        finally:
            pullers = [refreshing, *self._followed.values()]
            for puller in pullers:
                puller.cancel()
            await DeferredList(pullers, consumeErrors=True)

    def _fail(self, failure: Failure) -> None:
        if not self._ended.called and not isinstance(failure.value, CancelledError):
            self._ended.errback(failure)

    async def _follow_all(self) -> None:
        from_start = self._from_start
        waits = False
        while True:
            try:
                queues = await self._directory.queues_to_read(self._topic)
            except NoSuchTopicError:
                if not waits:
                    self._note(f"waiting for topic {self._topic} to be made")
                # All that comes then is new.
                waits = from_start = True
                await deferLater(self._reactor, WAIT_FOR_TOPIC_S)
                continue
            except MQClientError:
                if not self._followed:
                    raise
                queues = []
            for queue in queues:
                self._follow(queue, from_start)
            # Queues and brokers that join later are read whole.
            from_start = True
            await deferLater(self._reactor, REFRESH_S)

    def _follow(self, queue: Queue, from_start: bool) -> None:
        key = queue.broker_name, queue.queue_id
        if key not in self._followed:
            following = Deferred.fromCoroutine(self._pull_all(queue, from_start))
            following.addErrback(self._fail)
            self._followed[key] = following

    async def _pull_all(self, queue: Queue, from_start: bool) -> None:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    offset = await self._first_offset(queue, from_start)
                begun = self._reactor.seconds()
                following = await self._pull(queue, offset)
                self._note_back(queue)
                if following == offset and self._reactor.seconds() - begun < PAUSE_S:
                    await deferLater(self._reactor, PAUSE_S)
                offset = following
            except RemotingError as error:
                self._note_away(queue, error)
                await deferLater(self._reactor, RETRY_S)

    def _note_away(self, queue: Queue, error: RemotingError) -> None:
        """Tell once that a broker cannot be read, however many queues it has and however long it takes."""
        if queue not in self._away:
            self._away.add(queue)
            if queue.broker_name not in self._told:
                self._told.add(queue.broker_name)
                self._note(f"broker {queue.broker_name} cannot be read for now: {error}")

    def _note_back(self, queue: Queue) -> None:
        """Tell when a broker is read again: with its first queue, the others may wait for messages."""
        self._away.discard(queue)
        if queue.broker_name in self._told:
            self._told.discard(queue.broker_name)
            self._note(f"broker {queue.broker_name} is read again")

    async def _first_offset(self, queue: Queue, from_start: bool) -> int:
        if from_start:
            answer = await self._client.request(
                queue.address,
                int(RequestCode.GET_MIN_OFFSET),
                GetMinOffsetRequestHeader(topic=self._topic, queue_id=queue.queue_id),
                b"",
                OFFSET_TIMEOUT_MS,
                None,
            )
            self._check(answer, queue)
            return int(answer.decode_header(GetMinOffsetResponseHeader).offset)
        answer = await self._client.request(
            queue.address,
            int(RequestCode.GET_MAX_OFFSET),
            GetMaxOffsetRequestHeader(topic=self._topic, queue_id=queue.queue_id),
            b"",
            OFFSET_TIMEOUT_MS,
            None,
        )
        self._check(answer, queue)
        return int(answer.decode_header(GetMaxOffsetResponseHeader).offset)

    async def _pull(self, queue: Queue, offset: int) -> int:
        """Pull once; the offset to go on with."""
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_CONSUMER_GROUP,
            topic=self._topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=BATCH,
            sys_flag=_FLAGS,
            commit_offset=0,
            suspend_timeout_millis=HOLD_MS,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        answer = await self._client.request(
            queue.address, int(RequestCode.PULL_MESSAGE), header, b"", PULL_TIMEOUT_MS, None
        )
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return offset
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            self._check(answer, queue)
        if answer.code == ResponseCode.SUCCESS:
            for message in decode_records(answer.body):
                self._take(queue, message)
        return int(answer.decode_header(PullMessageResponseHeader).next_begin_offset)

    def _check(self, answer: Any, queue: Queue) -> None:
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, f"{queue.broker_name} {queue.address}")

    def _take(self, queue: Queue, message: MessageExt) -> None:
        if self._left == 0:
            return
        self._show(format_message(queue.broker_name, message))
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                # Not from here: ending cancels the coroutine that we are in.
                self._reactor.callLater(0, self._end)

    def _end(self) -> None:
        if not self._ended.called:
            self._ended.callback(None)


def format_message(broker_name: str, message: MessageExt) -> str:
    """One message as one line: store time, place, tag and keys where there are any, text."""
    stored = datetime.fromtimestamp(message.store_timestamp / 1000)
    parts = [
        stored.isoformat(" ", "milliseconds"),
        f"{one_line(broker_name)}/{message.queue_id}/{message.queue_offset}",
    ]
    if message.tags:
        parts.append(f"tag={one_line(message.tags)}")
    if message.keys:
        parts.append(f"keys={one_line(message.keys)}")
    return " ".join([*parts, _text(message)])


def _text(message: MessageExt) -> str:
    try:
        body = decompress_body(message.body, message.sys_flag)
        text = body.decode()
    except (BodyError, UnicodeDecodeError):
        return repr(message.body)
    return text if all(c.isprintable() or c == "\t" for c in text) else repr(text)
