"""POP consumption as one feature: what it keeps and what it does in time.

Stands for the life of the POP processors and services of ``BrokerController``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.pop.acks import AckProcessor
from txrocketmq.broker.pop.assignment import AssignmentProcessor, RequestModes, TopicQueues
from txrocketmq.broker.pop.check_points import CheckPoints, Kept
from txrocketmq.broker.pop.checks import PopChecks
from txrocketmq.broker.pop.inflight import InFlight
from txrocketmq.broker.pop.looks import LookProcessor
from txrocketmq.broker.pop.ordered import OrderedPops
from txrocketmq.broker.pop.parts import Key, PopParts
from txrocketmq.broker.pop.processor import PopProcessor
from txrocketmq.broker.pop.receipts import normal_topic_of
from txrocketmq.broker.pop.revive import Parts as ReviveParts
from txrocketmq.broker.pop.revive import ReviveQueue
from txrocketmq.broker.pop.revive_log import ReviveLog
from txrocketmq.broker.pop.waiting import Waiting
from txrocketmq.broker.pull.subscriptions import Subscriptions
from txrocketmq.broker.sweep import Sweep
from txrocketmq.interfaces import IConfigFiles, IConnection
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.names import REVIVE_TOPIC_PREFIX
from txrocketmq.remoting.dispatch import Lane
from txrocketmq.store.results import GetMessageResult

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

NO_BYTE_LIMIT = 2**31 - 1
KEPT_SCAN_S = 0.5
"""How often check points in memory are looked at, where there are any."""


class PopService(Feature):
    """All of POP.

    :ivar chance: decides which queue and which topic is looked at first.
    """

    _log = Logger()

    def __init__(self, core: BrokerCore, files: IConfigFiles) -> None:
        config, store = core.config, core.store
        self._core = core
        self._config = config
        self._store = store
        self._clock = core.clock
        self._sweeps: list[Sweep] = []
        self._revives = False
        self._ends: dict[Key, IDelayedCall] = {}
        self.ordered = OrderedPops(files, core.now_ms)
        self.modes = RequestModes(files)
        core.replication.sync.add(
            "request modes", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self.modes.take_over
        )
        self.in_flight = InFlight(core.started_ms, self._free)
        log = ReviveLog(REVIVE_TOPIC_PREFIX + config.broker_cluster_name, core.store_host)
        parts = ReviveParts(
            config,
            store,
            core.escape,
            core.topics,
            core.groups,
            core.offsets,
            core.stats,
            self.in_flight,
            log,
            core.store_host,
        )
        self._revive_parts = parts
        self.queues = [
            ReviveQueue(parts, number, core.clock) for number in range(config.revive_queue_num)
        ]
        self.points = CheckPoints(config, core.escape, core.offsets, log, self.queues, core.now_ms)
        self._make_processors()
        for waiting in (self.pops.waiting, self.looks.waiting):
            store.add_arrival_listener(waiting.message_arrived, waiting.awaits)
            store.add_whole_listener(waiting.queue_whole)

    def _make_processors(self) -> None:
        core, config = self._core, self._config
        parts = PopParts(
            config,
            self._store,
            core.topics,
            core.offsets,
            core.stats,
            core.throughput,
            PopChecks(config, self._may_pop, self._store, core.topics, core.groups),
            self.points,
            self.ordered,
            self.in_flight,
            core.now_ms,
            self._free,
            self._block_changed,
            partial(deferLater, core.clock, 0),
        )
        chance = self.chance = random.Random()
        subscriptions = Subscriptions(config, core.consumers, core.groups, core.filters)
        self.pops: PopProcessor = PopProcessor(parts, subscriptions, chance)
        self.pops.waiting = Waiting(self._clock, config, self.pops.serve_again, self._newest_record)
        self.looks: LookProcessor = LookProcessor(parts, self.pops.waiting, chance)
        self.looks.waiting = Waiting(
            self._clock, config, self.looks.serve_again, self._newest_record
        )
        self.acks = AckProcessor(parts)
        self.assignment = AssignmentProcessor(
            config,
            core.topics,
            core.groups,
            core.consumers,
            self.modes,
            TopicQueues(config, core.topics, core.remoting_client, core.now_ms),
        )

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {
            "pop": self.pops,
            "pop_acks": self.acks,
            "pop_looks": self.looks,
            "assignment": self.assignment,
        }

    def lane_limits(self) -> Mapping[Lane, int]:
        """See `IBrokerFeature`."""
        return {
            Lane.POP: self._config.pull_thread_pool_queue_capacity,
            Lane.ACK: self._config.ack_thread_pool_queue_capacity,
        }

    # ----------------------------------------------------------------- life

    def load(self) -> None:
        """See `IBrokerFeature`."""
        self.ordered.load()
        self.modes.load()

    def start(self) -> None:
        """See `IBrokerFeature`."""
        for key in tuple(self.ordered.items()):
            self._block_changed(key)
        interval_s = max(0.01, self._config.revive_interval / 1000)
        self._sweeps = [
            Sweep(self._clock, interval_s, self._revive),
            Sweep(self._clock, KEPT_SCAN_S, self._write_due),
        ]

    def _add_older_queues(self) -> None:
        """There were more revive queues once (`reviveQueueNum`): what waits in them is not to be forgotten."""
        topic = self._revive_parts.log.topic
        most = max((number for name, number in self._store.queues() if name == topic), default=-1)
        for number in range(len(self.queues), most + 1):
            self.queues.append(ReviveQueue(self._revive_parts, number, self._clock))

    def role_changed(self) -> None:
        """See `IBrokerFeature`."""
        revives = self._core.has_special_services
        if revives == self._revives:
            return
        self._revives = revives
        if revives:
            self._add_older_queues()
        for queue in self.queues:
            if revives:
                queue.start()
            else:
                queue.commit()
                queue.stop()

    def _may_pop(self) -> bool:
        """Pops are written down: by a master, or by a slave in its place, at another broker."""
        escape = self._core.escape
        return escape.is_local or (self._core.has_special_services and escape.is_open)

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        for sweep in self._sweeps:
            sweep.stop()
        for call in self._ends.values():
            call.cancel()
        self._ends.clear()
        self.pops.waiting.stop()
        self.looks.waiting.stop()
        for kept in self.points.stop():
            self._write(kept)
        for queue in self.queues:
            queue.commit()
            queue.stop()

    def save_changes(self) -> None:
        """See `IBrokerFeature`."""
        self.ordered.save_if_changed()
        self.ordered.file.retry()
        self.modes.file.retry()

    def save(self) -> Deferred[None]:
        """See `IBrokerFeature`."""
        saving = DeferredList([self.ordered.save(), self.modes.file.save()])
        return saving.addCallback(lambda ignored: None)

    def topic_deleted(self, topic: str) -> None:
        """See `IBrokerFeature`."""
        self.ordered.topic_deleted(topic)
        self.points.topic_deleted(topic)
        self.modes.topic_deleted(topic)
        self.in_flight.forget(lambda key: key[0] == topic)
        for waiting in (self.pops.waiting, self.looks.waiting):
            waiting.drop(lambda key: key[0] == topic)

    def group_deleted(self, group: str) -> None:
        """See `IBrokerFeature`."""
        self.ordered.group_deleted(group)
        self.modes.group_deleted(group)
        self.in_flight.forget(lambda key: key[1] == group)
        for waiting in (self.pops.waiting, self.looks.waiting):
            waiting.drop(lambda key: key[1] == group)

    def disconnected(self, connection: IConnection) -> None:
        """See `IBrokerFeature`."""
        self.pops.waiting.drop_connection(connection)
        self.looks.waiting.drop_connection(connection)

    def figures(self) -> Mapping[str, str]:
        """What a running broker says of POP, besides what official ones do."""
        oldest = [time for queue in self.queues if (time := queue.oldest_ms()) is not None]
        figures = {
            "popInFlight": self.in_flight.total(),
            "popWaiting": self.pops.waiting.count,
            "popNotificationsWaiting": self.looks.waiting.count,
            "popCheckPoints": sum(queue.waiting_count for queue in self.queues),
            "popCheckPointsInMemory": self.points.kept_count,
            "popReviveBehind": sum(queue.behind() for queue in self.queues),
            "popRevived": sum(queue.revived for queue in self.queues),
            "popNextRevival": min(oldest, default=0),
        }
        return {name: str(number) for name, number in figures.items() if number}

    # ----------------------------------------------------------------- work in time

    def _revive(self) -> None:
        for queue in self.queues:
            queue.begin()

    def _write_due(self) -> None:
        for kept in self.points.due():
            self._write(kept)

    def _write(self, kept: Kept) -> None:
        writing = Deferred.fromCoroutine(self.points.write(kept))
        writing.addErrback(self._not_written)

    def _not_written(self, failure: Failure) -> None:
        self._log.failure("a check point in memory could not be written", failure)

    # ----------------------------------------------------------------- who may go on

    def _free(self, key: Key) -> None:
        """A queue may be popped again: run one request that waits for it, if there is something to pop."""
        topic, group, queue_id = key
        origin = normal_topic_of(topic, group)
        if not self.pops.waiting.count and not self.looks.waiting.count:
            return
        offset = max(self._core.offsets.query(group, topic, queue_id), self.points.latest(key))
        if self._store.max_offset(topic, queue_id) <= offset:
            return
        for waiting in (self.pops.waiting, self.looks.waiting):
            if origin == topic:
                waiting.wake_queue(topic, group, queue_id)
            else:
                waiting.wake_group(origin, group)

    def _block_changed(self, key: Key) -> None:
        """An ordered pop blocks a queue until another time: those who wait are to hear of its end."""
        call = self._ends.pop(key, None)
        if call is not None:
            call.cancel()
        if not self._config.enable_notify_after_pop_order_lock_release:
            return
        free_ms = self.ordered.free_at(*key)
        if free_ms is not None:
            delay_s = max(0.0, free_ms / 1000 - self._clock.seconds())
            self._ends[key] = self._clock.callLater(delay_s, self._block_ended, key)

    def _block_ended(self, key: Key) -> None:
        del self._ends[key]
        if self.ordered.is_blocked(None, *key, 0):
            self._block_changed(key)
        else:
            self._free(key)

    def _newest_record(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The record of a message that just arrived, None where it is not at hand."""
        found = self._store.get_message(topic, queue_id, offset, 1, NO_BYTE_LIMIT, None)
        if not isinstance(found, GetMessageResult):
            cast("Deferred[object]", found).addErrback(lambda failure: None)
            return None
        return b"".join(found.records) if found.message_count == 1 else None
