"""One compacted queue as the reactor knows it: what its files hold, who reads them, and what is done to them in the pools.

Stands for the state of the official ``CompactionLog``. Messages come from the plain queue: `follow` copies what is new there. Until it has,
readers get them from the commit log itself, so nobody waits for the copy.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredLock, succeed

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.compaction.files import Found, Kept, Layout, Segment, append, cut, read
from txrocketmq.store.compaction.positions import read_positions
from txrocketmq.store.compaction.rewrite import Compacted, compact, load, replace


@attrs.define(eq=False)
class Pools:
    """Where a queue's blocking work goes.

    :ivar write: appends; short.
    :ivar read: pulls.
    :ivar compact: runs, which may take minutes.
    """

    write: IBlockingPool
    read: IBlockingPool
    compact: IBlockingPool


class CompactedQueue:
    """The files of one queue.

    :ivar segments: what they hold; empty before `opened` fired.
    :ivar is_checked: the newest message is known to be the one that the plain queue has there.
    :ivar checking: who finds that out.
    :ivar compacting: the run that goes on; there is one at a time.
    :ivar position: the queue offset up to which messages were compared; -1 before the first run.
    :ivar followed_to: messages before this queue offset were looked at, and are copied or left out; 0 after a start.
    :ivar fetched_to: a slave has all that its master has before this queue offset; 0 where nobody asked.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        layout: Layout,
        disk: IDisk,
        pools: Pools,
        positions_path: str,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.position = -1
        self.fetched_to = 0
        self.followed_to = 0
        self._positions_path = positions_path
        self.segments: list[Segment] = []
        self.is_deleted = False
        self.is_checked = False
        self.checking = DeferredLock()
        self.compacting = DeferredLock()
        self._layout = layout
        self._disk = disk
        self._pools = pools
        self._lasts: list[int] = []
        self._is_open = False
        #: Somebody opens it, or changes files that readers know.
        self._is_closed_for_work = False
        self._when_open: list[Deferred[None]] = []
        self._readers = 0
        self._when_unread: list[Deferred[None]] = []
        #: Jobs that change files wait for one another.
        self._busy = False
        self._when_free: list[Deferred[None]] = []

    # ------------------------------------------------------------------ opening

    def opened(self) -> Deferred[None]:
        """Fires when it is known what the files hold. `StoreError` or OSError where that cannot be told; the next call tries
        again."""
        if self._is_open:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._when_open.append(waiting)
        if not self._is_closed_for_work:
            self._is_closed_for_work = True
            Deferred.fromCoroutine(self._open()).addBoth(self._tell_opened)
        return waiting

    async def _open(self) -> None:
        segments, position = await self._pools.read.submit(
            _load, self._disk, self._layout, self._positions_path, f"{self.topic}_{self.queue_id}"
        )
        self._set(segments)
        self.position = position
        self._is_open = True

    def _tell_opened(self, outcome: object) -> None:
        self._is_closed_for_work = False
        waiting, self._when_open = self._when_open, []
        for waiter in waiting:
            waiter.callback(outcome)  # type: ignore[arg-type]

    def _set(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._lasts = [segment.last for segment in segments if segment.units]

    @property
    def min_offset(self) -> int:
        """The first queue offset in the files, -1 when there is none."""
        return next((segment.first for segment in self.segments if segment.units), -1)

    @property
    def end_offset(self) -> int:
        """The queue offset behind the last one in the files; 0 when there is none."""
        return self._lasts[-1] + 1 if self._lasts else 0

    # ------------------------------------------------------------------ turns

    async def _take_turn(self) -> None:
        while True:
            await self.opened()
            if not self._busy:
                break
            free: Deferred[None] = Deferred()
            self._when_free.append(free)
            await free
        self._busy = True

    def _end_turn(self) -> None:
        self._busy = False
        waiting, self._when_free = self._when_free, []
        for waiter in waiting:
            waiter.callback(None)

    # ------------------------------------------------------------------ reading

    async def read(self, offset: int, max_messages: int, max_bytes: int) -> Found:
        """Messages from a queue offset on, or the next that is there; nothing where the files end before it."""
        while not self._is_open:
            await self.opened()
        with_units = [segment for segment in self.segments if segment.units]
        number = bisect_left(self._lasts, offset)
        if number == len(with_units):
            return Found((), ())
        self._readers += 1
        try:
            found: Found = await self._pools.read.submit(
                read, self._disk, self._layout, with_units[number], offset, max_messages, max_bytes
            )
        finally:
            self._readers -= 1
            if not self._readers:
                waiting, self._when_unread = self._when_unread, []
                for waiter in waiting:
                    waiter.callback(None)
        return found

    async def _close_to_readers(self) -> None:
        """Until nobody reads; who comes from now on waits in `opened`."""
        self._is_open, self._is_closed_for_work = False, True
        if self._readers:
            unread: Deferred[None] = Deferred()
            self._when_unread.append(unread)
            await unread

    # ------------------------------------------------------------------ writing

    async def append(self, messages: list[Kept]) -> None:
        """Put messages behind the last one; they are on the device then. OSError where they are not: put them again."""
        await self._take_turn()
        try:
            if self.is_deleted:
                return
            last = self.segments[-1] if self.segments else None
            fresh = [kept for kept in messages if kept.queue_offset >= self.end_offset]
            changed: list[Segment] = await self._pools.write.submit(
                append, self._disk, self._layout, last, fresh
            )
            kept = self.segments
            if changed and last is not None and changed[0].base == last.base:
                kept = kept[:-1]
            self._set([*kept, *changed])
        finally:
            self._end_turn()

    async def cut(self, end_offset: int) -> None:
        """Drop the messages from a queue offset on: the commit log never had them, or lost them."""

        async def work() -> list[Segment]:
            left: list[Segment] = await self._pools.write.submit(
                cut, self._disk, self._layout, self.segments, end_offset
            )
            return left

        await self._change(work)
        self.followed_to = 0
        self.position = min(self.position, end_offset - 1)

    async def compact(
        self, map_bytes: int, save: Callable[[], Deferred[None]], is_stopped: Callable[[], bool]
    ) -> Compacted | None:
        """One run. Messages may come meanwhile: the file that is written is left alone."""
        await self.opened()
        sealed = tuple(self.segments[:-1])
        layout = self._layout
        made: Compacted | None = await self._pools.compact.submit(
            compact, self._disk, layout, sealed, self.position, map_bytes, is_stopped
        )
        if made is None or is_stopped():
            return None
        fresh = made.segments

        async def work() -> list[Segment]:
            if tuple(self.segments[: len(sealed)]) != sealed:
                # Cut or deleted meanwhile.
                return self.segments
            await self._pools.write.submit(replace, self._disk, layout, sealed, fresh)
            return [*fresh, *self.segments[len(sealed) :]]

        await self._change(work)
        self.position = made.last_offset
        await save()
        return made

    async def _change(self, work: Callable[[], Coroutine[Any, Any, list[Segment]]]) -> None:
        """Change files that readers know; where that fails, what they hold has to be looked at again."""
        await self._take_turn()
        try:
            await self._close_to_readers()
            try:
                if not self.is_deleted:
                    self._set(await work())
                self._is_open = True
            finally:
                # Without success whoever waits tries to open them.
                self._is_closed_for_work = False
                waiting, self._when_open = self._when_open, []
                for waiter in waiting:
                    self.opened().chainDeferred(waiter)
        finally:
            self._end_turn()

    async def delete(self) -> None:
        """The topic is gone: so are its files."""
        self.is_deleted = True

        async def work() -> list[Segment]:
            return []

        with contextlib.suppress(OSError, StoreError):
            await self._change(work)
        self._set([])
        self.position = -1
        for directory in (self._layout.log_directory, self._layout.queue_directory):
            await self._pools.write.submit(_remove, self._disk, directory)


def _load(disk: IDisk, layout: Layout, path: str, key: str) -> tuple[list[Segment], int]:
    """Pool: what a queue's files hold, and its position."""
    return load(disk, layout), read_positions(disk, path).get(key, -1)


def _remove(disk: IDisk, directory: str) -> None:
    """Pool: delete a directory for good."""
    if disk.exists(directory):
        disk.rmtree(directory)
        disk.sync_directory(os.path.dirname(directory))
