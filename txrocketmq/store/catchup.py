"""What of a store is made whole while the broker serves already? The index, and queues that were lost.

Stands for nothing official: an official broker has no index of what it does not read again, and no queue that it does not derive before it
opens its port. Both walks read the log a piece at a time (`txrocketmq.store.scanning`) and leave the reactor as much time as they take, as soon
as somebody else wants any.

* `IndexCatchUp` goes on where the index ends, and follows the log until it has reached its end; only then are new messages indexed in the
  turn of their append. Keys of newer messages cannot be found before.
* `QueueRebuild` derives queues that are missing or behind. Until it is done their next offset is not known: they take no messages, answer
  SYSTEM_BUSY to whoever asks for it, and hold pulls. All other queues are served.

Crash story: the checkpoint says no more of the queues than the rebuild has reached, and a stop before its end leaves the abort file, so the
next start goes on there. Full index files are on the device before the checkpoint says so; after an orderly stop also the last one is trusted,
and the walk goes on behind its last message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.record import RecordHead
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.index import IndexService
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.reput import Reput
from txrocketmq.store.scanning import SERVING_PIECE_BYTES, START_PIECE_BYTES, Progress, SlicedScan

QueueKey = tuple[str, int]

MAX_WAITING_ENTRIES = 20_000
"""Index entries without a place yet at which the walk waits: the pool makes room for them."""

WAIT_S = 0.1
"""How long the walk waits then, and for the flush of what it has reached."""

MAX_PAUSE_S = 0.05

_TOLD_UNITS = 256


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

    @property
    def begin(self) -> int:
        """The first record that may have to be indexed."""
        return max(self._index.end_offset, self._commit_log.min_offset)

    @property
    def bytes_left(self) -> int:
        """How much of the log has to be walked over."""
        return max(self._reput.offset - self.begin, 0)

    async def run_first(self) -> None:
        """The whole walk before anybody is served, for indexes that are hardly behind."""
        await self._walk(START_PIECE_BYTES)

    async def _run(self) -> None:
        begin = self.begin
        self.log.info(
            "the index ends at {begin}, the log at {end}: what is between is indexed while the broker serves",
            begin=begin,
            end=self._reput.offset,
        )
        self.progress = Progress("the index is made whole", begin, self._reput.offset, self._now_ms)
        if await self._walk(SERVING_PIECE_BYTES):
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
            for offset, head in await scan.piece(piece_bytes):
                reput.index_head(offset, head)
            if scan.ended and scan.offset < reput.offset:
                scan = self._go_on_behind(scan)
            if scan.offset >= reput.offset and not self._stopping:
                index.caught_up()
                reput.index_is_current = True
                return True
            if self.progress is not None:
                self.progress.reached(scan.offset, reput.offset)
                await self._give_way(began)
                while index.waiting > MAX_WAITING_ENTRIES and not self._stopping:
                    await self.sleep(WAIT_S)
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
    """Derives queues from the log again.

    :param begin: where the log holds the first message that one of them may lack; a record's first byte.
    :param end: the log's end at the start. What comes later is not for these queues.
    :param queues: which ones; None for all, also those that nobody knows yet.
    :ivar timestamp_ms: store time of the newest message that was derived.
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
        end: int,
        queues: Iterable[QueueKey] | None,
    ) -> None:
        super().__init__(commit_log, disk, pool, clock)
        self._table = table
        self._reput = reput
        self._queues = None if queues is None else frozenset(queues)
        self._deleted: set[str] = set()
        self._touched: set[QueueKey] = set()
        self.begin = begin
        self.end = end
        self.timestamp_ms = 0
        self.fault: str | None = None
        self.when_done: Callable[[], object] = lambda: None
        self.when_damaged: Callable[[str], object] = lambda fault: None

    def covers(self, topic: str, queue_id: int) -> bool:
        """Whether the next offset of a queue is not known yet."""
        if self._queues is not None and (topic, queue_id) not in self._queues:
            return False
        return topic not in self._deleted

    def reason(self) -> str:
        """What is told to those who ask for such a queue."""
        if self.fault is not None:
            return f"[RECOVERY]this queue cannot be recovered: {self.fault}"
        state = "" if self.progress is None else f" ({self.progress.text()})"
        return f"[RECOVERY]the broker is in recovery and does not know this queue's next offset yet{state}, try again later"

    def forget(self, topics: frozenset[str]) -> None:
        """Topics are deleted: their queues begin anew."""
        self._deleted |= topics

    async def _run(self) -> None:
        number = "all" if self._queues is None else len(self._queues)
        self.log.warn(
            "{number} queues are derived from the log again, from {begin} to {end}, while the broker serves what it can",
            number=number,
            begin=self.begin,
            end=self.end,
        )
        self.progress = Progress("queues are derived", self.begin, self.end, self._now_ms)
        scan = self._scan(self.begin, self.end)
        while not self._stopping:
            began = self._clock.seconds()
            self._derive(await scan.piece(SERVING_PIECE_BYTES))
            if scan.offset >= self.end:
                self._finish()
                return
            if scan.ended:
                if scan.offset >= self._commit_log.min_offset:
                    self._give_up(scan)
                    return
                scan = self._scan(self._commit_log.min_offset, self.end)
            self.progress.reached(scan.offset)
            await self._give_way(began)

    def _derive(self, records: Sequence[tuple[int, RecordHead]]) -> None:
        covers = self.covers
        wanted = [item for item in records if covers(item[1].topic, item[1].queue_id)]
        self._reput.derive_queues(wanted)
        self._touched.update((head.topic, head.queue_id) for _, head in wanted)
        for _, head in wanted:
            self._touched.update(self._reput.light.keys(head.topic, head.properties))
        if records:
            self.timestamp_ms = self._table.rebuilt_to_ms = records[-1][1].store_timestamp

    def _finish(self) -> None:
        assert self.progress is not None
        table = self._table
        for key in self._touched:
            queue = table.find(*key)
            if queue is not None:
                queue.correct_min(table.cache, self._commit_log.min_offset)
                queue.next_index = queue.max_index
        table.rebuilt_to_ms = None
        self.log.info(
            "{count} queues were derived again in {seconds} s",
            count=len(self._touched),
            seconds=round(self.progress.elapsed_ms / 1000, 1),
        )
        self.when_done()
        for key in self._touched:
            self._tell(key)

    def _tell(self, key: QueueKey) -> None:
        """Wake whoever waits for this queue, whatever tags it wants."""
        queue = self._table.find(*key)
        if queue is None:
            return
        first = max(queue.min_index, queue.max_index - _TOLD_UNITS)
        units = queue.entries(self._table.cache, first, queue.max_index - first)
        for code in {unit[2] for _, unit, _ in units}:
            self._reput.tell(queue, queue.max_index, code, self.timestamp_ms)

    def _give_up(self, scan: SlicedScan) -> None:
        self.fault = (
            f"the commit log is damaged at {scan.offset} ({scan.damage or 'nothing was written there'}), "
            f"before its end {self.end}: stop the broker and run `txrocketmq store repair`"
        )
        self.log.critical("queues cannot be derived: {fault}", fault=self.fault)
        self.when_damaged(self.fault)
