"""What is in the store after the last stop, however it came about? The start-up story.

Stands for ``DefaultMessageStore.recover`` and ``CommitLog.recoverNormally`` / ``recoverAbnormally``.

The commit log is the truth, everything else is derived. After an orderly stop the newest record that a queue points at is
looked at, and what follows it is derived. After a crash (the abort file is there) the log is read from a message that is not
younger than the checkpoint's time; queues are cut to that place and derived again. The official broker begins with the newest
file whose first message is that old; here halving finds the place within the file, which changes the work and not the result.
In both cases the log ends before the first bytes that are not a valid record, and is cut there; queues and index files that
point beyond are cut too.

The broker opens its ports when this is done. What takes longer is left to `txrocketmq.store.catchup`: queues that are lost
altogether, or that end long before the log is known to be whole (`LostQueues`); and the index.

A bad end alone is cut. Valid records behind a bad one are damage in the middle, and the store does not open, with two
exceptions: records older than the last good one are leftovers of an earlier cut (the official broker leaves them there); and
after a crash the bytes may be writes that never reached the device (see `txrocketmq.store.damage`), unless the record behind
them is older than what the checkpoint says was there.

Crash story: recovery may itself be interrupted at any point; the abort file is there before it begins and stays until an
orderly stop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import NoReturn

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import RecordHead
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.checkpoint import RECOVERY_REWIND_MS, StoreCheckpoint
from txrocketmq.store.commitlog import CommitLog, LogScan
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.damage import find_record, looks_lost
from txrocketmq.store.index import IndexService
from txrocketmq.store.lacking import holds_block, lacking_queues
from txrocketmq.store.nextoffsets import NextOffsets
from txrocketmq.store.queuetable import AnyQueue, QueueTable
from txrocketmq.store.reput import Reput
from txrocketmq.store.scanning import START_PIECE_BYTES, Progress, SlicedScan

WRITE_EVERY_RECORDS = 200_000
"""How often queue units are written during recovery, which bounds the memory they take."""

CHECKED_FILES = 3
"""Files before the one where reading begins that are looked at for damage, as officially."""

KNOWN_QUEUES = 8
"""So many queues, the ones with the newest messages, are asked for a place where a record surely begins."""

QueueKey = tuple[str, int]


@attrs.frozen
class RecoveryLimits:
    """How much is done before the ports open.

    :ivar checked_bytes: of the log before the place where reading begins that are looked at for damage: a fifth of a second.
    :ivar halving_bytes: as exactly the place is found where reading begins.
    :ivar foreground_bytes: the most that is read only to derive queues; where it takes more, they are lost queues.
    :ivar index_bytes: the most that is read only to complete the index.
    """

    checked_bytes: int = 64 << 20
    halving_bytes: int = 4 << 20
    foreground_bytes: int = 1 << 30
    index_bytes: int = 4 << 20


@attrs.frozen
class LostQueues:
    """Queues that are derived while the broker serves.

    :ivar begin: the first record of the log that one of them may lack.
    :ivar queues: which ones; None for all.
    """

    begin: int
    queues: frozenset[QueueKey] | None

    def covers(self, key: QueueKey) -> bool:
        """Whether this is one of them."""
        return self.queues is None or key in self.queues


@attrs.frozen
class Recovery:
    """What recovery found and did.

    :ivar clean: the last stop was orderly.
    :ivar start_offset: where reading the log began.
    :ivar end_offset: where the log ends now.
    :ivar records: how many records were read.
    :ivar cut_bytes: bytes of the log's last files behind the end that were not zero padding of an orderly end; 0 when nothing
        was written there.
    :ivar damage: what was found at the end, None when nothing was written there.
    :ivar queues_cut: queues that pointed beyond the end.
    :ivar lost: queues that are left to be derived.
    :ivar known: what is known of their next offsets.
    """

    clean: bool
    start_offset: int
    end_offset: int
    records: int
    cut_bytes: int
    damage: str | None
    queues_cut: int
    lost: LostQueues | None = None
    known: NextOffsets | None = attrs.field(default=None, repr=False)

    @property
    def has_cut(self) -> bool:
        """Whether log or queues ended beyond the last valid record."""
        return self.damage is not None or self.queues_cut > 0


class Recoverer:
    """Brings log and queues into agreement. Nobody else touches them meanwhile; the reactor is kept for no longer than a piece
    of the log takes to look at.

    :param pool: reads the log.
    """

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService,
        checkpoint: StoreCheckpoint,
        reput: Reput,
        now_ms: Callable[[], int],
        limits: RecoveryLimits,
    ) -> None:
        self._config = config
        self._disk = disk
        self._pool = pool
        self._limits = limits
        self._cancelled = False
        #: After an orderly stop queues should be complete up to here.
        self._dispatched = 0
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._reput = reput
        self._now_ms = now_ms
        self._last_timestamp_ms = 0
        self._known: NextOffsets | None = None
        self._hidden: int | None = None  # The first record that replicas may lack: not derived.

    def cancel(self) -> None:
        """Give up at the next piece."""
        self._cancelled = True

    async def run(self, clean: bool) -> Recovery:
        """Recover; the log is cut, but not yet opened for appending.

        :param clean: the abort file was absent.
        :raises StoreError: the log is damaged, or `cancel` was called.
        """
        commit_log = self._commit_log
        if not commit_log.queue.files:
            if self._queues.queues:
                self.log.warn("the commit log is gone: its consume queues are deleted")
                self._queues.destroy()
            self._index.cut_beyond(0)
            return Recovery(clean, 0, 0, 0, 0, None, 0)
        start, lost = self._clean_start() if clean else await self._crash_start()
        start, lost = self._with_torn(start, lost)
        if lost is not None:
            self._known = self._make_known(lost, start)
        start, lost = await self._check_before(start, lost)
        if lost is not None and self._reput.confirm_offset is not None:
            # What is derived later would be shown whether replicas have it or not. The group goes on without this one meanwhile.
            start, lost, self._known = min(start, lost.begin), None, None
        if lost is not None and lost.queues is not None and self._reput.light.is_on:
            # Light queues share records with them, and cannot be derived in two parts.
            lost = LostQueues(lost.begin, None)
        if lost is not None and self._known is None:
            self._known = self._make_known(lost, start)
        if not clean or lost is not None or start < self._dispatched:
            self._hold_checkpoint(start if lost is None else lost.begin, lost)
        if not clean:
            begin = start if lost is None or lost.queues is not None else lost.begin
            cut = await self._cut_queues(begin)
            self.log.info(
                "last stop was not orderly: reading the log from {start}, {cut} queues are derived again from {begin}",
                start=start,
                cut=cut,
                begin=begin,
            )
        scan, records = await self._read(start, lost, clean)
        await self._check_beyond(clean, scan)
        return await self._settle(clean, start, scan, records, lost)

    def _with_torn(self, start: int, lost: LostQueues | None) -> tuple[int, LostQueues | None]:
        """Where reading begins, and what is lost, when queues end where one of their files is missing."""
        torn = self._queues.torn
        if not torn:
            return start, lost
        log_start = self._commit_log.min_offset
        # Record's ends, and so the starts of others.
        begin = min(max(queue.max_physical_offset, log_start) for queue in torn)
        if lost is not None:
            names = lost.queues
            if names is not None:
                names |= {(queue.topic, queue.queue_id) for queue in torn}
            return start, LostQueues(min(lost.begin, begin), names)
        if start <= begin:
            # What they lack is read anyway.
            return start, None
        return start, LostQueues(begin, frozenset((queue.topic, queue.queue_id) for queue in torn))

    def _make_known(self, lost: LostQueues, low: int) -> NextOffsets:
        """What the records from an offset on say of the next offsets of lost queues."""
        return NextOffsets(
            self._config,
            self._disk,
            self._pool,
            self._queues,
            self._index,
            self._checkpoint,
            lost.queues,
            low,
        )

    def _hold_checkpoint(self, begin: int, lost: LostQueues | None) -> None:
        """Let the checkpoint promise nothing that is cut now and derived again: this start may be cut short, and the next one find
        another place to begin."""
        first_ms = 0
        if begin > self._commit_log.min_offset:
            first_ms = self._first_timestamp(begin)
        if lost is not None:
            self._queues.rebuilt_to_ms = first_ms
        checkpoint = self._checkpoint
        checkpoint.logics_msg_timestamp_ms = min(checkpoint.logics_msg_timestamp_ms, first_ms)
        checkpoint.save_now()

    # ------------------------------------------------------------------ where to begin

    async def _crash_start(self) -> tuple[int, LostQueues | None]:
        """A message that is safely older than the checkpoint; the queues may have to be derived from an earlier one on."""
        checkpoint, queue = self._checkpoint, self._commit_log.queue
        derive = await self._newest_before(checkpoint.min_timestamp_ms)
        if self._queues.max_physical_offset() <= queue.min_offset:
            derive = queue.min_offset
        prove = await self._newest_before(
            max(checkpoint.physic_msg_timestamp_ms - RECOVERY_REWIND_MS, 0)
        )
        if prove - derive <= self._limits.foreground_bytes:
            return min(prove, derive), None
        return prove, LostQueues(derive, None)

    async def _newest_before(self, limit_ms: int) -> int:
        """The newest message that surely is not younger than this, or one before it; the first one of all where none is."""
        files = self._commit_log.queue.files
        for file in reversed(files):
            if 0 < self._first_timestamp(file.base_offset) <= limit_ms:
                return await self._halve(file.base_offset, file.end_offset, limit_ms)
        return files[0].base_offset

    async def _halve(self, low: int, high: int, limit_ms: int) -> int:
        """As `_newest_before`, within a file whose first message is old enough."""
        first = low
        while high - low > self._limits.halving_bytes:
            self.check_cancelled()
            middle = (low + high) // 2
            found = await self._find_record(middle)
            if found is None or found[0] >= high or found[1].store_timestamp > limit_ms:
                high = middle
            else:
                low = found[0]
        # What is found within a file may be a part of somebody's message: a queue knows better.
        return self._known_record(low, first)

    def _known_record(self, offset: int, otherwise: int) -> int:
        """The newest record at or before an offset that some queue points at; not before ``otherwise``."""
        table = self._queues
        best = otherwise
        for queue in nlargest(
            KNOWN_QUEUES, table.queues.values(), key=lambda queue: queue.max_physical_offset
        ):
            if not isinstance(queue, ConsumeQueue):
                continue
            index = queue.index_before(table.cache, offset + 1)
            unit = queue.unit(table.cache, index)
            if unit is not None and best < unit[0] <= offset and self._is_whole(queue, index, unit):
                best = unit[0]
        return best

    def _is_whole(self, queue: AnyQueue, index: int, unit: tuple[int, int, int]) -> bool:
        """Whether a unit's record is there, and says itself that it belongs to it."""
        for offset, head in self._scan(unit[0]):
            return (offset, head.total_size, head.topic, head.queue_id, head.queue_offset) == (
                unit[0],
                unit[1],
                queue.topic,
                queue.queue_id,
                index,
            )
        return False

    def _has_record(self, base_offset: int) -> bool:
        """Whether a file begins with a message."""
        return any(offset == base_offset for offset, _ in islice(self._scan(base_offset), 1))

    def _first_timestamp(self, base_offset: int) -> int:
        """Store time of a file's first message, 0 when there is no valid one."""
        scan = self._scan(base_offset)
        for offset, head in scan:
            return head.store_timestamp if offset == base_offset else 0
        return 0

    def _clean_start(self) -> tuple[int, LostQueues | None]:
        """The newest record that a queue points at, or an earlier place where that one is not as it should be."""
        commit_log = self._commit_log
        newest = self._queues.max_physical_offset()
        self._dispatched = commit_log.max_offset
        start = self._newest_dispatched(newest)
        if start is not None:
            self._dispatched = start
            return start, None
        files = commit_log.queue.files
        if newest < commit_log.min_offset:
            # No queue has any message.
            begin = commit_log.min_offset
            # The last one may have been made ahead, and never used.
            written = [
                file.base_offset
                for file in files[-CHECKED_FILES:]
                if self._has_record(file.base_offset)
            ]
            last = max(written, default=begin)
            if last - begin <= self._limits.foreground_bytes:
                return begin, None
            return last, LostQueues(begin, None)
        # Records are missing: begin with the file where that happened.
        file = commit_log.queue.find(max(newest - 1, commit_log.min_offset))
        return (file or files[-1]).base_offset, None

    def _newest_dispatched(self, newest: int) -> int | None:
        """The record that ends at ``newest``, None unless it is whole."""
        if newest <= self._commit_log.min_offset:
            return None
        for queue in self._queues.queues.values():
            if queue.max_physical_offset == newest:
                unit = queue.unit(self._queues.cache, queue.max_index - 1)
                if unit is None:
                    return None
                for offset, head in self._scan(unit[0]):
                    return unit[0] if offset + head.total_size == newest else None
                return None
        return None

    # ------------------------------------------------------------------ damage

    async def _check_before(
        self, start: int, lost: LostQueues | None
    ) -> tuple[int, LostQueues | None]:
        """Look at the newest records before those that are read anyway: nobody else would notice damage there.

        Where reading has to begin, and what is lost: more than before when the queue of one of these records lacks it.

        :raises StoreError: one of them is bad.
        """
        queue = self._commit_log.queue
        files = [file for file in queue.files if file.base_offset < start][-CHECKED_FILES:]
        if not files or start > queue.max_offset:
            return start, lost
        begin = files[0].base_offset
        if start - begin > self._limits.checked_bytes:
            begin = self._known_record(start - self._limits.checked_bytes, begin)
            if start - begin > 2 * self._limits.checked_bytes:
                found = await self._find_record(start - self._limits.checked_bytes)
                begin = start if found is None else found[0]
        scan = self._sliced_scan(begin, start)
        earliest = start
        lacking: set[QueueKey] = set()
        while not scan.is_done:
            self.check_cancelled()
            take = partial(holds_block, self._queues) if self._known is None else None
            records = await scan.piece(START_PIECE_BYTES, take)
            if self._known is not None:
                self._known.note(records)
                self._known.low = begin
            for _, head in records if lost is None else ():
                for short, place in lacking_queues(self._queues, self._reput.light, head):
                    if (short.topic, short.queue_id) not in lacking:
                        self._say_what_lacks(short, place, head.physical_offset)
                        lacking.add((short.topic, short.queue_id))
                    # A record's end, and so the start of another one.
                    earliest = min(earliest, max(short.max_physical_offset, queue.min_offset))
        if scan.offset < start:
            found = await self._find_record(scan.offset)
            self._refuse(scan, start if found is None else found[0])
        if start - earliest <= self._limits.foreground_bytes:
            return earliest, lost
        return start, LostQueues(earliest, frozenset(lacking))

    def _say_what_lacks(self, queue: AnyQueue, index: int, physical_offset: int) -> None:
        self.log.warn(
            "queue {topic}-{queue_id} ends before its message {index}, which is in the log at {offset}: "
            "what follows is derived again",
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=index,
            offset=physical_offset,
        )

    async def _check_beyond(self, clean: bool, scan: LogScan) -> None:
        """Tell a bad end from a bad middle.

        :raises StoreError: good records lie behind the bad one.
        """
        queue = self._commit_log.queue
        found = await self._find_record(scan.offset)
        if found is None:
            return
        offset, head = found
        # Clocks may be set back a little.
        if head.store_timestamp < self._last_timestamp_ms - RECOVERY_REWIND_MS:
            reason = "they are older than those before"
        elif (
            not clean
            and head.store_timestamp
            >= self._checkpoint.physic_msg_timestamp_ms - RECOVERY_REWIND_MS
            and await self._pool.submit(looks_lost, queue, scan.offset, offset)
        ):
            reason = "what was written between did not reach the device"
        else:
            self._refuse(scan, offset)
        self.log.warn(
            "records from {offset} on lie behind the log's end {end} and are dropped: {reason}",
            offset=offset,
            end=scan.offset,
            reason=reason,
        )

    def _refuse(self, scan: LogScan, offset: int) -> NoReturn:
        raise StoreError(
            f"the commit log is damaged in the middle: there is no valid record at offset {scan.offset} "
            f"({scan.damage or 'nothing was written there'}), but a valid one behind it at {offset}; "
            f"run `txrocketmq store repair` on {self._config.store_path_root_dir}"
        )

    # ------------------------------------------------------------------ reading

    def _find_record(self, offset: int) -> Deferred[tuple[int, RecordHead] | None]:
        checks = self._commit_log.crc_checks(self._config.check_crc_on_recover)
        return self._pool.submit(find_record, self._commit_log.queue, offset, checks)

    def _scan(self, offset: int) -> LogScan:
        return self._commit_log.scan(offset, check_crc=self._config.check_crc_on_recover)

    def _sliced_scan(self, offset: int, limit: int | None = None) -> SlicedScan:
        return SlicedScan(
            self._commit_log.queue,
            self._disk,
            self._pool,
            offset,
            check_crc=self._commit_log.crc_checks(self._config.check_crc_on_recover),
            limit=limit,
        )

    def check_cancelled(self) -> None:
        """Give up here if that is wanted."""
        if self._cancelled:
            raise StoreError("the start was given up while the store was recovering")

    async def _read(self, start: int, lost: LostQueues | None, clean: bool) -> tuple[LogScan, int]:
        """Derive queues from the log's records until there are no more valid ones."""
        scan = self._sliced_scan(start)
        dispatch = self._reput.dispatch_head
        shown = self._reput.confirm_offset if lost is None else None
        # The last file may be empty from anywhere on.
        progress = Progress("recovery", start, self._commit_log.max_offset, self._now_ms)
        is_plain = self._known is None and lost is None and shown is None
        written = 0
        while not scan.is_done:
            self.check_cancelled()
            take = self._reput.dispatch_block if is_plain else None
            found = await scan.piece(START_PIECE_BYTES, take)
            if self._known is not None:
                self._known.note(found)
            for offset, head in found:
                if shown is not None and offset + head.total_size > shown:
                    self._hidden = offset if self._hidden is None else self._hidden
                elif lost is None or not lost.covers((head.topic, head.queue_id)):
                    dispatch(offset, head)
            self._last_timestamp_ms = scan.last_ms
            progress.reached(scan.offset)
            if scan.records - written >= WRITE_EVERY_RECORDS:
                written = scan.records
                await self._queues.flush(sync=clean)
        return scan, scan.records

    # ------------------------------------------------------------------ queues

    async def _each_queue(self, work: Callable[[AnyQueue], object]) -> int:
        return await self._queues.in_turns(work, self._pool, self.check_cancelled)

    async def _cut_queues(self, offset: int) -> int:
        """Drop what points at or beyond a log offset; how many queues had any."""
        disk, cache = self._disk, self._queues.cache
        return await self._each_queue(lambda queue: queue.cut_beyond(disk, cache, offset))

    def _begin_queue(self, queue: AnyQueue) -> None:
        """Let a queue begin with a message that the log still holds, and go on behind its last one."""
        queue.correct_min(self._queues.cache, self._commit_log.min_offset)
        queue.next_index = queue.max_index

    # ------------------------------------------------------------------ end

    async def _settle(
        self, clean: bool, start: int, scan: LogScan, records: int, lost: LostQueues | None
    ) -> Recovery:
        """Cut the log where the valid records end, and the queues with it.

        What lies behind is no damage: `_check_beyond` saw to that.
        """
        commit_log, queues = self._commit_log, self._queues
        end = scan.offset
        doomed = commit_log.max_offset - end if scan.damage is not None else 0
        if scan.damage is not None:
            self.log.warn(
                "the commit log is cut at {end}, {doomed} bytes before the end of its last file: {damage}",
                end=end,
                doomed=doomed,
                damage=scan.damage,
            )
        commit_log.truncate_to(end)
        queues_cut = await self._cut_queues(end)
        if queues_cut:
            self.log.warn(
                "{count} consume queues pointed beyond the log's end {end} and were cut",
                count=queues_cut,
                end=end,
            )
        # It may have been full and on the device before the log it speaks of.
        self._index.cut_beyond(end)
        if lost is not None:
            queues.newest_timestamp_ms = self._last_timestamp_ms
        await self._each_queue(self._begin_queue)
        # Where they cannot be written they stay in memory, the timed flush tries again, and sends are refused meanwhile.
        await queues.flush(sync=clean)
        self._reput.offset = end
        if self._hidden is not None:
            self._reput.offset = self._reput.confirm_offset = self._hidden
            self.log.info("not shown before replicas agree: {at} on", at=self._hidden)
        elif self._reput.confirm_offset is not None:
            self._reput.confirm_offset = end
        self.log.info(
            "recovered: log {begin} to {end}, {records} messages read from {start}",
            begin=commit_log.min_offset,
            end=end,
            records=records,
            start=start,
        )
        if self._known is not None:
            self._known.settle(self._known.low)
        return Recovery(
            clean, start, end, records, doomed, scan.damage, queues_cut, lost, self._known
        )
