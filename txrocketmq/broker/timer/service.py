"""Timed messages as one feature: what it keeps, what it does in time, what it tells.

Stands for the life of ``TimerMessageStore`` and what ``AdminBrokerProcessor`` tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.timer.delivery import TimerDelivery
from txrocketmq.broker.timer.metrics import TimerMetrics
from txrocketmq.broker.timer.pauses import Pauses
from txrocketmq.broker.timer.putting import TimerPuts
from txrocketmq.broker.timer.recall import RecallProcessor
from txrocketmq.broker.timer.taking import TimerTaking
from txrocketmq.broker.timer.times import TimerPlaces
from txrocketmq.codec.headers import RecallMessageRequestHeader
from txrocketmq.errors import BodyError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import TIMER_TOPIC
from txrocketmq.remoting.dispatch import Reply, Request
from txrocketmq.store.timer.checkpoint import TimerCheckpoint

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

CLEAN_S = 30.0
"""How often old files of the timer log are looked for."""
STOP_S = 3.0
"""How long a stop lets a slot go on that is being delivered."""
ENGINE_FIELD = "E_T"
"""The field of SWITCH_TIMER_ENGINE: ``F`` for the wheel, ``R`` for RocksDB."""


class TimerService(Feature):
    """Everything about timed messages.

    :ivar timer: wheel, log and checkpoint; empty when `timerWheelEnable` was false at the start.
    """

    _log = Logger()

    def __init__(self, core: BrokerCore, files: IConfigFiles) -> None:
        config = core.store_config
        self._core = core
        self._config = config
        self._clock = core.clock
        self._is_enabled = config.timer_wheel_enable
        self._calls: dict[str, IDelayedCall] = {}
        self._pauses = Pauses(core.clock)
        self.timer = timer = core.upkeep.timer_store(core.now_ms)
        self.metrics = TimerMetrics(files, core.now_ms)
        self.places = TimerPlaces(
            config, timer.precision_ms, self._waiting_at, core.now_ms, is_enabled=self._is_enabled
        )
        core.intake.timers = self.places
        self.puts = TimerPuts(
            config,
            timer.precision_ms,
            core.escape,
            self.metrics,
            core.stats,
            self._pauses,
            core.now_ms,
            lambda: core.has_special_services,
        )
        self.taking = TimerTaking(
            config,
            core.store,
            core.upkeep,
            timer,
            self.puts,
            self.metrics,
            self._pauses,
            core.clock,
            core.now_ms,
            lambda: not core.has_special_services,
        )
        self.delivery = TimerDelivery(
            config,
            core.upkeep,
            timer,
            self.puts,
            self.metrics,
            self._pauses,
            core.clock,
            core.now_ms,
            self._before_look,
        )
        self._recalls = RecallProcessor(
            core.config,
            config,
            core.topics,
            core.intake,
            core.stats,
            core.store_host,
            core.now_ms,
            lambda: core.replication.is_slave,
        )
        self._sampled = (core.clock.seconds(), 0, 0)
        self._rates = (0.0, 0.0)
        if self._is_enabled:
            core.store.add_arrival_listener(
                self.taking.message_arrived, lambda topic, queue_id: topic == TIMER_TOPIC
            )
            core.store.add_whole_listener(self.taking.queue_whole)
            sync = core.replication.sync
            sync.add(
                "timed messages", RequestCode.GET_TIMER_CHECK_POINT, self._follow, is_often=True
            )
            sync.add("timer metrics", RequestCode.GET_TIMER_METRICS, self.metrics.take_over)
            core.replication.taken_back.append((RequestCode.GET_TIMER_CHECK_POINT, self.take_back))

    def _waiting_at(self, time_ms: int) -> int:
        slot = self.timer.wheel.get(time_ms)
        return 0 if slot is None else slot.messages

    # ------------------------------------------------------------------ life

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {"timer": self}

    def load(self) -> None:
        """See `IBrokerFeature`."""
        if not self._is_enabled:
            return
        self.timer.load()
        if self._core.replication.is_slave:
            self.timer.master_offset = self.timer.loaded_master_offset
        self.metrics.load()

    def start(self) -> None:
        """See `IBrokerFeature`."""
        if not self._is_enabled:
            return
        self._pauses.begin()
        self.taking.start()
        self.delivery.start(delivers=self._core.has_special_services)
        self._flush_later()
        self._clean_later()

    def role_changed(self) -> None:
        """See `IBrokerFeature`."""
        leads = self._core.has_special_services
        if leads:
            self.timer.lead()
        else:
            self.timer.fall_back()
        self.delivery.set_delivers(leads)
        self.taking.wake()

    def stop(self) -> None:
        """See `IBrokerFeature`. A slot that is being delivered goes on, without pauses, until `save`."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self.taking.stop()
        self.delivery.stop()
        self._pauses.end()

    def save(self) -> Deferred[None] | None:
        """See `IBrokerFeature`."""
        if not self._is_enabled:
            return None
        return Deferred.fromCoroutine(self._save())

    async def _save(self) -> None:
        idle = self.delivery.when_idle()
        if not idle.called:
            call = self._clock.callLater(STOP_S, self.delivery.give_up)
            await idle
            if call.active():
                call.cancel()
        await self.timer.flush()
        if not self.timer.is_flushed:
            await self.timer.flush()
        await self.metrics.save()

    def save_changes(self) -> None:
        """See `IBrokerFeature`."""
        self.metrics.file.retry()

    def topic_deleted(self, topic: str) -> None:
        """See `IBrokerFeature`."""
        self.metrics.topic_deleted(topic)

    # ------------------------------------------------------------------ time

    def _flush_later(self) -> None:
        delay_s = max(0.01, self._config.timer_flush_interval_ms / 1000)
        self._calls["flush"] = self._clock.callLater(delay_s, self._flush)

    def _flush(self) -> None:
        self._flush_later()
        if not self.timer.is_clean:
            self.timer.flush()
        self.metrics.save_if_changed()

    def _clean_later(self) -> None:
        self._calls["clean"] = self._clock.callLater(CLEAN_S, self._clean)

    def _clean(self) -> None:
        self._clean_later()
        self.timer.clean().addErrback(
            lambda failure: self._log.error(
                "the timer log is not cleaned: {why}", why=failure.value
            )
        )

    def _before_look(self) -> None:
        self.taking.wake()
        now_s = self._clock.seconds()
        then_s, taken, delivered = self._sampled
        if now_s > then_s:
            self._rates = (
                (self.taking.taken - taken) / (now_s - then_s),
                (self.puts.delivered - delivered) / (now_s - then_s),
            )
            self._sampled = (now_s, self.taking.taken, self.puts.delivered)

    def _follow(self, body: bytes) -> None:
        """A slave: what the master says of its timer."""
        found = TimerCheckpoint.decode(body)
        if found is None:
            raise BodyError(f"a timer checkpoint of {len(body)} bytes")
        self.timer.follow(found)
        self.taking.wake()

    def take_back(self, body: bytes) -> None:
        """A master that comes back: how far a slave delivered in its place.

        :raises BodyError: it is no checkpoint.
        """
        found = TimerCheckpoint.decode(body)
        if found is None:
            raise BodyError(f"a timer checkpoint of {len(body)} bytes")
        self.timer.take_back(found.read_ms, found.master_offset)

    # ------------------------------------------------------------------ requests

    def recall_message(
        self, request: Request[RecallMessageRequestHeader]
    ) -> Reply | Deferred[Reply]:
        """RECALL_MESSAGE: take a timed message back."""
        return self._recalls.recall(request)

    def get_check_point(self, request: Request[None]) -> Reply:
        """GET_TIMER_CHECK_POINT: how far messages are taken and delivered."""
        self._core.replication.master_asked()
        if not self._is_enabled:
            return Reply(ResponseCode.SYSTEM_ERROR.value, remark="The checkpoint is null")
        return Reply(body=self.timer.checkpoint().official())

    def get_metrics(self, request: Request[None]) -> Reply:
        """GET_TIMER_METRICS: how many messages wait, by topic."""
        if not self._is_enabled:
            return Reply(ResponseCode.SYSTEM_ERROR.value, remark="The timer message store is null")
        return Reply(body=self.metrics.encode())

    def switch_engine(self, request: Request[None]) -> Reply:
        """SWITCH_TIMER_ENGINE: the wheel, which is the only one here."""
        code = ResponseCode.INVALID_PARAMETER.value
        if not self._is_enabled:
            return Reply(code, remark="broker timerWheelEnable is false")
        engine = request.ext_fields.get(ENGINE_FIELD)
        if engine == "R":
            return Reply(
                code,
                remark="timerUseRocksDB muse be configured true when broker start: "
                "this broker keeps no RocksDB, its timed messages are in the wheel",
            )
        if engine != "F":
            return Reply(code, remark=f"param error, {ENGINE_FIELD} is {engine!r}, not F or R")
        self._config.timer_stop_enqueue = False
        self.taking.wake()
        return Reply(remark="switch timer engine success")

    def figures(self) -> Mapping[str, str]:
        """See `IBrokerFeature`."""
        if not self._is_enabled:
            return {}
        behind_ms = max(0, self._core.now_ms() - self.timer.read_ms)
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(self.taking.behind),
            "timerCongestNum": str(self.timer.waiting),
            "timerEnqueueTps": repr(self._rates[0]),
            "timerDequeueTps": repr(self._rates[1]),
        }
