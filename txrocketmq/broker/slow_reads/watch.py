"""How much does each group read from the disk, and how far is it behind?

Stands for ``ColdDataCgCtrService``, ``ColdDataPullRequestHoldService``, the figures of ``ColdDataCheckService`` and
``BrokerController.protectBroker``. Bytes that the device had to be asked for are summed up per group, and for all groups, over five
seconds; a group that has had its share gets hot messages as before and cold ones not until the next five seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger

from txrocketmq.broker.slow_reads.strategy import Strategy, make_strategy
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.heartbeat import ConsumeType
from txrocketmq.model.names import is_system_group
from txrocketmq.store.results import GetMessageResult

if TYPE_CHECKING:
    from txrocketmq.broker.clients import Consumers
    from txrocketmq.codec.headers import PullMessageRequestHeader
    from txrocketmq.remoting.dispatch import Request

PERIOD_S = 5.0
"""Over which bytes are summed up."""
FORGET_MS = 60_000
"""Without a cold read, after which a group is forgotten."""
HOLD_MS = 3_000
MAX_HELD = 10_000
BEHIND_FORGET_MS = 600_000
ADAPTIVE = "||adaptive"
"""Ends the keys of limits that adapted themselves, among those that operators set (official)."""
RISE, FALL = 1.5, 0.8
MOST_LOWERED = 3
"""So many limits are lowered at the end of a period, the highest."""
#: Of a record, where it says at which byte of the log it begins.
_PLACE = slice(28, 36)


class ColdGroup:
    """What one group read cold.

    :ivar read_bytes: since the period began.
    """

    __slots__ = ("created_ms", "last_read_ms", "read_bytes")

    def __init__(self, now_ms: int) -> None:
        self.read_bytes = 0
        self.created_ms = now_ms
        self.last_read_ms = now_ms


class ReadWatch:
    """Watches pulls.

    :ivar limits: bytes of a period that operators allow a group, instead of `cgColdReadThreshold`.
    :ivar cold: groups that read cold bytes lately.
    :ivar cold_bytes: of all groups since the period began.
    :ivar behind: bytes of log behind its end that a group, topic and queue read last, and when.
    :ivar again: called with each held pull whose time is over.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        consumers: Consumers,
        now_ms: Callable[[], int],
        again: Callable[[Request[PullMessageRequestHeader]], object],
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._store = store
        self._consumers = consumers
        self._now_ms = now_ms
        self.again = again
        self.limits: dict[str, int] = {}
        self.cold: dict[str, ColdGroup] = {}
        self.cold_bytes = 0
        self.behind: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._strategy: Strategy | None = None
        self._held: list[tuple[int, Request[PullMessageRequestHeader]]] = []

    # ----------------------------------------------------------------- cold reads

    def must_wait(self, request: Request[PullMessageRequestHeader], may_hold: bool) -> bool:
        """Whether a pull was taken to be answered later, because its group has read too much of what is cold.

        :param may_hold: it was not held yet; otherwise it gets one message.
        :raises ResponseError: the pull of a push consumer, which asks again by itself.
        """
        if not self._store_config.cold_data_flow_control_enable:
            return False
        header = request.header
        group = header.consumer_group
        # Where nothing is yet nothing is cold: whoever waits for news there is held as ever.
        if not self.is_limited(group) or not self._store.is_in_cold_area(
            header.topic, header.queue_id, header.queue_offset
        ):
            return False
        members = self._consumers.get(group)
        if members is None or members.consume_type == ConsumeType.CONSUME_PASSIVELY:
            raise ResponseError(
                ResponseCode.SYSTEM_BUSY,
                "This consumer group is reading cold data. It has been flow control",
            )
        if not may_hold or len(self._held) >= MAX_HELD:
            header.max_msg_nums = 1
            return False
        self._held.append((self._now_ms() + HOLD_MS, request))
        return True

    def is_limited(self, group: str) -> bool:
        """Whether a group has had its share of the period."""
        found = self.cold.get(group)
        if found is None or is_system_group(group):
            return False
        return (
            found.read_bytes >= self.limit_of(group)
            or self.cold_bytes >= self._config.global_cold_read_threshold
        )

    def limit_of(self, group: str) -> int:
        """Bytes of a period that a group may read cold: what an operator said, or what was adapted, or what all may."""
        limit = self.limits.get(group)
        if limit is None and self._config.cold_ctr_strategy_enable:
            limit = self.limits.get(group + ADAPTIVE)
        return self._config.cg_cold_read_threshold if limit is None else limit

    def read_cold(self, group: str, size_bytes: int) -> None:
        """A group got messages for which the device was asked."""
        if size_bytes <= 0 or not self._store_config.cold_data_flow_control_enable:
            return
        now_ms = self._now_ms()
        found = self.cold.get(group)
        if found is None:
            found = self.cold[group] = ColdGroup(now_ms)
        found.read_bytes += size_bytes
        found.last_read_ms = now_ms
        self.cold_bytes += size_bytes

    def begin_period(self) -> None:
        """Every group has a new share; pulls that waited long enough are answered."""
        now_ms = self._now_ms()
        self._adapt(now_ms)
        self.cold_bytes = 0
        for group, found in tuple(self.cold.items()):
            found.read_bytes = 0
            if now_ms >= found.last_read_ms + FORGET_MS:
                del self.cold[group]
        held, self._held = self._held, []
        for due_ms, request in held:
            if now_ms >= due_ms:
                self.again(request)
            else:
                self._held.append((due_ms, request))

    def _adapt(self, now_ms: int) -> None:
        """Let limits follow what groups read in the period that ends (`coldCtrStrategyEnable`)."""
        config, limits = self._config, self.limits
        if not config.cold_ctr_strategy_enable:
            for key in [key for key in limits if key.endswith(ADAPTIVE)]:
                del limits[key]
            return
        strategy = self._strategy
        if strategy is None:
            strategy = self._strategy = make_strategy(config)
        strategy.collect(self.cold_bytes)
        for group, found in self.cold.items():
            if now_ms >= found.last_read_ms + FORGET_MS:
                limits.pop(group + ADAPTIVE, None)
            elif (
                found.read_bytes >= self.limit_of(group)
                and self.cold_bytes <= config.global_cold_read_threshold
                and group not in limits
                and strategy.may_rise()
            ):
                limits[group + ADAPTIVE] = int(self.limit_of(group) * RISE)
        is_over = self.cold_bytes > config.global_cold_read_threshold
        highest = sorted(
            (key for key in limits if _is_adapted(key, limits)), key=lambda key: -limits[key]
        )
        for key in highest[:MOST_LOWERED] if strategy.must_fall(is_over) else ():
            limits[key] = max(int(limits[key] * FALL), config.cg_cold_read_threshold)

    def answer_held(self) -> None:
        """Answer every pull that waits: the broker stops."""
        held, self._held = self._held, []
        for _, request in held:
            self.again(request)

    # ----------------------------------------------------------------- slow consumers

    def note_behind(self, header: PullMessageRequestHeader, found: GetMessageResult) -> None:
        """A group read messages: how far from the log's end they are. Only when anybody wants to know."""
        if not self._config.disable_consume_if_consumer_read_slowly or not found.records:
            return
        place = int.from_bytes(found.records[0][_PLACE], "big")
        key = (header.consumer_group, header.topic, header.queue_id)
        behind = max(0, self._store.max_physical_offset() - place)
        self.behind[key] = (behind, self._now_ms())

    def too_slow(self) -> dict[str, int]:
        """The groups that are further behind than `consumerFallbehindThreshold`, with the bytes; empty while nobody wants to
        know."""
        config, now_ms = self._config, self._now_ms()
        found: dict[str, int] = {}
        for key, (behind, when_ms) in tuple(self.behind.items()):
            if now_ms - when_ms >= BEHIND_FORGET_MS:
                del self.behind[key]
            elif behind > config.consumer_fallbehind_threshold:
                found[key[0]] = max(behind, found.get(key[0], 0))
        return found if config.disable_consume_if_consumer_read_slowly else {}

    def forget(self, group: str) -> None:
        """A group is gone, or has been switched off."""
        self.cold.pop(group, None)
        for key in [key for key in self.behind if key[0] == group]:
            del self.behind[key]


def _is_adapted(key: str, limits: dict[str, int]) -> bool:
    """Whether a limit adapted itself, for a group of which no operator said anything."""
    return key.endswith(ADAPTIVE) and key.removesuffix(ADAPTIVE) not in limits
