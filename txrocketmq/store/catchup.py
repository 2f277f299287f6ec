"""What of a store is made whole while the broker serves already? The index, and queues that were lost.

Stands for nothing official: an official broker has no index of what it does not read again, and no queue that it does not derive before it
opens its port. Both walks read the log a piece at a time (`txrocketmq.store.scanning`) and leave the reactor as much time as they take, as soon
as somebody else wants any.

* `IndexCatchUp` goes on where the index ends, and follows the log until it has reached its end; only then are new messages indexed in the
  turn of their append. Keys of newer messages cannot be found before. The same happens when messages come faster than the index gets room.
* `QueueRebuild` derives queues that are missing or behind. As long as the next offset of one of them is not known it takes no messages, and
  answers SYSTEM_BUSY to whoever asks for it. Pulls of what is not derived yet are held. All other queues are served.

Crash story: the checkpoint says no more of the queues than the rebuild has reached, and a stop before its end leaves the abort file, so the
next start goes on there. Full index files are on the device before the checkpoint says so; after an orderly stop also the last one is trusted,
and the walk goes on behind its last message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.record import RecordHead
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.index import MAX_WAITING, IndexService
from txrocketmq.store.nextoffsets import NextOffsets
from txrocketmq.store.queuetable import QUEUES_AT_ONCE, AnyQueue, QueueTable, give_way
from txrocketmq.store.reput import Reput
from txrocketmq.store.scanning import (
    BLOCKS_PIECE_BYTES,
    SERVING_PIECE_BYTES,
    START_PIECE_BYTES,
    Progress,
    SlicedScan,
    TakeBlock,
)

QueueKey = tuple[str, int]

MAX_WAITING_ENTRIES = 20_000
"""Index entries without a place yet at which the walk waits: the pool makes room for them."""

WAIT_S = 0.1
"""How long the walk waits then, and for the flush of what it has reached."""

MAX_PAUSE_S = 0.05

RETRY_S = 1.0
"""When a walk goes on that could not read the log: it was not to be had, or the pool had too much to do."""

_BOUND_EVERY_BYTES = 16 << 20


class CatchUp:
    """A walk over the log beside everything else; subclasses say what is done with its records."""

    log = Logger()
    what = ""

    def __init__(
        self, commit_log: CommitLog, disk: IDisk, pool: IBlockingPool, clock: IReactorTime
    ) -> None:
        self._commit_log = commit_log
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._stopping = False
        self._running: Deferred[None] | None = None
        self._log_end = 0
        self._sleep: tuple[IDelayedCall, Deferred[None]] | None = None
        self.progress: Progress | None = None

    @property
    def is_running(self) -> bool:
        """Whether the walk goes on."""
        return self._running is not None

    def start(self) -> None:
        """Begin, and go on beside everything else."""
        self._log_end = self._commit_log.max_offset
        done = Deferred.fromCoroutine(self._run())
        if not done.called:
            self._running = done
        done.addErrback(self._failed).addBoth(self._over)

    def stop(self) -> Deferred[None]:
        """Give up where the walk is just now; fires when nothing of it runs any more."""
        self._stopping = True
        if self._running is None:
            return succeed(None)
        waiter: Deferred[None] = Deferred()
        self._running.addBoth(lambda _: waiter.callback(None))
        if self._sleep is not None:
            call, sleeper = self._sleep
            call.cancel()
            sleeper.callback(None)
        return waiter

    def _over(self, _: object) -> None:
        self._running = None

    def _failed(self, failure: Failure) -> None:
        self.log.failure("{what} failed", failure, what=self.what)

    async def _run(self) -> None:
        raise NotImplementedError

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    async def _piece(
        self, scan: SlicedScan, size: int, take: TakeBlock | None = None
    ) -> list[tuple[int, RecordHead]]:
        """The next piece of a scan; where it cannot be read, it is tried again: nobody else would. Empty when stopping."""
        has_failed = False
        while not self._stopping:
            try:
                return await scan.piece(size, take)
            except (OSError, StoreError) as error:
                if not has_failed:
                    self.log.error(
                        "{what}: the log cannot be read at {offset}, it is tried again: {error}",
                        what=self.what,
                        offset=scan.offset,
                        error=error,
                    )
                has_failed = True
            await self.sleep(RETRY_S)
        return []

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        waiter: Deferred[None] = Deferred()
        self._sleep = self._clock.callLater(seconds, waiter.callback, None), waiter
        await waiter
        self._sleep = None

    async def _give_way(self, began: float) -> None:
        """Where somebody else has work, take no more than half of the time."""
        end = self._commit_log.max_offset
        spent = min(self._clock.seconds() - began, MAX_PAUSE_S)
        if end != self._log_end and spent > 0:
            self._log_end = end
            await self.sleep(spent)

    def _scan(self, offset: int, limit: int) -> SlicedScan:
        return SlicedScan(self._commit_log.queue, self._disk, self._pool, offset, limit=limit)


class IndexCatchUp(CatchUp):
    """Indexes what the log holds behind the index's end, as far as it is dispatched: readers may not see more yet."""

    what = "index"

    def __init__(
        self,
        commit_log: CommitLog,
        disk: IDisk,
        pool: IBlockingPool,
        clock: IReactorTime,
        index: IndexService,
        reput: Reput,
    ) -> None:
        super().__init__(commit_log, disk, pool, clock)
        self._index = index
        self._reput = reput
        index.when_full = self._fall_behind

    def _fall_behind(self) -> None:
        """Messages come faster than the index gets room, or it gets none: from here on it follows the log again."""
        if self._reput.index_is_current:
            self._reput.index_is_current = False
            # Not within the turn of an append.
            self._clock.callLater(0, self._resume)

    def _resume(self) -> None:
        if not self._stopping and not self.is_running:
            self.start()

    @property
    def begin(self) -> int:
        """The first record that may have to be indexed."""
        return max(self._index.end_offset, self._commit_log.min_offset)

    @property
    def bytes_left(self) -> int:
        """How much of the log has to be walked over."""
        return max(self._reput.offset - self.begin, 0)

    async def run_first(self) -> bool:
        """The whole walk before anybody is served, for indexes that are hardly behind; False where that has to go on later."""
        return await self._walk(START_PIECE_BYTES)

    async def _run(self) -> None:
        begin = self.begin
        self.log.info(
            "the index ends at {begin}, the log at {end}: what is between is indexed while the broker serves",
            begin=begin,
            end=self._reput.offset,
        )
        self.progress = Progress("the index is made whole", begin, self._reput.offset, self._now_ms)
        if await self._walk(BLOCKS_PIECE_BYTES):
            self.log.info(
                "the index is whole again after {seconds} s",
                seconds=round(self.progress.elapsed_ms / 1000, 1),
            )

    async def _walk(self, piece_bytes: int) -> bool:
        reput, index = self._reput, self._index
        scan = self._scan(self.begin, reput.offset)
        while not self._stopping:
            began = self._clock.seconds()
            scan.limit = reput.offset
            # Before anybody is served a log that cannot be read is the start's end.
            is_first = self.progress is None
            pieces = scan.piece if is_first else partial(self._piece, scan)
            for offset, head in await pieces(piece_bytes, reput.index_block):
                reput.index_head(offset, head)
            if scan.ended and scan.offset < reput.offset:
                scan = self._go_on_behind(scan)
            if self.progress is not None:
                while index.waiting > MAX_WAITING_ENTRIES and not self._stopping:
                    await self.sleep(WAIT_S)
            elif index.waiting >= MAX_WAITING:
                # There is no room for it, and nobody waits until there is.
                break
            if scan.offset >= reput.offset and not self._stopping:
                index.caught_up()
                reput.index_is_current = True
                return True
            if self.progress is not None:
                self.progress.reached(scan.offset, reput.offset)
                await self._give_way(began)
        return False

    def _go_on_behind(self, scan: SlicedScan) -> SlicedScan:
        """Where no record is: the log's beginning was deleted meanwhile, or this part is damaged and cannot be indexed."""
        log = self._commit_log
        following = max(log.min_offset, log.next_file_offset(scan.offset))
        if scan.offset >= log.min_offset:
            self.log.error(
                "there is no valid record at {offset}: the index goes on at {following}",
                offset=scan.offset,
                following=min(following, self._reput.offset),
            )
        else:
            following = log.min_offset
        return self._scan(min(following, self._reput.offset), self._reput.offset)


class QueueRebuild(CatchUp):
    """Derives queues from the log again, from its beginning on, and follows the log until it has reached its end. Meanwhile the log is
    looked at from its end backwards, until all next offsets are known (`txrocketmq.store.nextoffsets`).

    :param begin: where the log holds the first message that one of them may lack; a record's first byte.
    :param known: what is known of their next offsets.
    :ivar fault: why it cannot go on, None while it can.
    """

    what = "queues"

    def __init__(
        self,
        commit_log: CommitLog,
        disk: IDisk,
        pool: IBlockingPool,
        clock: IReactorTime,
        table: QueueTable,
        reput: Reput,
        begin: int,
        known: NextOffsets,
    ) -> None:
        super().__init__(commit_log, disk, pool, clock)
        self._table = table
        self._reput = reput
        self._known = known
        self._proof: SlicedScan | None = None
        self._proof_low = known.low
        self._bounded_at = 0
        self._whole = 0
        # Derived so far, and with nothing of them behind that as far as is known.
        self._ended: set[QueueKey] = set()
        self.begin = begin
        self.fault: str | None = None
        self.when_done: Callable[[], object] = lambda: None
        self.when_damaged: Callable[[str], object] = lambda fault: None

    def covers(self, topic: str, queue_id: int) -> bool:
        """Whether not all messages of a queue can be read yet."""
        return self._known.covers((topic, queue_id))

    def knows(self, topic: str, queue_id: int) -> bool:
        """Whether the next offset of a queue is known."""
        key = topic, queue_id
        return not self._known.covers(key) or (self.fault is None and self._known.knows(key))

    def reason(self, known: bool = False) -> str:
        """What is told to those who ask for such a queue.

        :param known: its next offset is known, but that is not what they ask for.
        """
        if self.fault is not None:
            return f"[RECOVERY]this queue cannot be recovered: {self.fault}"
        state = "" if self.progress is None else f" ({self.progress.text()})"
        lacks = (
            "derives this queue again" if known else "does not know this queue's next offset yet"
        )
        return f"[RECOVERY]the broker is in recovery and {lacks}{state}, try again later"

    def forget(self, topics: frozenset[str]) -> None:
        """Topics are deleted: their queues begin anew."""
        self._known.forget(topics)

    async def _run(self) -> None:
        self.log.warn(
            "queues are derived from the log again, from {begin} to {end}, while the broker serves what it can; "
            "the next offsets of {count} of them are known already",
            begin=self.begin,
            end=self._reput.offset,
            count=len(self._table.ahead),
        )
        self.progress = Progress("queues are derived", self.begin, self._reput.offset, self._now_ms)
        scan = self._scan(self.begin, self._reput.offset)
        while not self._stopping:
            began = self._clock.seconds()
            if not self._known.is_complete:
                await self._prove()
            records = await self._piece(scan, SERVING_PIECE_BYTES)
            if self._stopping or self.fault is not None:
                return
            self._derive(records)
            if not self._known.is_complete and scan.offset >= self._known.low:
                self._all_are_known()
            while self._ended and self._known.is_complete and not self._stopping:
                self._tell_ended()
                await self._give_turn()
            scan.limit = self._reput.offset
            if scan.offset >= self._reput.offset:
                self._finish()
                return
            if scan.ended:
                if scan.offset >= self._commit_log.min_offset:
                    self._give_up(scan)
                    return
                scan = self._scan(self._commit_log.min_offset, self._reput.offset)
            self.progress.reached(scan.offset, self._reput.offset)
            self._bound()
            await self._give_way(began)

    # ------------------------------------------------------------------ backwards

    async def _prove(self) -> None:
        """Look at one more piece of the stretch before what was looked at."""
        low = self._known.low
        if low <= self.begin:
            return
        if self._proof is None:
            files = self._commit_log.queue
            file = files.find(low - 1)
            self._proof_low = max(self.begin, low if file is None else file.base_offset)
            self._proof = self._scan(self._proof_low, low)
        scan = self._proof
        self._known.note(await self._piece(scan, SERVING_PIECE_BYTES))
        if scan.offset >= low:
            self._known.settle(self._proof_low)
            self._proof = None
            if self._known.is_complete:
                self._say_known()
        elif scan.ended and not self._stopping:
            self._give_up(scan)

    def _all_are_known(self) -> None:
        """What was derived and what was looked at meet: a queue that has nothing behind that place ends where it ends."""
        self._proof = None
        self._known.abandon()
        self._say_known()

    def _tell_ended(self) -> None:
        """Wake who waits for some of the queues that are whole because nothing of them lies behind what was derived."""
        for key in [self._ended.pop() for _ in range(min(len(self._ended), QUEUES_AT_ONCE))]:
            queue = self._table.find(*key)
            if queue is not None and key not in self._table.ahead:
                self._reput.tell_whole(queue)

    async def _give_turn(self) -> None:
        try:
            await self._pool.submit(give_way)
        except (OSError, StoreError):
            # It has too much to do: so has the reactor.
            await self.sleep(MAX_PAUSE_S)

    def _say_known(self) -> None:
        assert self.progress is not None
        self.log.info(
            "all next offsets are known after {seconds} s; {count} queues are still derived",
            seconds=round(self.progress.elapsed_ms / 1000, 1),
            count=len(self._table.ahead),
        )

    def _bound(self) -> None:
        end = self._commit_log.max_offset
        if end - self._bounded_at >= _BOUND_EVERY_BYTES:
            self._bounded_at = end
            self._known.bound()

    # ------------------------------------------------------------------ forwards

    def _derive(self, records: Sequence[tuple[int, RecordHead]]) -> None:
        covers, light = self._known.covers, self._reput.light
        touched: set[QueueKey] = set()
        for offset, head in records:
            key = head.topic, head.queue_id
            keys = light.keys(head.topic, head.properties)
            if covers(key):
                touched.add(key)
                self._reput.derive_queues(((offset, head),), covers)
            elif any(map(covers, keys)):
                self._reput.derive_light_queues(offset, head, covers)
            touched.update(keys)
        if records:
            self._table.rebuilt_to_ms = records[-1][1].store_timestamp
        self._settle(touched)

    def _settle(self, keys: Collection[QueueKey]) -> None:
        """Those of the queues that are whole take over from their rows, and whoever waits for them is woken."""
        table = self._table
        for key in keys:
            queue = table.find(*key)
            if queue is not None and key not in table.ahead and self._known.covers(key):
                queue.next_index = queue.max_index
                self._ended.add(key)
        self._take_over(self._known.completed(table, keys))

    def _take_over(self, whole: dict[AnyQueue, AnyQueue]) -> None:
        self._reput.redirect(whole)
        self._whole += len(whole)
        for queue in whole.values():
            self._reput.tell_whole(queue)

    def _finish(self) -> None:
        assert self.progress is not None
        if not self._known.is_complete:
            self._all_are_known()
        rest = list(self._table.ahead)
        self._take_over(self._known.completed(self._table, rest, all_derived=True))
        self._table.rebuilt_to_ms = None
        self.log.info(
            "{count} queues are whole again after {seconds} s",
            count=self._whole,
            seconds=round(self.progress.elapsed_ms / 1000, 1),
        )
        self.when_done()

    def _failed(self, failure: Failure) -> None:
        super()._failed(failure)
        self._end_with(
            f"deriving it failed ({failure.getErrorMessage()}): the next start of the broker tries again"
        )

    def _give_up(self, scan: SlicedScan) -> None:
        self._end_with(
            f"the commit log is damaged at {scan.offset} ({scan.damage or 'nothing was written there'}), "
            f"before its end {self._commit_log.max_offset}: stop the broker and run `txrocketmq store repair`"
        )

    def _end_with(self, fault: str) -> None:
        self.fault = fault
        self.log.critical("queues cannot be derived: {fault}", fault=fault)
        self.when_damaged(fault)
