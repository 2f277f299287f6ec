"""Which queues does this member consume, and how do they change hands?

Stands for ``RebalanceImpl`` and ``RebalancePushImpl``. A topic's queues are divided anew every 20 s, and when members or routes change. One
queue::

                 divided to us         (orderly: locked)       offset known
    not ours --------------------> wanted ------------> ours --------------> pulled
       ^                              | not granted, not known: again a second later
       |                              v
       `---- offset saved, unlocked -- leaving <-- divided to another, dropped topic, moved offset
                                        (orderly: its handler answers first)

The owner calls `Rebalancer.run` one at a time. A queue that is leaving is not taken again before it has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocketmq.client.consumer.concurrent import ConcurrentConsumption
from txrocketmq.client.consumer.dividing import divide
from txrocketmq.client.consumer.orderly import OrderlyConsumption
from txrocketmq.client.consumer.parts import Parts
from txrocketmq.client.consumer.pop import PopBrokers, PoppedOutcomes, QueuePopper
from txrocketmq.client.consumer.process_queue import PopProcessQueue, ProcessQueue
from txrocketmq.client.consumer.pulling import QueuePuller
from txrocketmq.client.consumer.start import start_offset
from txrocketmq.client.routes import NoSuchTopicError
from txrocketmq.errors import RocketMQError
from txrocketmq.model.heartbeat import build_subscription
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import is_retry_topic, pop_retry_topics

log = Logger()

AGAIN_S = 1.0
"""When it is tried again after a rebalance that could not do all it should (``rocketmq.client.rebalance.minInterval``)."""
NOT_LOCKED_S = 0.5
ASSIGNMENT_TIMEOUT_MS = 3000
ROUND_S = 1.5
"""How long a stop waits for a division that is under way; answers about locks come within a second, or not at all."""


class Rebalancer:
    """The queues of one member.

    :ivar pullers: queues that are pulled.
    :ivar poppers: queues that are popped.
    """

    def __init__(
        self,
        parts: Parts,
        consumption: ConcurrentConsumption | OrderlyConsumption,
        popped: ConcurrentConsumption,
        pop_brokers: PopBrokers,
        pop_outcomes: PoppedOutcomes,
    ) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._consumption = consumption
        self._popped = popped
        self._pop_brokers = pop_brokers
        self._pop_outcomes = pop_outcomes
        self.pullers: dict[MessageQueue, QueuePuller] = {}
        self.poppers: dict[MessageQueue, QueuePopper] = {}
        self._leaving: dict[MessageQueue, Deferred[None]] = {}
        self._locked: set[MessageQueue] = set()
        self._in_round: Deferred[None] | None = None
        self._again: IDelayedCall | None = None
        self._paused = False
        self._stopped = False
        self._needs_locks = parts.settings.orderly and parts.is_clustering
        if isinstance(consumption, OrderlyConsumption):
            consumption.on_lost = self._lost

    # ------------------------------------------------------------------ dividing

    async def run(self) -> None:
        """Divide the queues of all topics anew."""
        done: Deferred[None] = Deferred()
        self._in_round = done
        try:
            await self._run()
        finally:
            self._in_round = None
            done.callback(None)

    async def _run(self) -> None:
        topics = list(self._parts.subscriptions)
        rounds = [Deferred.fromCoroutine(self._topic(topic)) for topic in topics]
        balanced = await gatherResults(rounds)
        for queue in [
            queue for queue in self.pullers if queue.topic not in self._parts.subscriptions
        ]:
            self._remove(queue)
        for queue in [
            queue for queue in self.poppers if queue.topic not in self._parts.subscriptions
        ]:
            self._remove_popper(queue)
        self._unlock_unused(
            {queue for queue in self._locked if queue.topic not in self._parts.subscriptions}
        )
        if not all(balanced):
            self._run_again(AGAIN_S)

    def _run_again(self, seconds: float) -> None:
        if self._stopped:
            return
        if self._again is not None and self._again.active():
            if self._again.getTime() <= self._clock.seconds() + seconds:
                return
            self._again.cancel()
        self._again = self._clock.callLater(
            seconds, self._parts.instance.rebalance_now, self._parts.group
        )

    async def _topic(self, topic: str) -> bool:
        """Divide one topic's queues; False when something is left to do. What cannot be known now changes nothing."""
        try:
            settings = self._parts.settings
            if settings.client_rebalance or settings.orderly or not self._parts.is_clustering:
                return await self._divide(topic)
            return await self._ask_broker(topic)
        except NoSuchTopicError as error:
            # The retry topic comes with the first heartbeat; others may come later.
            if not is_retry_topic(topic) and self._parts.calm.may_tell(f"topic {topic}"):
                log.warn("group {group}: {error}", group=self._parts.group, error=error)
            return True
        except RocketMQError as error:
            if self._parts.calm.may_tell("rebalance"):
                log.warn(
                    "group {group}: the queues of {topic} cannot be divided now: {error}",
                    group=self._parts.group,
                    topic=topic,
                    error=error,
                )
            return False
        except Exception:
            log.failure("dividing the queues of {topic}", topic=topic)
            return False

    async def _divide(self, topic: str) -> bool:
        parts = self._parts
        found = await divide(
            parts.instance,
            parts.group,
            topic,
            parts.settings.message_model,
            parts.settings.allocate_strategy,
        )
        return False if found is None else await self._assign(topic, *found)

    async def _assign(
        self, topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> bool:
        """Give up what is not ours any more, take what is."""
        if self._stopped:
            return True
        wanted = set(mine)
        now = self._clock.seconds()
        changed = False
        for queue, puller in list(self.pullers.items()):
            if queue.topic != topic:
                continue
            if queue not in wanted:
                self._remove(queue)
                changed = True
            elif puller.held.pull_expired(now):
                log.error(
                    "group {group}: {queue} was not pulled for {seconds} s, it is assigned anew",
                    group=self._parts.group,
                    queue=queue,
                    seconds=round(now - puller.held.last_pull_s),
                )
                self._remove(queue)
                changed = True
        self._unlock_unused({queue for queue in self._locked if queue.topic == topic} - wanted)
        fresh = [queue for queue in mine if queue not in self.pullers]
        taken = await self._take([queue for queue in fresh if queue not in self._leaving])
        if changed or any(taken):
            self._log_change(topic, queues, mine)
        return len(fresh) == sum(taken)

    def _log_change(
        self, topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        log.info(
            "group {group}: {mine} of {all} queues of {topic} are consumed here, {client_id}",
            group=self._parts.group,
            mine=len(mine),
            all=len(queues),
            topic=topic,
            client_id=self._parts.instance.client_id,
        )
        listener = self._parts.settings.message_queue_listener
        if listener is not None:
            try:
                listener(topic, list(queues), list(mine))
            except Exception:
                log.failure("message queue listener of group {group}", group=self._parts.group)

    # ------------------------------------------------------------------ coming

    async def _take(self, queues: Sequence[MessageQueue]) -> list[bool]:
        """Lock queues where that is needed, and begin to pull them; which of them could be had."""
        now = self._clock.seconds()
        held = {queue: ProcessQueue(now) for queue in queues}
        if held and isinstance(self._consumption, OrderlyConsumption) and self._needs_locks:
            granted = await self._consumption.lock(held)
            self._locked |= granted
            if len(granted) < len(held):
                self._run_again(NOT_LOCKED_S)
            held = {queue: mine for queue, mine in held.items() if queue in granted}
        if self._stopped:
            return []
        begun = [Deferred.fromCoroutine(self._begin(queue, mine)) for queue, mine in held.items()]
        found = await gatherResults(begun)
        return [*found, *([False] * (len(queues) - len(found)))]

    async def _begin(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        parts = self._parts
        parts.offsets.remove(queue)
        try:
            offset = await start_offset(
                queue,
                parts.offsets,
                parts.brokers,
                parts.settings.consume_from_where,
                parts.settings.consume_timestamp,
            )
        except RocketMQError as error:
            if parts.calm.may_tell("offset"):
                log.warn(
                    "group {group}: where to begin in {queue} cannot be known now: {error}",
                    group=parts.group,
                    queue=queue,
                    error=error,
                )
            return False
        except Exception:
            # The other queues must not be begun twice for it: they are under way.
            log.failure("beginning {queue}", queue=queue)
            return False
        if self._stopped or queue.topic not in parts.subscriptions:
            return True
        self._locked.discard(queue)
        puller = QueuePuller(
            parts,
            queue,
            held,
            offset,
            self._consumption.submit,
            self._share,
            self._moved,
        )
        if self._paused:
            puller.pause()
        self.pullers[queue] = puller
        if isinstance(self._consumption, OrderlyConsumption):
            self._consumption.enter(queue, held)
        puller.start()
        return True

    def _share(self) -> int:
        return max(1, len(self.pullers))

    def _unlock_unused(self, queues: set[MessageQueue]) -> None:
        """Locks that were granted for queues that were never begun here."""
        if queues:
            self._locked -= queues
            self._parts.brokers.unlock(sorted(queues))

    # ------------------------------------------------------------------ leaving

    def _remove(
        self, queue: MessageQueue, moved_to: int | None = None, lost: bool = False
    ) -> Deferred[None]:
        """Give a queue up; fires when it has left.

        :param moved_to: from where its next owner, perhaps this member, shall go on; else from what was processed here.
        :param lost: it is another member's already, whose offset must not be overwritten.
        """
        puller = self.pullers.pop(queue)
        puller.held.dropped = True
        puller.held.discarded = lost or moved_to is not None
        puller.stop()
        left = self._leaving[queue] = Deferred()
        going = Deferred.fromCoroutine(self._leave(queue, puller.held, moved_to))
        going.addErrback(lambda failure: log.failure("giving {queue} up", failure, queue=queue))
        going.addCallback(self._left, queue)
        return left

    async def _leave(self, queue: MessageQueue, held: ProcessQueue, moved_to: int | None) -> None:
        offsets = self._parts.offsets
        if moved_to is not None:
            offsets.freeze(queue, moved_to)
        if isinstance(self._consumption, OrderlyConsumption):
            await self._consumption.leave(queue, held)
        if held.discarded and moved_to is None:
            offsets.remove(queue)
            return
        if self._needs_locks or moved_to is not None:
            # The next owner reads it at once.
            await offsets.persist_some([queue], wait=True)
        else:
            offsets.persist_some([queue])
        offsets.remove(queue)
        if self._needs_locks and held.locked:
            held.locked = False
            await self._parts.brokers.unlock([queue])

    def _left(self, _: object, queue: MessageQueue) -> None:
        self._leaving.pop(queue).callback(None)

    def _lost(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Another member has the lock: what is in memory here may have been processed there."""
        puller = self.pullers.get(queue)
        if puller is not None and puller.held is held:
            self._remove(queue, lost=True)
            self._run_again(NOT_LOCKED_S)

    def _moved(self, puller: QueuePuller, offset: int) -> None:
        """The broker's range of offsets does not hold ours: begin anew, at once unless that was so a moment ago, too."""
        is_new = self._parts.calm.may_tell(f"moved {puller.queue}")

        def begin(_: object) -> None:
            if is_new:
                self._parts.instance.rebalance_now(self._parts.group)
            else:
                self._run_again(AGAIN_S)

        self._remove(puller.queue, offset).addCallback(begin)

    def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> Deferred[None]:
        """An operator moves the group; fires when it is saved. The next rebalance goes on there."""
        left = [
            self._remove(queue, offsets[queue])
            for queue in list(self.pullers)
            if queue.topic == topic and queue in offsets
        ]
        done: Deferred[list[tuple[bool, None]]] = DeferredList(left)
        return done.addCallback(lambda _: self._parts.instance.rebalance_now(self._parts.group))

    # ------------------------------------------------------------------ divided by the broker

    async def _ask_broker(self, topic: str) -> bool:
        """Official ``getRebalanceResultFromBroker``."""
        parts = self._parts
        address = await parts.instance.find_broker_address(topic)
        found = await parts.instance.api.query_assignment(
            address,
            topic,
            parts.group,
            parts.instance.client_id,
            parts.settings.allocate_strategy.name,
            parts.settings.message_model,
            ASSIGNMENT_TIMEOUT_MS,
        )
        if found is None:
            return False
        if not is_retry_topic(topic) and found.queues:
            self._follow_mode(topic, found.pop)
        if not found.pop:
            self._pop_only(topic, ())
            return await self._assign(topic, found.queues, found.queues)
        for queue in [queue for queue in self.pullers if queue.topic == topic]:
            self._remove(queue)
        self._pop_only(topic, found.queues)
        return True

    def _follow_mode(self, topic: str, pops: bool) -> None:
        """What POP left in its retry topic must be pulled where the group does not pop any more."""
        _, retry = pop_retry_topics(topic, self._parts.group)
        if pops:
            self._parts.pop_retry.pop(retry, None)
            self._parts.subscriptions.pop(retry, None)
        elif retry not in self._parts.subscriptions:
            self._parts.pop_retry[retry] = topic
            self._parts.subscriptions[retry] = build_subscription(retry, "*")

    def _pop_only(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        now = self._clock.seconds()
        wanted = set(queues)
        changed = False
        for queue, popper in list(self.poppers.items()):
            if queue.topic == topic and (queue not in wanted or popper.held.pull_expired(now)):
                self._remove_popper(queue)
                changed = True
        for queue in queues:
            if queue not in self.poppers and not self._stopped:
                popper = QueuePopper(
                    self._parts,
                    self._pop_brokers,
                    self._pop_outcomes,
                    queue,
                    PopProcessQueue(now),
                    self._popped.submit,
                )
                if self._paused:
                    popper.pause()
                self.poppers[queue] = popper
                popper.start()
                changed = True
        if changed:
            self._log_change(topic, queues, queues)

    def _remove_popper(self, queue: MessageQueue) -> None:
        popper = self.poppers.pop(queue)
        popper.held.dropped = True
        popper.stop()

    # ------------------------------------------------------------------ all queues

    def queues(self) -> list[MessageQueue]:
        """Queues whose offsets are to be saved."""
        return [*self.pullers, *(queue for queue in self._leaving if queue not in self.pullers)]

    def _sources(self) -> list[QueuePuller | QueuePopper]:
        return [*self.pullers.values(), *self.poppers.values()]

    def pause(self) -> None:
        """Fetch nothing until `resume`."""
        self._paused = True
        for source in self._sources():
            source.pause()

    def resume(self) -> None:
        """Fetch again."""
        self._paused = False
        for source in self._sources():
            source.resume()

    def stop_fetching(self) -> None:
        """Fetch nothing more, divide nothing more. Queues stay ours, so that what is processed can still be committed."""
        self._stopped = True
        if self._again is not None and self._again.active():
            self._again.cancel()
        for source in self._sources():
            source.stop()

    async def leave_all(self) -> None:
        """Save the offsets of all queues, and unlock them. The end."""
        if self._in_round is not None:
            # It may be granted locks yet; a broker that does not answer is not waited for.
            await self._in_round.addTimeout(ROUND_S, self._clock, _no_longer)
        queues = list(self.pullers)
        waiting = list(self._leaving.values())
        await self._parts.offsets.persist_some(queues, wait=True)
        for puller in self.pullers.values():
            puller.held.dropped = True
        for popper in self.poppers.values():
            popper.held.dropped = True
        if self._needs_locks:
            await self._parts.brokers.unlock([*queues, *self._locked], oneway=False)
        if waiting:
            await DeferredList(waiting)
        self.pullers.clear()
        self.poppers.clear()


def _no_longer(outcome: object, seconds: float) -> None:
    """A division is not waited for any more."""
