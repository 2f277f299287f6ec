"""The delay levels as one feature: what it keeps, what it does in time, what it tells (GET_ALL_DELAY_OFFSET).

Stands for the life of ``ScheduleMessageService``.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from txrocketmq.broker.delay.delivery import DelayDelivery
from txrocketmq.broker.delay.levels import DelayLevels
from txrocketmq.broker.delay.offsets import DelayOffsets
from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.stats import BrokerStats
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.interfaces import IConfigFiles, IMessageStore, IStoreUpkeep
from txrocketmq.model.names import SCHEDULE_TOPIC
from txrocketmq.remoting.dispatch import Reply, Request


class DelayService:
    """Levels, offsets and delivery."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        bridge: EscapeBridge,
        upkeep: IStoreUpkeep,
        clock: IReactorTime,
        files: IConfigFiles,
        now_ms: Callable[[], int],
        stats: BrokerStats,
    ) -> None:
        self._store = store
        self.levels = DelayLevels(store_config)
        self.offsets = DelayOffsets(config, files, now_ms)
        self.delivery = DelayDelivery(
            store,
            bridge,
            upkeep,
            self.levels,
            self.offsets,
            clock,
            stats,
            lambda: store_config.enable_schedule_message_stats,
        )
        store.add_arrival_listener(
            self.delivery.message_arrived, lambda topic, queue_id: topic == SCHEDULE_TOPIC
        )
        store.add_whole_listener(self.delivery.queue_whole)

    def load(self) -> None:
        """Read the offsets.

        :raises StoreError: the file is not what its name says.
        """
        self.offsets.load()

    def start(self) -> None:
        """Deliver from now on."""
        self.delivery.start()

    def stop(self) -> None:
        """Deliver nothing any more."""
        self.delivery.stop()

    def save(self) -> Deferred[None]:
        """Save the offsets; fires when they are on disk."""
        return self.offsets.save()

    def figures(self) -> dict[str, str]:
        """By the official names: next offset and end of each level's queue, where that is known."""
        store = self._store
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.offsets.items()
            if store.recovering(SCHEDULE_TOPIC, level - 1) is None
        }

    def get_all_offsets(self, request: Request[None]) -> Reply:
        """GET_ALL_DELAY_OFFSET: the table of offsets."""
        return Reply(body=self.offsets.encode())
