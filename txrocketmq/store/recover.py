"""What is in the store after the last stop, however it came about? The start-up story.

Stands for ``DefaultMessageStore.recover`` and ``CommitLog.recoverNormally`` / ``recoverAbnormally``.

The commit log is the truth, everything else is derived. After an orderly stop the newest record that a queue points at is
looked at, and what follows it is derived. After a crash (the abort file is there) the log is read from the newest file
whose first message is not younger than the checkpoint's time; queues are cut to that place and derived again. In both
cases the log ends before the first bytes that are not a valid record, and is cut there; queues and index files that point
beyond are cut too.

A bad end alone is cut. Valid records behind a bad one are damage in the middle, and the store does not open, with two
exceptions: records older than the last good one are leftovers of an earlier cut (the official broker leaves them there); and
after a crash the bytes may be writes that never reached the device (see `txrocketmq.store.damage`), unless the record behind
them is older than what the checkpoint says was there.

Crash story: recovery may itself be interrupted at any point; the abort file is there before it begins and stays until an
orderly stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import attrs
from twisted.logger import Logger

from txrocketmq.codec.record import RecordHead
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import StoreError
from txrocketmq.model import properties as props
from txrocketmq.model.properties import parse_properties
from txrocketmq.store.checkpoint import RECOVERY_REWIND_MS, StoreCheckpoint
from txrocketmq.store.commitlog import CommitLog, LogScan
from txrocketmq.store.damage import find_record, looks_lost
from txrocketmq.store.index import IndexService
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.reput import NOT_IN_QUEUE, Reput

INDEX_CATCH_UP_BYTES = 1 << 30
"""How much of the log is read to make an index that is missing altogether."""

WRITE_EVERY_RECORDS = 200_000
"""How often queue units are written during recovery, which bounds the memory they take."""

PROGRESS_EVERY_MS = 2000

CHECKED_FILES = 3
"""Files before the one where reading begins that are looked at for damage, as officially."""

CHECKED_BYTES = 64 * 1024 * 1024
"""But no more than this: half a second."""


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
    """

    clean: bool
    start_offset: int
    end_offset: int
    records: int
    cut_bytes: int
    damage: str | None
    queues_cut: int

    @property
    def has_cut(self) -> bool:
        """Whether log or queues ended beyond the last valid record."""
        return self.damage is not None or self.queues_cut > 0


class Recoverer:
    """Brings log, queues and index into agreement; everything blocks, nothing else runs meanwhile."""

    log = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService,
        checkpoint: StoreCheckpoint,
        reput: Reput,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._reput = reput
        self._now_ms = now_ms
        self._last_timestamp_ms = 0

    def run(self, clean: bool) -> Recovery:
        """Recover; the log is cut, but not yet opened for appending.

        :param clean: the abort file was absent.
        """
        commit_log = self._commit_log
        if not commit_log.queue.files:
            if self._queues.queues:
                self.log.warn("the commit log is gone: its consume queues are deleted")
                self._queues.destroy()
            self._index.cut_beyond(0)
            return Recovery(clean, 0, 0, 0, 0, None, 0)
        start = self._clean_start() if clean else self._crash_start()
        start = self._check_before(start)
        if not clean:
            cut = self._queues.cut_beyond(start)
            self.log.info(
                "last stop was not orderly: reading the log from {start}, {cut} queues are derived again from there",
                start=start,
                cut=cut,
            )
        scan, records = self._read(start)
        self._check_beyond(clean, scan)
        return self._settle(clean, start, scan, records)

    # ------------------------------------------------------------------ where to begin

    def _crash_start(self) -> int:
        """The first byte of the newest file whose first message is safely older than the checkpoint."""
        config, checkpoint = self._config, self._checkpoint
        limit = checkpoint.min_timestamp_ms
        if config.message_index_enable and config.message_index_safe:
            limit = min(limit, checkpoint.index_msg_timestamp_ms)
        files = self._commit_log.queue.files
        start = files[0].base_offset
        for file in reversed(files):
            first = self._first_timestamp(file.base_offset)
            if 0 < first <= limit:
                start = file.base_offset
                break
        return min(start, self._index_start(start))

    def _index_start(self, otherwise: int) -> int:
        """The file from which the index can be made whole; not farther back than `INDEX_CATCH_UP_BYTES`."""
        if not self._config.message_index_enable:
            return otherwise
        oldest = self._commit_log.max_offset - INDEX_CATCH_UP_BYTES
        for file in self._commit_log.queue.files:
            if file.end_offset > self._index.end_offset and file.base_offset >= oldest:
                return file.base_offset
        return otherwise

    def _first_timestamp(self, base_offset: int) -> int:
        """Store time of a file's first message, 0 when there is no valid one."""
        scan = self._scan(base_offset)
        for offset, head in scan:
            return head.store_timestamp if offset == base_offset else 0
        return 0

    def _clean_start(self) -> int:
        """The newest record that a queue points at, or an earlier place where that one is not as it should be."""
        commit_log = self._commit_log
        newest = self._queues.max_physical_offset()
        start = self._newest_dispatched(newest)
        if start is None:
            # Records are missing, or no queue has any: begin with the file where that happened.
            file = commit_log.queue.find(max(newest - 1, commit_log.min_offset))
            files = commit_log.queue.files
            start = file.base_offset if file is not None else files[-1].base_offset
            if newest < commit_log.min_offset:
                start = commit_log.min_offset
        elif self._is_indexed(start):
            return start
        return min(start, self._index_start(start))

    def _is_indexed(self, offset: int) -> bool:
        """Whether the index holds the record at an offset, or has no reason to."""
        if offset <= self._index.end_offset:
            return True
        for _, head in self._scan(offset):
            found = parse_properties(head.properties)
            return not (found.get(props.UNIQ_KEY) or found.get(props.KEYS))
        return False

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

    def _check_before(self, start: int) -> int:
        """Look at the newest records before those that are read anyway: nobody else would notice damage there.

        Where reading has to begin: earlier than ``start`` when the queue of one of these records lacks it.

        :raises StoreError: one of them is bad.
        """
        queue = self._commit_log.queue
        files = [file for file in queue.files if file.base_offset < start][-CHECKED_FILES:]
        if not files or start > queue.max_offset:
            return start
        begin = files[0].base_offset
        if start - begin > CHECKED_BYTES:
            found = find_record(queue, start - CHECKED_BYTES)
            begin = start if found is None else found[0]
        scan = self._scan(begin)
        earliest = start
        for offset, head in scan:
            if offset >= start:
                return earliest
            if self._lacks(head):
                end = self._queues.queues[head.topic, head.queue_id].max_physical_offset
                # A record's end, and so the start of another one.
                if end < earliest:
                    self._say_what_lacks(head)
                    earliest = max(end, queue.min_offset)
        if scan.offset < start:
            found = find_record(queue, scan.offset)
            self._refuse(scan, start if found is None else found[0])
        return earliest

    def _lacks(self, head: RecordHead) -> bool:
        """Whether a queue ends before a message that the log holds. One that is not there may have been deleted."""
        queue = self._queues.find(head.topic, head.queue_id)
        if queue is None or queue.is_batch or head.sys_flag & NOT_IN_QUEUE:
            return False
        return (
            head.queue_offset >= queue.max_index
            and head.physical_offset >= queue.max_physical_offset
        )

    def _say_what_lacks(self, head: RecordHead) -> None:
        self.log.warn(
            "queue {topic}-{queue_id} ends before its message {index}, which is in the log at {offset}: "
            "what follows is derived again",
            topic=head.topic,
            queue_id=head.queue_id,
            index=head.queue_offset,
            offset=head.physical_offset,
        )

    def _check_beyond(self, clean: bool, scan: LogScan) -> None:
        """Tell a bad end from a bad middle.

        :raises StoreError: good records lie behind the bad one.
        """
        queue = self._commit_log.queue
        found = find_record(queue, scan.offset)
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
            and looks_lost(queue, scan.offset, offset)
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

    def _scan(self, offset: int) -> LogScan:
        return self._commit_log.scan(offset, check_crc=self._config.check_crc_on_recover)

    def _read(self, start: int) -> tuple[LogScan, int]:
        """Derive queues and index from the log's records until there are no more valid ones."""
        scan = self._scan(start)
        dispatch = self._reput.dispatch_head
        records = 0
        report_at = self._now_ms() + PROGRESS_EVERY_MS
        for offset, head in scan:
            dispatch(offset, head)
            self._last_timestamp_ms = head.store_timestamp
            records += 1
            if records % 1000 == 0 and self._now_ms() >= report_at:
                report_at = self._now_ms() + PROGRESS_EVERY_MS
                self.log.info(
                    "recovery is at {offset}, {records} messages read",
                    offset=offset,
                    records=records,
                )
            if records % WRITE_EVERY_RECORDS == 0:
                self._write_queues()
        return scan, records

    def _write_queues(self) -> None:
        try:
            self._queues.flush_now()
        except OSError as error:
            # They stay in memory, and the timed flush tries again; sends are refused meanwhile.
            self.log.error("consume queues cannot be written: {error}", error=error)
            self._queues.failure = error

    # ------------------------------------------------------------------ end

    def _settle(self, clean: bool, start: int, scan: LogScan, records: int) -> Recovery:
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
        queues_cut = queues.cut_beyond(end)
        if queues_cut:
            self.log.warn(
                "{count} consume queues pointed beyond the log's end {end} and were cut",
                count=queues_cut,
                end=end,
            )
        if self._index.cut_beyond(end):
            # It was full and on the device before the log it speaks of.
            self._read(self._index_start(end))
        queues.correct_min(commit_log.min_offset)
        for queue in queues.queues.values():
            queue.next_index = queue.max_index
        self._write_queues()
        self._reput.offset = end
        self.log.info(
            "recovered: log {begin} to {end}, {records} messages read from {start}",
            begin=commit_log.min_offset,
            end=end,
            records=records,
            start=start,
        )
        return Recovery(clean, start, end, records, doomed, scan.damage, queues_cut)
