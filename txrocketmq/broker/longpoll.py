"""How does a pull without messages wait, and what wakes it?

Stands for ``PullRequestHoldService`` and ``ManyPullRequest``. A held pull is answered by the first message of its queue that
passes its filter, or exactly when its time is over; the official scan every five seconds is not copied. Wake-ups of one reactor
turn are gathered, so that a burst of sends is answered by one pull with many messages::

    held --message or deadline--> ready --next turn--> answered
      |                             `--the peer takes no more bytes--> stalled --it does again--> ready
      `--its link is gone--> forgotten, in any state

What a peer can make the broker keep is bounded: the number of held pulls, their bytes, and the answers that it does not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.deadlines import Deadlines
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.interfaces import IConnection, IMessageFilter, IMessageStore
from txrocketmq.remoting.dispatch import Request

QueueKey = tuple[str, int]

MAX_HELD_BYTES = 256 * 1024 * 1024
"""What all held requests together may take; a usual one takes `USUAL_PULL_BYTES` and what its header and body have."""
USUAL_PULL_BYTES = 1024

WAKES_OF_A_TURN = 500
"""Pulls answered before others have their turn."""


class HeldPull:
    """One pull that waits.

    :ivar request: the request to run again on wake-up, and to answer then.
    :ivar offset: logical offset that was asked for; any message at or after it may wake the pull.
    :ivar deadline_ms: wall-clock time at which it is answered anyway.
    :ivar size_bytes: about what keeping the request costs.
    """

    __slots__ = (
        "connection",
        "deadline_ms",
        "is_held",
        "message_filter",
        "offset",
        "queue",
        "request",
        "size_bytes",
    )

    def __init__(
        self,
        queue: QueueKey,
        offset: int,
        deadline_ms: int,
        message_filter: IMessageFilter | None,
        connection: IConnection,
        request: Request[PullMessageRequestHeader],
        size_bytes: int = USUAL_PULL_BYTES,
    ) -> None:
        self.queue = queue
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.message_filter = message_filter
        self.connection = connection
        self.request = request
        self.size_bytes = size_bytes
        self.is_held = False


class HeldPulls:
    """All pulls that wait, by queue.

    :param wake: runs a pull again and answers it, whatever it finds.
    :param is_readable: whether there are messages from a logical offset of a queue on that can be read now.
    :param capacity: how many pulls may wait at once.
    :param read_record: the record at a logical offset of a queue, None where it is not at hand; pulls whose filter needs
        the record are woken by any message where it is None, or cannot be read.
    :ivar count: how many wait.
    :ivar size_bytes: what they take.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        wake: Callable[[HeldPull], None],
        is_readable: Callable[[str, int, int], bool],
        capacity: Callable[[], int],
        read_record: Callable[[str, int, int], bytes | None] | None = None,
    ) -> None:
        self._clock = clock
        self._read_record = read_record
        self._wake = wake
        self._is_readable = is_readable
        self._capacity = capacity
        # Dicts as ordered sets: one link may hold a hundred thousand pulls of one queue, and go away.
        self._by_queue: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_connection: dict[IConnection, dict[HeldPull, None]] = {}
        self._stalled: dict[IConnection, deque[HeldPull]] = {}
        self._deadlines: Deadlines[HeldPull] = Deadlines(clock, self._time_over)
        self._ready: deque[HeldPull] = deque()
        self._wake_call: IDelayedCall | None = None
        self.count = 0
        self.size_bytes = 0

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until a message arrives or its time is over; False when there is no room for more, or nobody to be answered: a link may
        be lost while a cold read takes its time."""
        if not pull.connection.is_open:
            return False
        if self.count >= self._capacity() or self.size_bytes + pull.size_bytes > MAX_HELD_BYTES:
            return False
        pull.is_held = True
        self.count += 1
        self.size_bytes += pull.size_bytes
        self._by_queue.setdefault(pull.queue, {})[pull] = None
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        self._deadlines.add(pull, self.count)
        # A cold read takes several turns; what arrived meanwhile must not be slept through.
        if self._is_readable(*pull.queue, pull.offset):
            self._make_ready(pull)
        return True

    def listen_to(self, store: IMessageStore) -> None:
        """Be told of what can be read."""
        store.add_arrival_listener(
            self.message_arrived, lambda topic, queue_id: (topic, queue_id) in self._by_queue
        )
        store.add_whole_listener(self.queue_whole)

    def message_arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_timestamp_ms: int
    ) -> None:
        """Arrival listener of the store: called for each message once it can be read."""
        if not self._by_queue:
            return
        pulls = self._by_queue.get((topic, queue_id))
        if pulls is None:
            return
        record: bytes | None = None
        is_read = False
        for pull in tuple(pulls):
            if next_offset <= pull.offset:
                continue
            wanted = pull.message_filter
            if wanted is not None:
                if not wanted.matches_tags_code(tags_code):
                    continue
                if wanted.needs_record:
                    if not is_read and self._read_record is not None:
                        record = self._read_record(topic, queue_id, next_offset - 1)
                        is_read = True
                    if record is not None and not wanted.matches_record(record):
                        continue
            self._make_ready(pull)

    def queue_whole(self, topic: str, queue_id: int) -> None:
        """A queue that was derived again can be read: whatever a pull wants may be in it."""
        for pull in tuple(self._by_queue.get((topic, queue_id), ())):
            self._make_ready(pull)

    def drop_connection(self, connection: IConnection) -> None:
        """Forget the pulls of a connection that is gone: nobody waits for their answer."""
        self._stalled.pop(connection, None)
        for pull in tuple(self._by_connection.get(connection, ())):
            self._release(pull)

    def wake_group(self, group: str, topic: str) -> None:
        """Answer a group's held pulls of a topic soon (an operator moved it to other offsets)."""
        for queue, pulls in tuple(self._by_queue.items()):
            if queue[0] == topic:
                for pull in tuple(pulls):
                    if pull.request.header.consumer_group == group:
                        self._make_ready(pull)

    def wake_all(self) -> None:
        """Answer every held pull now (the broker stops, or a master appeared)."""
        for pulls in tuple(self._by_queue.values()):
            for pull in tuple(pulls):
                self._make_ready(pull)
        while self._ready:
            self._run_ready()

    def stop(self) -> None:
        """Answer every held pull and hold no timer any more; peers that do not read get nothing."""
        self.wake_all()
        self._stalled.clear()
        if self._wake_call is not None and self._wake_call.active():
            self._wake_call.cancel()
        self._wake_call = None
        self._deadlines.clear()

    def _release(self, pull: HeldPull) -> None:
        pull.is_held = False
        self.count -= 1
        self.size_bytes -= pull.size_bytes
        pulls = self._by_queue[pull.queue]
        del pulls[pull]
        if not pulls:
            del self._by_queue[pull.queue]
        mine = self._by_connection[pull.connection]
        del mine[pull]
        if not mine:
            del self._by_connection[pull.connection]

    def _make_ready(self, pull: HeldPull) -> None:
        self._release(pull)
        self._ready.append(pull)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._wake_call is None:
            self._wake_call = self._clock.callLater(0, self._run_ready)

    def _run_ready(self) -> None:
        call, self._wake_call = self._wake_call, None
        if call is not None and call.active():
            call.cancel()
        ready = self._ready
        for _ in range(min(len(ready), WAKES_OF_A_TURN)):
            pull = ready.popleft()
            connection = pull.connection
            if not connection.is_open:
                continue
            if not connection.is_writable or connection in self._stalled:
                self._stall(pull)
                continue
            try:
                self._wake(pull)
            except Exception:
                self._log.failure("a held pull could not be answered")
        if ready:
            self._run_soon()

    def _stall(self, pull: HeldPull) -> None:
        """Answering a peer that does not read would only pile up bytes: its pulls wait for it."""
        connection = pull.connection
        stalled = self._stalled.get(connection)
        if stalled is not None:
            stalled.append(pull)
            return
        self._stalled[connection] = deque((pull,))
        connection.call_when_writable(lambda: self._go_on(connection))

    def _go_on(self, connection: IConnection) -> None:
        stalled = self._stalled.pop(connection, None)
        if stalled:
            self._ready.extend(stalled)
            self._run_soon()

    def _time_over(self, pulls: list[HeldPull]) -> None:
        for pull in pulls:
            self._make_ready(pull)
        self._run_ready()
