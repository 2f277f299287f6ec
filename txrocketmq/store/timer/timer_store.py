"""What waits for its time, and how does it survive? Wheel, timer log and checkpoint as one, over a disk and a pool.

Stands for the files of ``TimerMessageStore``. The reactor owns wheel and log; a pool writes what changed, at intervals: the log, then the
wheel, then the checkpoint, each on the device before the next. So the checkpoint never says more than the others.

Crash story: what was taken since the last flush is taken again from the timer topic; what was delivered since is delivered again.
See `txrocketmq.store.timer.checkpoint` for deliveries that a power failure took from the commit log.

The checkpoint's data version says whose is newer: an official master that comes back takes over what its slave says only when the slave's
version is not older. Such a master counts up every `timerFlushIntervalMs`, if only time went on. A slave has its master's version; one that
acts counts on from there, the time since then too, so it is ahead of whatever the lost master counted.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.storefiles import TIMER_END_BYTES, TIMER_UNIT, TIMER_UNIT_BYTES
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IBlockingPool, IDisk, IMessageStore
from txrocketmq.model.names import TIMER_TOPIC
from txrocketmq.model.topic import DataVersion
from txrocketmq.store.filenames import is_file_name
from txrocketmq.store.timer.chain import Chain, read_chain
from txrocketmq.store.timer.checkpoint import (
    FILE_NAME,
    TimerCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from txrocketmq.store.timer.log import NO_UNIT, Part, TimerLog, file_path, make_unit
from txrocketmq.store.timer.recovery import TimerRecovery
from txrocketmq.store.timer.wheel import (
    PAGE_BYTES,
    SLOTS,
    Slot,
    TimerWheel,
)

MAX_TAIL_BYTES = 4 * 1024 * 1024
"""Bytes of the timer log that may wait to be written; beyond, nothing more is taken."""
BLANK_SLOTS = 60
MAX_NOTES = 64


class TimerStore:
    """Wheel, log and checkpoint.

    :param pool: for writing.
    :param read_pool: for reading.
    :param slots: slots of half a round of the wheel.
    :param store: has the messages; tells how far its log is, and is flushed.
    :ivar read_ms: every slot before this time is done with; moved by whoever delivers.
    :ivar start_ms: what it was at the start.
    :ivar queue_offset: every message of the timer topic before this one was taken; moved by whoever takes them.
    :ivar master_offset: how far the master took them; None on a master.
    :ivar loaded_master_offset: what the checkpoint said of it at the start.
    :ivar elsewhere: up to which slot, and up to which message of the timer topic, a slave delivered in this master's place.
    :ivar known: physical offsets of messages that are in the log though ``queue_offset`` is not past them.
    :ivar redone_below: messages of the timer topic before this one are taken again for the sake of a log that lacks them; those
        whose time was over by ``read_ms`` of the start were delivered.
    :ivar waiting: messages in the wheel.
    """

    _logger = Logger()

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: IDisk,
        pool: IBlockingPool,
        read_pool: IBlockingPool,
        store: IMessageStore,
        now_ms: Callable[[], int],
        slots: int = SLOTS,
    ) -> None:
        self._config = config
        self._disk = disk
        self._pool = pool
        self._read_pool = read_pool
        self._commit_log = store
        self._now_ms = now_ms
        root = config.store_path_root_dir
        self._directory = f"{root}/timerlog"
        self._wheel_path = f"{root}/timerwheel"
        self._checkpoint_path = f"{root}/config/{FILE_NAME}"
        self.precision_ms = max(1, config.timer_precision_ms)
        self._slots = slots
        self.wheel = TimerWheel(self.precision_ms, slots)
        self._log = TimerLog(config.mapped_file_size_timer_log)
        self.read_ms = 0
        self.start_ms = 0
        self.queue_offset = self.redone_below = 0
        self.master_offset: int | None = None
        self.elsewhere = (0, 0)
        self.known: set[int] = set()
        self.waiting = 0
        self._newest_ms = 0
        self.loaded_master_offset = 0
        self._saved = TimerCheckpoint()
        #: The newest data version, and which times and messages it stands for.
        self._version = DataVersion()
        self._versioned = (0, 0)
        self._counts_on = False
        self._notes: deque[tuple[int, int, int]] = deque(maxlen=MAX_NOTES)
        self._safe = (0, 0)
        self._flushing: Deferred[bool] | None = None
        self._has_delivered = False
        #: Files whose directory entries this process knows to be on the device.
        self._settled: set[str] = set()

    @property
    def roll_slots(self) -> int:
        """Slots that a message may lie ahead in the wheel; farther ones are put again (official rule)."""
        wanted = self._config.timer_roll_window_slot
        most = self._slots - BLANK_SLOTS
        return most if wanted > most or wanted < 2 else wanted

    # ------------------------------------------------------------------ start

    def load(self) -> None:
        """Read and recover; the commit log is recovered (start only, blocks).

        :raises StoreError: a file is not what it should be.
        """
        log_end = self._commit_log.max_physical_offset()
        found = load_checkpoint(self._disk, self._checkpoint_path) or TimerCheckpoint()
        holding = found.holding(log_end)
        is_whole, found = holding is found, holding
        recovered = TimerRecovery(
            self._disk,
            self._directory,
            self._wheel_path,
            self._config.mapped_file_size_timer_log,
            self.wheel,
            self.wheel.floor(found.read_ms),
            found.log_position,
            log_end,
        ).run()
        self.wheel, self._log, self.known = recovered.wheel, recovered.log, recovered.known
        self.queue_offset = self.redone_below = found.queue_offset
        if is_whole and self._log.end < found.log_position:
            self.queue_offset = min(self.queue_offset, self._next_to(recovered.last_offset))
        self.read_ms = self.start_ms = self.wheel.floor(found.read_ms) or self._first_time()
        self.loaded_master_offset = found.master_offset
        self.waiting = self.wheel.waiting(self.read_ms)
        self._safe = (self.read_ms, self.queue_offset)
        self._saved = found
        self._version = _version_of(found)
        self._versioned = (found.read_ms, found.queue_offset)

    def _next_to(self, physical_offset: int) -> int:
        """The place in the timer topic behind the message of the log's newest unit (official ``reviseQueueOffset``)."""
        message = None
        if physical_offset >= 0:
            message = self._commit_log.look_message(physical_offset)
        return message.queue_offset + 1 if message and message.topic == TIMER_TOPIC else 0

    def _first_time(self) -> int:
        """Where to begin without a checkpoint: nothing that waits may be left behind."""
        times = [time_ms for time_ms, _ in self.wheel.used()]
        return min([*times, self.wheel.floor(self._now_ms())])

    # ------------------------------------------------------------------ what waits

    def has_room(self, time_ms: int) -> bool:
        """Whether a message for this time may be taken now: the log is not too far ahead of its files, and the place is not one
        that an older time still needs."""
        return (
            self._log.tail_bytes < MAX_TAIL_BYTES
            and time_ms - self.read_ms < (self.wheel.slots - 1) * self.precision_ms
        )

    def add(
        self,
        time_ms: int,
        write_ms: int,
        physical_offset: int,
        size: int,
        topic_hash: int,
        *,
        is_rolled: bool = False,
        is_delete: bool = False,
    ) -> None:
        """Let a message wait for the slot of a time.

        :param write_ms: the slot of now.
        :param is_rolled: its own time is farther off.
        :param is_delete: it takes another one back.
        """
        slot = self.wheel.get(time_ms)
        unit = make_unit(
            NO_UNIT if slot is None else slot.last,
            write_ms,
            time_ms,
            physical_offset,
            size,
            topic_hash,
            is_rolled=is_rolled,
            is_delete=is_delete,
        )
        change = -1 if is_delete else 1
        self.wheel.add(time_ms, self._log.append(unit), change)
        self.waiting += change

    def write_ms(self, now_ms: int) -> int:
        """The slot of now; when the clock was set back, the newest that there was: older ones may be delivered already."""
        self._newest_ms = max(self._newest_ms, self.wheel.floor(now_ms))
        return self._newest_ms

    def due(self, end_ms: int) -> int | None:
        """The first time before ``end_ms`` for which something waits; without one, ``read_ms`` is at ``end_ms``."""
        time_ms = self.wheel.next_used(self.read_ms, end_ms)
        self.read_ms = max(self.read_ms, end_ms if time_ms is None else time_ms)
        return time_ms

    def done(self, time_ms: int) -> None:
        """The slot of a time was delivered."""
        slot = self.wheel.get(time_ms)
        if slot is not None:
            self.waiting -= slot.messages
        self._has_delivered = True
        self.read_ms = max(self.read_ms, time_ms + self.precision_ms)

    def follow(self, found: TimerCheckpoint) -> None:
        """A slave: stand where the master does."""
        self.master_offset = found.master_offset
        self._version = _version_of(found)
        read_ms = self.wheel.floor(found.read_ms)
        if read_ms != self.read_ms:
            self.read_ms = read_ms
            self._has_delivered = True
            self.waiting = self.wheel.waiting(read_ms)

    def lead(self) -> None:
        """From now on this broker takes and delivers by itself."""
        if self.master_offset is not None:
            self._versioned = (self.read_ms, self.queue_offset)
            self._counts_on = True
        self.master_offset = None

    def fall_back(self) -> None:
        """It does not any more; until a master is heard of, nothing more is taken than was."""
        if self.master_offset is None:
            self._count()
            self.master_offset = self.queue_offset

    def take_back(self, read_ms: int, queue_offset: int) -> None:
        """A master that comes back: a slave delivered what it had taken of the timer topic (``queue_offset``) up to a time.

        The slots are gone through all the same: this log may have messages that never reached the slave.
        """
        times, offset = self.elsewhere
        self.elsewhere = (max(times, self.wheel.floor(read_ms)), max(offset, queue_offset))

    def is_done_elsewhere(self, queue_offset: int, time_ms: int) -> bool:
        """Whether a slave delivered a message of the timer topic that waits, or waited, for the slot of a time."""
        end_ms, end_offset = self.elsewhere
        return time_ms < end_ms and queue_offset < end_offset

    def read_slot(self, time_ms: int) -> Deferred[Chain]:
        """The units of a slot."""
        slot = self.wheel.get(time_ms) or Slot(NO_UNIT, NO_UNIT, 0)
        return cast(
            "Deferred[Chain]",
            self._read_pool.submit(
                read_chain,
                self._disk,
                self._directory,
                self._log.file_size,
                self._log.parts(),
                slot.last,
                time_ms,
                self.precision_ms,
            ),
        )

    # ------------------------------------------------------------------ flush

    def checkpoint(self) -> TimerCheckpoint:
        """The state as it is now, with the log as far as it was flushed."""
        master = self.queue_offset if self.master_offset is None else self.master_offset
        version = self._next_version()
        return attrs.evolve(
            self._saved,
            read_ms=self.read_ms,
            queue_offset=min(self.queue_offset, master),
            master_offset=master,
            state_version=version.state_version,
            version=version.counter,
            version_ms=version.timestamp,
        )

    def _next_version(self) -> DataVersion:
        """The version of the present state. A slave has its master's."""
        state = (self.read_ms, self.queue_offset)
        version = self._version.copy()
        if self.master_offset is not None or state == self._versioned:
            return version
        now_ms = self._now_ms()
        if self._counts_on and version.timestamp:
            interval_ms = max(1, self._config.timer_flush_interval_ms)
            version.counter += max(0, now_ms - version.timestamp) // interval_ms + 1
        version.next(now_ms)
        return version

    def _count(self) -> None:
        """The present state has its version from now on."""
        version, state = self._next_version(), (self.read_ms, self.queue_offset)
        if state != self._versioned:
            self._counts_on = False
        self._version, self._versioned = version, state

    @property
    def is_flushed(self) -> bool:
        """Whether the newest flush, which is over, wrote all there is."""
        saved = self._saved
        return (
            not self._log.tail_bytes
            and not self.wheel.dirty
            and ((saved.read_ms, saved.queue_offset) == (self.read_ms, self.queue_offset))
        )

    @property
    def is_clean(self) -> bool:
        """Whether files and memory say the same, but for time that passed without anything that waits."""
        saved = self._saved
        return (
            not self._log.tail_bytes
            and not self.wheel.dirty
            and saved.queue_offset == self.queue_offset
            and not self._has_delivered
            and not self._notes
        )

    def flush(self) -> Deferred[bool]:
        """Bring everything to the device, one job at a time; whether it got there. A failure is logged, not raised."""
        if self._flushing is not None:
            shared: Deferred[bool] = Deferred()

            def pass_on(result: bool) -> bool:
                shared.callback(result)
                return result

            self._flushing.addCallback(pass_on)
            return shared
        self._has_delivered = False
        self._count()
        end = self._log.end
        log_end = self._commit_log.max_physical_offset()
        self._note(log_end)
        new = attrs.evolve(
            self.checkpoint(),
            log_position=end,
            log_end=log_end,
            safe_read_ms=self._safe[0],
            safe_queue_offset=self._safe[1],
        )
        pages = self.wheel.take_dirty()
        job = self._pool.submit(
            _write,
            self._disk,
            self._directory,
            self._log.file_size,
            self._log.parts(),
            self._wheel_path,
            self.wheel.file_bytes,
            pages,
            self._checkpoint_path,
            new.encode(),
            frozenset(self._settled),
        )
        done: Deferred[bool] = Deferred()
        self._flushing = done
        job.addCallbacks(self._flushed, self._not_flushed, (end, new), errbackArgs=(pages,))
        job.addBoth(self._flush_ended, done)
        return done

    def _note(self, log_end: int) -> None:
        """Which state holds whatever happens to the commit log? The newest whose deliveries are on the device."""
        state = (log_end, self.read_ms, self.queue_offset)
        if not self._notes or self._notes[-1] != state:
            self._notes.append(state)
        flushed = self._commit_log.flushed_offset()
        while self._notes and self._notes[0][0] <= flushed:
            _, read_ms, offset = self._notes.popleft()
            self._safe = (read_ms, offset)

    def _flushed(self, settled: set[str], end: int, new: TimerCheckpoint) -> bool:
        self._log.written_to(end)
        self._settled |= settled
        self._saved = new
        self.wheel.forget_before(min(self._safe[0], self.read_ms))
        return True

    def _not_flushed(self, failure: Failure, pages: list[tuple[int, bytes]]) -> bool:
        # All of it is written again by the next one, so that its success says something.
        self._has_delivered = True
        self.wheel.dirty.update(index for index, _ in pages)
        self._logger.error("the timer's files are not flushed: {why}", why=failure.value)
        return False

    def _flush_ended(self, result: bool | Failure, done: Deferred[bool]) -> None:
        self._flushing = None
        if isinstance(result, Failure):
            self._logger.failure("after a flush of the timer", result)
            result = False
        done.callback(result)

    def clean(self) -> Deferred[Any]:
        """Delete files of the timer log whose messages the commit log does not have any more."""
        return self._pool.submit(
            _clean,
            self._disk,
            self._directory,
            self._log.file_size,
            self._log.end,
            self._commit_log.min_physical_offset(),
        )


def _version_of(found: TimerCheckpoint) -> DataVersion:
    return DataVersion(
        counter=found.version, state_version=found.state_version, timestamp=found.version_ms
    )


def _write(
    disk: IDisk,
    directory: str,
    file_size: int,
    parts: list[Part],
    wheel_path: str,
    wheel_bytes: int,
    pages: list[tuple[int, bytes]],
    checkpoint_path: str,
    checkpoint: bytes,
    settled: frozenset[str],
) -> set[str]:
    """Pool: the log, the wheel, the checkpoint; which files are there for good now."""
    written: list[str] = []
    for part in parts:
        path = file_path(directory, part.base)
        if not disk.exists(path):
            disk.makedirs(directory)
            disk.create(path, file_size)
        disk.write_at(path, part.position, part.data)
        if path not in written:
            written.append(path)
    for path in written:
        disk.sync_file(path)
    if not settled.issuperset(written):
        disk.sync_directory(directory)
    if pages:
        if not disk.exists(wheel_path):
            disk.create(wheel_path, wheel_bytes)
        for index, page in pages:
            disk.write_at(wheel_path, index * PAGE_BYTES, page)
        disk.sync_file(wheel_path)
        if wheel_path not in settled:
            disk.sync_directory(wheel_path.rpartition("/")[0])
        written.append(wheel_path)
    save_checkpoint(disk, checkpoint_path, checkpoint, is_settled=checkpoint_path in settled)
    return {*written, checkpoint_path}


def _clean(disk: IDisk, directory: str, file_size: int, end: int, min_offset: int) -> int:
    """Pool: delete old files, the oldest first; how many."""
    count = 0
    last_unit = (
        file_size - TIMER_END_BYTES
    ) // TIMER_UNIT_BYTES * TIMER_UNIT_BYTES - TIMER_UNIT_BYTES
    for name in filter(is_file_name, disk.listdir(directory)):
        if int(name) + file_size > end:
            break
        path = f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError):
            data = disk.read_at(path, last_unit, TIMER_UNIT_BYTES)
            if len(data) < TIMER_UNIT_BYTES or TIMER_UNIT.unpack(data)[5] >= min_offset:
                break
            disk.remove(path)
            disk.sync_directory(directory)
            count += 1
    return count
