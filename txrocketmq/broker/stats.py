"""How many messages came and went, by topic and by group: in the last minute, hour and day?

Stands for ``BrokerStatsManager``, ``StatsItem`` and the day counters of ``BrokerStats``. Whoever sends or pulls adds to plain numbers;
a sweep copies them into a short history every ten seconds, ten minutes and hour, from which an operator's question is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from txrocketmq.broker.figures import DAY, HOUR, MINUTE, NOTHING, Figures, Snapshot, Span
from txrocketmq.broker.queue_stats import MAX_CLAIMED, QueueStats
from txrocketmq.model.names import LMQ_PREFIX, is_lmq

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
SEND_BACK_NUMS = "SNDBCK_PUT_NUMS"
DEAD_LETTER_NUMS = "DLQ_PUT_NUMS"
GROUP_CK_NUMS = "GROUP_CK_NUMS"
GROUP_ACK_NUMS = "GROUP_ACK_NUMS"
BROKER_CK_NUMS = "BROKER_CK_NUMS"
BROKER_ACK_NUMS = "BROKER_ACK_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

SEPARATOR = "@"
OTHERS = "others"
"""The name under which is counted what has no room of its own."""


_Sample = tuple[int, int, int, int]
"""Wall-clock ms, messages, calls, bytes."""


class Counter:
    """What went one way: messages, the calls that carried them, their bytes.

    :ivar is_system: it is traffic of the system's own topics.
    """

    __slots__ = ("_histories", "calls", "is_system", "messages", "size_bytes")

    def __init__(self, is_system: bool) -> None:
        self.messages = 0
        self.calls = 0
        self.size_bytes = 0
        self.is_system = is_system
        self._histories: dict[Span, deque[_Sample]] = {}

    def count(self, size_bytes: int) -> None:
        """One message came in one call."""
        self.messages += 1
        self.calls += 1
        self.size_bytes += size_bytes

    def count_several(self, messages: int) -> None:
        """Several messages came in one call; nobody counts their bytes."""
        self.messages += messages
        self.calls += 1

    def sample(self, span: Span, now_ms: int, period_ms: int) -> None:
        """Take a sample; the first one is measured from zero, one period before it."""
        history = self._histories.get(span)
        if history is None:
            history = self._histories[span] = deque(maxlen=span.samples)
            history.append((now_ms - period_ms, 0, 0, 0))
        history.append((now_ms, self.messages, self.calls, self.size_bytes))

    def over(self, span: Span, is_size: bool) -> Snapshot:
        """The messages, or the bytes, over one of the spans."""
        history = self._histories.get(span)
        if history is None:
            return NOTHING
        first, last = history[0], history[-1]
        column = 3 if is_size else 1
        total = last[column] - first[column]
        calls = last[2] - first[2]
        span_ms = last[0] - first[0]
        return Snapshot(
            total,
            total * 1000 / span_ms if span_ms > 0 else 0.0,
            total / calls if calls > 0 else 0.0,
        )

    def figures(self, is_size: bool) -> Figures:
        """The messages, or the bytes, over all spans."""
        return Figures(
            self.over(MINUTE, is_size), self.over(HOUR, is_size), self.over(DAY, is_size)
        )


def light_as_one(name: str) -> str:
    """The name under which all light queues, or their groups, are counted together (``enableLmqStats`` off)."""
    return LMQ_PREFIX if is_lmq(name) else name


class BrokerStats:
    """All counters of a broker.

    :param cluster: the key of the broker's own figures, as officially.
    :param is_system: whether a topic is the system's own; such traffic does not count for the day.
    :ivar by_queue: latencies and other figures that are kept by queue.
    :ivar topics: by topic: what was sent to it.
    :ivar groups: by ``topic@group``: what the group got of it.
    :ivar send_backs: by ``topic@group``: what the group sent back for a retry.
    :ivar dead_letters: by ``topic@group``: what the group gave up.
    :ivar queues: by ``topic@queue id``: what was put to the queues of the delay topic.
    :ivar check_points: by ``topic@group``: pops that were noted.
    :ivar acks: by ``topic@group``: popped messages that were acknowledged.
    :ivar put_marks: messages put until the last midnight, and until the one before; ``get_marks`` likewise.
    """

    def __init__(
        self, now_ms: Callable[[], int], cluster: str, is_system: Callable[[str], bool]
    ) -> None:
        self._now_ms = now_ms
        self._cluster = cluster
        self._is_system = is_system
        self.by_queue = QueueStats(cluster)
        self.topics: dict[str, Counter] = {}
        self.groups: dict[str, Counter] = {}
        self.send_backs: dict[str, Counter] = {}
        self.dead_letters: dict[str, Counter] = {}
        self.queues: dict[str, Counter] = {}
        self.check_points: dict[str, Counter] = {}
        self.acks: dict[str, Counter] = {}
        # What deleted topics and groups had; the broker's own figures must not shrink with them.
        self._gone_put = [0, 0]
        self._gone_get = [0, 0]
        self._gone_check_points = [0, 0]
        self._gone_acks = [0, 0]
        self._own = {
            name: Counter(False)
            for name in (
                BROKER_PUT_NUMS,
                BROKER_GET_NUMS,
                BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
                BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
                BROKER_CK_NUMS,
                BROKER_ACK_NUMS,
            )
        }
        self.put_marks = (0, 0)
        self.get_marks = (0, 0)

    @property
    def name_for(self) -> Callable[[str], str]:
        """Under which name a topic or group is counted: many light queues may be one."""
        return self.by_queue.name_for

    @name_for.setter
    def name_for(self, name_for: Callable[[str], str]) -> None:
        self.by_queue.name_for = name_for

    # ----------------------------------------------------------------- counting

    def of_topic(self, topic: str) -> Counter:
        """The counter of what is sent to a topic, made when there is none."""
        topic = self.name_for(topic)
        return self._counter(self.topics, topic, topic)

    def of_group(self, topic: str, group: str) -> Counter:
        """The counter of what a group gets of a topic, made when there is none."""
        topic, group = self.name_for(topic), self.name_for(group)
        return self._counter(self.groups, f"{topic}{SEPARATOR}{group}", topic)

    def of_send_back(self, topic: str, group: str) -> Counter:
        """The counter of what a group sends back, made when there is none."""
        return self._claimed(self.send_backs, f"{topic}{SEPARATOR}{group}", topic)

    def of_dead_letter(self, topic: str, group: str) -> Counter:
        """The counter of what a group gives up, made when there is none."""
        return self._claimed(self.dead_letters, f"{topic}{SEPARATOR}{group}", topic)

    def of_queue(self, topic: str, queue_id: int) -> Counter:
        """The counter of what is put to one queue, made when there is none."""
        return self._counter(self.queues, f"{topic}{SEPARATOR}{queue_id}", topic)

    def of_check_points(self, topic: str, group: str) -> Counter:
        """The counter of a group's pops that were noted, made when there is none."""
        return self._counter(self.check_points, f"{topic}{SEPARATOR}{group}", topic)

    def of_acks(self, topic: str, group: str) -> Counter:
        """The counter of what a group popped and acknowledged, made when there is none."""
        return self._claimed(self.acks, f"{topic}{SEPARATOR}{group}", topic)

    def _counter(self, table: dict[str, Counter], key: str, topic: str) -> Counter:
        counter = table.get(key)
        if counter is None:
            counter = table[key] = Counter(self._is_system(topic))
        return counter

    def _claimed(self, table: dict[str, Counter], key: str, topic: str) -> Counter:
        """A counter whose name a client may make up: when there are too many, all new names are counted as one."""
        if key not in table and len(table) >= MAX_CLAIMED:
            key = topic = OTHERS
        return self._counter(table, key, topic)

    def topic_deleted(self, topic: str) -> None:
        """Forget the counters of a topic."""
        self._drop(lambda key: key == topic, lambda key: key.startswith(topic + SEPARATOR))
        self.by_queue.topic_deleted(topic)

    def group_deleted(self, group: str) -> None:
        """Forget the counters of a group."""
        self._drop(lambda key: False, lambda key: key.endswith(SEPARATOR + group))
        self.by_queue.group_deleted(group)

    def _drop(self, of_topics: Callable[[str], bool], of_groups: Callable[[str], bool]) -> None:
        for table, dropped, gone in (
            (self.topics, of_topics, self._gone_put),
            (self.groups, of_groups, self._gone_get),
            (self.send_backs, of_groups, [0, 0]),
            (self.dead_letters, of_groups, [0, 0]),
            (self.check_points, of_groups, self._gone_check_points),
            (self.acks, of_groups, self._gone_acks),
        ):
            for key in [key for key in table if dropped(key)]:
                counter = table.pop(key)
                gone[counter.is_system] += counter.messages

    # ----------------------------------------------------------------- figures of the broker

    def put_total(self, with_system: bool = False) -> int:
        """Messages put since the start."""
        return _sum(self.topics, self._gone_put, with_system)

    def get_total(self, with_system: bool = False) -> int:
        """Messages handed out since the start."""
        return _sum(self.groups, self._gone_get, with_system)

    def put_calls(self) -> int:
        """Sends since the start, of topics that still exist."""
        return sum(counter.calls for counter in self.topics.values())

    def put_bytes(self) -> int:
        """Bytes of records put since the start, of topics that still exist."""
        return sum(counter.size_bytes for counter in self.topics.values())

    def midnight(self) -> None:
        """A day is over: what is counted now is what there was in the morning."""
        self.put_marks = (self.put_total(), self.put_marks[0])
        self.get_marks = (self.get_total(), self.get_marks[0])

    # ----------------------------------------------------------------- history

    def sample_for_minute(self) -> None:
        """Every ten seconds."""
        self._sample(MINUTE)

    def sample_for_hour(self) -> None:
        """Every ten minutes."""
        self._sample(HOUR)

    def sample_for_day(self) -> None:
        """Every hour."""
        self._sample(DAY)

    def _sample(self, span: Span) -> None:
        now_ms, period_ms = self._now_ms(), int(span.period_s * 1000)
        self.by_queue.sample(span, now_ms)
        for name, total in (
            (BROKER_PUT_NUMS, self.put_total(True)),
            (BROKER_GET_NUMS, self.get_total(True)),
            (BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, self.put_total()),
            (BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, self.get_total()),
            (BROKER_CK_NUMS, _sum(self.check_points, self._gone_check_points, True)),
            (BROKER_ACK_NUMS, _sum(self.acks, self._gone_acks, True)),
        ):
            self._own[name].messages = total
        for table in (
            self.topics,
            self.groups,
            self.send_backs,
            self.dead_letters,
            self.queues,
            self.check_points,
            self.acks,
            self._own,
        ):
            for counter in table.values():
                counter.sample(span, now_ms, period_ms)

    def find(self, name: str, key: str) -> Figures | None:
        """What an operator asks for by its official name and key; None when nothing was counted."""
        tables = {
            TOPIC_PUT_NUMS: (self.topics, False),
            TOPIC_PUT_SIZE: (self.topics, True),
            GROUP_GET_NUMS: (self.groups, False),
            GROUP_GET_SIZE: (self.groups, True),
            SEND_BACK_NUMS: (self.send_backs, False),
            DEAD_LETTER_NUMS: (self.dead_letters, False),
            QUEUE_PUT_NUMS: (self.queues, False),
            QUEUE_PUT_SIZE: (self.queues, True),
            GROUP_CK_NUMS: (self.check_points, False),
            GROUP_ACK_NUMS: (self.acks, False),
        }
        if name in self._own:
            return self._own[name].figures(False) if key == self._cluster else None
        if name not in tables:
            return self.by_queue.find(name, key)
        if name.startswith("QUEUE_") and not self.by_queue.by_queue:
            return None
        table, is_size = tables[name]
        counter = table.get(key)
        return None if counter is None else counter.figures(is_size)

    def put_rate(self, topic: str) -> float:
        """Messages a second sent to a topic, over the last minute."""
        return _rate(self.topics.get(topic))

    def get_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group got of a topic, over the last minute."""
        return _rate(self.groups.get(f"{topic}{SEPARATOR}{group}"))


def _rate(counter: Counter | None) -> float:
    return 0.0 if counter is None else counter.over(MINUTE, False).rate


def _sum(table: dict[str, Counter], gone: list[int], with_system: bool) -> int:
    total = gone[False] + (gone[True] if with_system else 0)
    return total + sum(
        counter.messages for counter in table.values() if with_system or not counter.is_system
    )
