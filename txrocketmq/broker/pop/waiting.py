"""How does a pop without messages wait, and what wakes it?

Stands for ``PopLongPollingService``. Requests wait by topic, group and the queue id that they asked for (-1 is any queue). A message
wakes one request of each group that waits for any queue, and one that waits for just its queue; a message of a group's retry topic
wakes one of that group. A request that is woken runs again and may wait again, until its own time is over. What a peer can make the
broker keep is bounded in number (`maxPopPollingSize`, `popPollingSize` for each key) and in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, partial
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.deadlines import Deadlines
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IConnection, IMessageFilter
from txrocketmq.model.names import pop_retry_topics
from txrocketmq.remoting.dispatch import Request

Key = tuple[str, str, int]
"""Topic, group, queue id or -1."""

ANY_QUEUE = -1
MAX_WAITING_BYTES = 256 * 1024 * 1024
USUAL_BYTES = 1024
EARLY_MS = 50
"""Nobody waits for less; officially the same."""
WAKES_OF_A_TURN = 500


class Held(Enum):
    """What became of a request that wants to wait."""

    HELD = "it waits"
    FULL = "there is no room"
    OVER = "its time is over, or it does not want to"


class Waiter:
    """One request that waits.

    :ivar deadline_ms: wall-clock time at which it is run for the last time.
    """

    __slots__ = (
        "connection",
        "deadline_ms",
        "is_held",
        "key",
        "message_filter",
        "request",
        "size_bytes",
    )

    def __init__(
        self,
        key: Key,
        deadline_ms: int,
        request: Request[Any],
        message_filter: IMessageFilter | None,
        size_bytes: int,
    ) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.request = request
        self.connection: IConnection = request.connection
        self.message_filter = message_filter
        self.size_bytes = size_bytes
        self.is_held = False


class Waiting:
    """All requests of one kind that wait.

    :param run: serves a request again.
    :param read_record: the record at a logical offset of a queue, None where it is not at hand.
    :ivar count: how many wait.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        config: BrokerConfig,
        run: Callable[[Request[Any]], object],
        read_record: Callable[[str, int, int], bytes | None],
    ) -> None:
        self._clock = clock
        self._config = config
        self._run = run
        self._read_record = read_record
        # Dicts as ordered sets: who came first is woken first.
        self._by_key: dict[Key, dict[Waiter, None]] = {}
        # Queue ids that are waited for, by topic and group; and the groups' retry topics.
        self._groups: dict[str, dict[str, dict[int, None]]] = {}
        self._of_retry: dict[str, dict[tuple[str, str], None]] = {}
        self._by_connection: dict[IConnection, dict[Waiter, None]] = {}
        self._deadlines: Deadlines[Waiter] = Deadlines(clock, self._time_over)
        self._ready: deque[Waiter] = deque()
        self._run_call: IDelayedCall | None = None
        self._is_stopped = False
        self.count = 0
        self.size_bytes = 0

    def hold(
        self,
        request: Request[Any],
        key: Key,
        born_ms: int,
        poll_ms: int,
        message_filter: IMessageFilter | None = None,
    ) -> Held:
        """Let a request wait until a message arrives or its time is over."""
        if poll_ms <= 0 or self._is_stopped or not request.connection.is_open:
            # A link may be lost while a pop waits for the device: who is not there must not be woken instead of others.
            return Held.OVER
        deadline_ms = born_ms + poll_ms - EARLY_MS
        now_ms = int(self._clock.seconds() * 1000)
        size_bytes = USUAL_BYTES + len(request.body) + sum(map(len, request.ext_fields.values()))
        if self.count >= self._config.max_pop_polling_size or (
            self.size_bytes + size_bytes > MAX_WAITING_BYTES
        ):
            return Held.FULL
        if now_ms >= deadline_ms:
            return Held.OVER
        waiters = self._by_key.get(key, {})
        if len(waiters) > self._config.pop_polling_size:
            return Held.FULL
        if not waiters:
            if len(self._by_key) >= self._config.pop_polling_map_size:
                return Held.FULL
            self._enter(key, waiters)
        waiter = Waiter(key, deadline_ms, request, message_filter, size_bytes)
        waiter.is_held = True
        waiters[waiter] = None
        self._by_connection.setdefault(waiter.connection, {})[waiter] = None
        self.count += 1
        self.size_bytes += size_bytes
        self._deadlines.add(waiter, self.count)
        return Held.HELD

    def count_of(self, key: Key) -> int:
        """How many wait under a key."""
        return len(self._by_key.get(key, ()))

    def awaits(self, topic: str, queue_id: int) -> bool:
        """Whether a message of a queue may be waited for."""
        return topic in self._groups or topic in self._of_retry

    def message_arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Arrival listener of the store: called for each message once it can be read."""
        if not self.count:
            return
        groups = self._groups.get(topic)
        if groups is not None:
            interval = self._config.pop_long_polling_force_notify_interval
            is_forced = interval > 0 and (next_offset - 1) % interval == 0
            # Read once, whatever number of filters ask for it.
            read = cache(partial(self._read_record, topic, queue_id, next_offset - 1))
            for group in tuple(groups):
                for asked in (ANY_QUEUE, queue_id):
                    waiter = self._first((topic, group, asked))
                    if waiter is not None and (is_forced or self._wants(waiter, tags_code, read)):
                        self._make_ready(waiter)
        for origin, group in tuple(self._of_retry.get(topic, ())):
            self.wake_group(origin, group)

    def queue_whole(self, topic: str, queue_id: int) -> None:
        """A queue that was derived again can be read: whatever somebody wants may be in it, and for everybody."""
        for group in tuple(self._groups.get(topic, ())):
            for asked in (ANY_QUEUE, queue_id):
                for waiter in tuple(self._by_key.get((topic, group, asked), ())):
                    self._make_ready(waiter)
        for origin, group in tuple(self._of_retry.get(topic, ())):
            self.wake_group(origin, group)

    @staticmethod
    def _wants(waiter: Waiter, tags_code: int, read: Callable[[], bytes | None]) -> bool:
        wanted = waiter.message_filter
        if wanted is None:
            return True
        if not wanted.matches_tags_code(tags_code):
            return False
        if not wanted.needs_record:
            return True
        record = read()
        return record is None or bool(wanted.matches_record(record))

    def wake(self, key: Key) -> bool:
        """Run one request that waits under a key; whether there was one."""
        waiter = self._first(key)
        if waiter is None:
            return False
        self._make_ready(waiter)
        return True

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """A queue may be popped again: run one request that waits for any, else one that waits for it."""
        if not self.wake((topic, group, ANY_QUEUE)):
            self.wake((topic, group, queue_id))

    def wake_group(self, topic: str, group: str) -> None:
        """Run one request of a group, whatever queue it waits for."""
        for queue_id in tuple(self._groups.get(topic, {}).get(group, ())):
            if self.wake((topic, group, queue_id)):
                return

    def drop_connection(self, connection: IConnection) -> None:
        """Forget the requests of a connection that is gone."""
        for waiter in tuple(self._by_connection.get(connection, ())):
            self._release(waiter)

    def drop(self, is_doomed: Callable[[Key], bool]) -> None:
        """Run all requests for a topic or group that is gone: they will be told."""
        for key in [key for key in self._by_key if is_doomed(key)]:
            for waiter in tuple(self._by_key.get(key, ())):
                self._make_ready(waiter)

    def stop(self) -> None:
        """Answer everybody, and hold no timer any more."""
        self._is_stopped = True
        self.drop(lambda key: True)
        while self._ready:
            self._run_ready()
        if self._run_call is not None and self._run_call.active():
            self._run_call.cancel()
        self._run_call = None
        self._deadlines.clear()

    def _first(self, key: Key) -> Waiter | None:
        waiters: Iterable[Waiter] = self._by_key.get(key, ())
        return next(iter(waiters), None)

    def _enter(self, key: Key, waiters: dict[Waiter, None]) -> None:
        topic, group, queue_id = key
        self._by_key[key] = waiters
        queues = self._groups.setdefault(topic, {}).setdefault(group, {})
        if not queues:
            for name in pop_retry_topics(topic, group):
                self._of_retry.setdefault(name, {})[topic, group] = None
        queues[queue_id] = None

    def _leave(self, key: Key) -> None:
        topic, group, queue_id = key
        del self._by_key[key]
        groups = self._groups[topic]
        del groups[group][queue_id]
        if groups[group]:
            return
        del groups[group]
        if not groups:
            del self._groups[topic]
        for name in pop_retry_topics(topic, group):
            del self._of_retry[name][topic, group]
            if not self._of_retry[name]:
                del self._of_retry[name]

    def _release(self, waiter: Waiter) -> None:
        if not waiter.is_held:
            return
        waiter.is_held = False
        self.count -= 1
        self.size_bytes -= waiter.size_bytes
        waiters = self._by_key[waiter.key]
        del waiters[waiter]
        if not waiters:
            self._leave(waiter.key)
        mine = self._by_connection[waiter.connection]
        del mine[waiter]
        if not mine:
            del self._by_connection[waiter.connection]

    def _make_ready(self, waiter: Waiter) -> None:
        self._release(waiter)
        self._ready.append(waiter)
        if self._run_call is None:
            self._run_call = self._clock.callLater(0, self._run_ready)

    def _run_ready(self) -> None:
        call, self._run_call = self._run_call, None
        if call is not None and call.active():
            call.cancel()
        ready = self._ready
        for _ in range(min(len(ready), WAKES_OF_A_TURN)):
            waiter = ready.popleft()
            connection = waiter.connection
            if not (connection.is_open and connection.is_writable):
                # What woke it is for another one of its group, if there is one.
                self.wake(waiter.key)
            if connection.is_open:
                # A peer that does not read gets no more messages until it does.
                connection.call_when_writable(partial(self._serve, waiter.request))
        if ready and self._run_call is None:
            self._run_call = self._clock.callLater(0, self._run_ready)

    def _serve(self, request: Request[Any]) -> None:
        try:
            self._run(request)
        except Exception:
            self._log.failure("a request that waited could not be served")

    def _time_over(self, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            self._make_ready(waiter)
        self._run_ready()
