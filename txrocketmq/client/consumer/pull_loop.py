"""What does whoever pulls a queue do about trouble? The same for push consumers and for what lite pull consumers fetch ahead."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.group_brokers import GroupBrokers
from txrocketmq.client.consumer.parts import Calm
from txrocketmq.client.consumer.process_queue import ProcessQueue
from txrocketmq.client.consumer.queue_loop import QueueLoop
from txrocketmq.client.results import PullResult
from txrocketmq.errors import BrokerError, RemotingError, RocketMQError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.heartbeat import SubscriptionData
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import MASTER_ID

log = Logger()

BROKER_BUSY_S = 0.02


class Consumer(Protocol):
    """What is to be known of a consumer here."""

    group: str
    config: ClientConfig
    brokers: GroupBrokers
    calm: Calm

    @property
    def clock(self) -> IReactorTime: ...


class PullLoop(QueueLoop):
    """Pulls one queue, again and again.

    :param held: its messages that wait.
    :param quiet: nobody wants to be told that it cannot be pulled.
    """

    def __init__(
        self, consumer: Consumer, queue: MessageQueue, held: ProcessQueue, *, quiet: bool = False
    ) -> None:
        super().__init__(consumer.clock)
        self._consumer = consumer
        self._is_quiet = quiet
        self.queue = queue
        self.held = held
        # Who is asked: the member that the answer before suggested.
        self._broker_id = MASTER_ID
        # For which choice of messages; what comes for another one than is wanted by now leads past messages that are wanted.
        self._asked_for: SubscriptionData | None = None

    def ask_anew(self, wanted: SubscriptionData | None) -> None:
        """Do not wait for an answer to a pull of another choice of messages."""
        if self._waiting is not None and self._asked_for not in (None, wanted):
            self._ask_at_once()

    def _tell_moved(self, result: PullResult, asked: int) -> None:
        """The broker does not have the offset that was asked for."""
        log.warn(
            "group {group}: {queue} has offsets {low} to {high}, {asked} is not among them; going on at {next}",
            group=self._consumer.group,
            queue=self.queue,
            low=result.min_offset,
            high=result.max_offset,
            asked=asked,
            next=result.next_begin_offset,
        )

    def _following(self, result: PullResult, asked: int) -> int | None:
        """Where an answer leads; None when it leads back: what was consumed must not come again for a confused broker, which is asked
        the same a little later."""
        following = result.next_begin_offset
        if following <= asked and result.messages:
            following = max(message.queue_offset for message in result.messages) + 1
        if following >= asked:
            return following
        if self._consumer.calm.may_tell(f"back {self.queue}"):
            log.warn(
                "group {group}: {queue}: the broker names offset {offset} after {asked}; asking again",
                group=self._consumer.group,
                queue=self.queue,
                offset=result.next_begin_offset,
                asked=asked,
            )
        self._later(self._consumer.config.pull_time_delay_millis_when_exception / 1000)
        return None

    def _failed(self, failure: Failure) -> None:
        """A pull failed: another one follows later, at the master where nobody was reached."""
        self._waiting = None
        error = failure.value
        if self._stopped or self.held.dropped or isinstance(error, CancelledError):
            return
        consumer = self._consumer
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            self._later(BROKER_BUSY_S)
            return
        if not isinstance(error, RocketMQError):
            log.failure("pulling {queue}", failure, queue=self.queue)
        elif not self._is_quiet and consumer.calm.may_tell("pull"):
            log.warn(
                "group {group}: {queue} cannot be pulled: {error}",
                group=consumer.group,
                queue=self.queue,
                error=error,
            )
        if isinstance(error, RemotingError):
            self._broker_id = MASTER_ID
            consumer.brokers.refresh_route(self.queue.topic)
        self._later(consumer.config.pull_time_delay_millis_when_exception / 1000)
