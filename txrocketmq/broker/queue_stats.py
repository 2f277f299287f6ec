"""How long did sends and reads of each queue take, how far behind does each group read, and what became of connections?

Stands for the figures of ``BrokerStatsManager`` that are kept by queue or for the broker's own life: latencies, reads of the delay topic's
queues, registrations, connections, dead letters by owner, and the two of slow consumers. Queues are many, and most are idle: so a sample
costs nothing here, and a figure finds out what it was at the last samples when something is added to it, or when somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from txrocketmq.broker.figures import DAY, HOUR, MINUTE, NOTHING, Figures, Snapshot, Span
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.interfaces import IMessageStore, IStoreUpkeep

TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
DEAD_LETTER_TIMES = "SNDBCK2DLQ_TIMES"
CONSUMER_REGISTER_TIME = "CONSUMER_REGISTER_TIME"
PRODUCER_REGISTER_TIME = "PRODUCER_REGISTER_TIME"
CHANNEL_ACTIVITY = "CHANNEL_ACTIVITY"
GROUP_GET_FALL_SIZE = "GROUP_GET_FALL_SIZE"
GROUP_GET_FALL_TIME = "GROUP_GET_FALL_TIME"

COMMERCIAL_OWNER = "Owner"
"""Field of a request that names whose traffic it is."""

MAX_CLAIMED = 10_000
"""Names of one figure that clients may make up; further ones are not told apart."""

CONNECT, CLOSE, IDLE, EXCEPTION = "CONNECT", "CLOSE", "IDLE", "EXCEPTION"

_SPANS = (MINUTE, HOUR, DAY)
_Key = TypeVar("_Key")


class Sampling:
    """When samples were taken.

    :ivar tick: goes up with each one, of whatever span.
    :ivar counts: how many of each span there were.
    :ivar times_ms: when the last ones were.
    """

    def __init__(self) -> None:
        self.tick = 0
        self.counts = dict.fromkeys(_SPANS, 0)
        self.times_ms: dict[Span, deque[int]] = {
            span: deque(maxlen=span.samples) for span in _SPANS
        }

    def sample(self, span: Span, now_ms: int) -> None:
        """One more sample of everything."""
        self.tick += 1
        self.counts[span] += 1
        self.times_ms[span].append(now_ms)


class QueueFigure:
    """A sum and how many calls made it.

    :ivar tick: the last sample that it knows of.
    """

    __slots__ = ("_born", "_histories", "_sampling", "_seen", "calls", "tick", "total")

    def __init__(self, sampling: Sampling) -> None:
        self.total = 0
        self.calls = 0
        self.tick = sampling.tick
        self._sampling = sampling
        self._born = dict(sampling.counts)
        self._seen = dict(sampling.counts)
        self._histories = {span: deque([(0, 0)], span.samples) for span in _SPANS}

    def add(self, value: int) -> None:
        """One more call, of so much."""
        if self.tick != self._sampling.tick:
            self._catch_up()
        self.total += value
        self.calls += 1

    def _catch_up(self) -> None:
        """Nothing was added since the samples that it missed: at each of them it was what it is."""
        self.tick = self._sampling.tick
        for span, count in self._sampling.counts.items():
            missed = min(count - self._seen[span], span.samples)
            self._histories[span].extend([(self.total, self.calls)] * missed)
            self._seen[span] = count

    def over(self, span: Span) -> Snapshot:
        """What it was over one of the spans; the first sample is measured from zero, one period before it."""
        if self.tick != self._sampling.tick:
            self._catch_up()
        samples = self._seen[span] - self._born[span]
        if not samples:
            return NOTHING
        times_ms = self._sampling.times_ms[span]
        if samples < span.samples:
            begin_ms = times_ms[-samples] - int(span.period_s * 1000)
        else:
            begin_ms = times_ms[0]
        history = self._histories[span]
        total = history[-1][0] - history[0][0]
        calls = history[-1][1] - history[0][1]
        took_ms = times_ms[-1] - begin_ms
        return Snapshot(
            total,
            total * 1000 / took_ms if took_ms > 0 else 0.0,
            total / calls if calls > 0 else 0.0,
        )

    def figures(self) -> Figures:
        """What it was over all spans."""
        return Figures(self.over(MINUTE), self.over(HOUR), self.over(DAY))


LastRead = tuple[int, int, int]
"""What a group read last of a queue: logical offset of the last message (-1 when it has read all there is), where the log ended then, and
when that was in ms. It is made for each pull, so it has no names."""

ALL_READ: LastRead = (-1, 0, 0)

Behind = Callable[[str, int, LastRead], tuple[int, int] | None]
"""Bytes and milliseconds that a read of a topic's queue is behind; None when its message is gone."""


class QueueStats:
    """All these figures of a broker.

    :param cluster: the key of the broker's own figures, as officially.
    :ivar store_config: says whether reads are recorded.
    :ivar by_queue: whether figures are kept by queue (``enableDetailStat``).
    :ivar name_for: under which name a topic or group is counted.
    :ivar behind_of: says how far behind a read is.
    :ivar last_reads: what groups read last, by queue id, topic and group.
    """

    def __init__(self, cluster: str) -> None:
        self.store_config = MessageStoreConfig()
        self.by_queue = True
        self.name_for: Callable[[str], str] = str
        self.behind_of: Behind = _unknown
        self.last_reads: dict[tuple[int, str, str], LastRead] = {}
        self._sampling = Sampling()
        self._puts: dict[tuple[int, str], QueueFigure] = {}
        self._gets: dict[tuple[int, str, str], QueueFigure] = {}
        self._delay_nums: dict[tuple[str, int, str], QueueFigure] = {}
        self._delay_sizes: dict[tuple[str, int, str], QueueFigure] = {}
        self._by_name: dict[str, dict[str, QueueFigure]] = {
            DEAD_LETTER_TIMES: {},
            CONSUMER_REGISTER_TIME: {},
            PRODUCER_REGISTER_TIME: {},
            CHANNEL_ACTIVITY: {},
        }
        self._cluster = cluster

    def sample(self, span: Span, now_ms: int) -> None:
        """One more sample of everything."""
        self._sampling.sample(span, now_ms)

    # ----------------------------------------------------------------- counting

    def put_took(self, topic: str, queue_id: int, milliseconds: int) -> None:
        """A send was answered; ``queue_id`` is what the producer asked for, -1 for any, as officially."""
        key = (queue_id, topic)
        figure = self._puts.get(key)
        if figure is None:
            key = (queue_id, self.name_for(topic))
            figure = self._puts.setdefault(key, QueueFigure(self._sampling))
        if figure.tick == self._sampling.tick:
            # As `QueueFigure.add`, without the call: it is done for each send.
            figure.total += milliseconds
            figure.calls += 1
        else:
            figure.add(milliseconds)

    def get_took(self, topic: str, group: str, queue_id: int, milliseconds: int) -> None:
        """A read that found messages was answered."""
        key = (queue_id if self.by_queue else -1, topic, group)
        figure = self._gets.get(key)
        if figure is None:
            key = (key[0], self.name_for(topic), self.name_for(group))
            figure = self._gets.setdefault(key, QueueFigure(self._sampling))
        if figure.tick == self._sampling.tick:
            figure.total += milliseconds
            figure.calls += 1
        else:
            figure.add(milliseconds)

    def note_read(
        self, topic: str, group: str, queue_id: int, offset: int, log_end: int, now_ms: int
    ) -> None:
        """A group read messages of a queue, the last one at a logical offset; the log ends there by now (``diskFallRecorded``)."""
        if self.store_config.disk_fall_recorded:
            self.last_reads[queue_id, topic, group] = (offset, log_end, now_ms)

    def read_all(self, topic: str, group: str, queue_id: int) -> None:
        """A group that was behind has read all there is."""
        key = (queue_id, topic, group)
        if key in self.last_reads:
            self.last_reads[key] = ALL_READ

    def queue_read(self, topic: str, queue_id: int, group: str, size_bytes: int) -> None:
        """One message of a queue went on its way (delay levels, ``enableDetailStat``)."""
        if not self.by_queue:
            return
        key = (topic, queue_id, group)
        for table, value in ((self._delay_nums, 1), (self._delay_sizes, size_bytes)):
            if key not in table:
                table[key] = QueueFigure(self._sampling)
            table[key].add(value)

    def given_up(self, owner: str | None, origin_topic: str | None, group: str) -> None:
        """A message that was sent back became a dead letter; the key has what the request said, as officially."""
        words = (owner or "null", origin_topic or "null", group, "SEND_BACK_TO_DLQ")
        key = "@".join(words)
        table = self._by_name[DEAD_LETTER_TIMES]
        if key in table or len(table) < MAX_CLAIMED:
            self._add(DEAD_LETTER_TIMES, key, 1)

    def registered(self, name: str, milliseconds: int) -> None:
        """A group of a heartbeat was entered (`CONSUMER_REGISTER_TIME`, `PRODUCER_REGISTER_TIME`)."""
        self._add(name, self._cluster, milliseconds)

    def connection(self, what: str) -> None:
        """Something happened to a connection (`CONNECT`, `CLOSE`, `IDLE`, `EXCEPTION`)."""
        self._add(CHANNEL_ACTIVITY, what, 1)

    def _add(self, name: str, key: str, value: int) -> None:
        table = self._by_name[name]
        if key not in table:
            table[key] = QueueFigure(self._sampling)
        table[key].add(value)

    # ----------------------------------------------------------------- deletion

    def topic_deleted(self, topic: str) -> None:
        """Forget what there is of a topic."""
        _drop(self._puts, lambda key: key[1] == topic)
        _drop(self._gets, lambda key: key[1] == topic)
        _drop(self.last_reads, lambda key: key[1] == topic)

    def group_deleted(self, group: str) -> None:
        """Forget what there is of a group."""
        _drop(self._gets, lambda key: key[2] == group)
        _drop(self.last_reads, lambda key: key[2] == group)
        _drop(self._by_name[DEAD_LETTER_TIMES], lambda key: key.split("@")[-2] == group)

    # ----------------------------------------------------------------- asking

    def find(self, name: str, key: str) -> Figures | None:
        """A figure by its official name and key; None when nothing was counted."""
        parts = key.split("@")
        figure: QueueFigure | None = None
        if name in self._by_name:
            figure = self._by_name[name].get(key)
        elif name == TOPIC_PUT_LATENCY and len(parts) == 2:
            figure = self._puts.get((_number(parts[0]), parts[1]))
        elif name == GROUP_GET_LATENCY:
            parts = parts if self.by_queue else ["-1", *parts]
            if len(parts) == 3:
                figure = self._gets.get((_number(parts[0]), parts[1], parts[2]))
        elif name in (QUEUE_GET_NUMS, QUEUE_GET_SIZE) and len(parts) == 3:
            table = self._delay_nums if name == QUEUE_GET_NUMS else self._delay_sizes
            figure = table.get((parts[0], _number(parts[1]), parts[2]))
        elif name in (GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME) and len(parts) == 3:
            return self._behind(name, (_number(parts[0]), parts[1], parts[2]))
        return None if figure is None else figure.figures()

    def _behind(self, name: str, key: tuple[int, str, str]) -> Figures | None:
        last = self.last_reads.get(key)
        if last is None:
            return None
        found = (0, 0) if last is ALL_READ else self.behind_of(key[1], key[0], last)
        if found is None:
            return None
        value = found[0] if name == GROUP_GET_FALL_SIZE else found[1]
        # It is no sum: the three times all show what it was last.
        now = Snapshot(value, 0.0, 0.0)
        return Figures(now, now, now)


def measure_by_queue(
    stats: QueueStats,
    config: BrokerConfig,
    store_config: MessageStoreConfig,
    store: IMessageStore,
    upkeep: IStoreUpkeep,
) -> None:
    """Let figures follow the configuration, and look into the store for how far behind groups read."""

    def behind(topic: str, queue_id: int, last: LastRead) -> tuple[int, int] | None:
        offset, log_end, time_ms = last
        units = upkeep.queue_units(topic, queue_id, offset, 1)
        stored_ms = store.store_time(topic, queue_id, offset)
        if not units or stored_ms <= 0:
            return None
        return max(0, log_end - units[0][0]), max(0, time_ms - stored_ms)

    stats.by_queue = config.enable_detail_stat
    stats.store_config = store_config
    stats.behind_of = behind


def _unknown(topic: str, queue_id: int, last: LastRead) -> tuple[int, int] | None:
    return None


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else -(2**31)


def _drop(table: dict[_Key, Any], dropped: Callable[[_Key], bool]) -> None:
    for key in [key for key in table if dropped(key)]:
        del table[key]
