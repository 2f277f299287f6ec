"""With which message does each queue begin once the log has lost its oldest files?

Stands for the official ``ConsumeQueue.correctMinOffset`` and ``deleteExpiredFile``, called for all queues. Most units lie in files:
the pool searches them there, for many queues in one job; what is in memory is searched by the queue itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from struct import Struct

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.storefiles import CQ_FILLER_SIZE, CQ_UNIT_BYTES
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.extension import ExtendedQueue
from txrocketmq.store.mapped import file_name
from txrocketmq.store.queuetable import AnyQueue, QueueTable

log = Logger()

BATCH = 256
"""Queues of one job."""


#: Units of both kinds begin with physical offset and size.
_HEAD = Struct(">qi")


@attrs.frozen
class UnitFiles:
    """Where the written units of a queue lie, as the pool may know it.

    :ivar first: the queue's smallest logical offset.
    :ivar end: units from here on are not written yet.
    """

    directory: str
    file_bytes: int
    first: int
    end: int
    unit_bytes: int = CQ_UNIT_BYTES

    def unit(self, disk: IDisk, index: int) -> tuple[int, int] | None:
        """Physical offset and size of a unit, None where there is none."""
        position = index * self.unit_bytes
        within = position % self.file_bytes
        try:
            data = disk.read_at(
                f"{self.directory}/{file_name(position - within)}", within, _HEAD.size
            )
        except FileNotFoundError:
            return None
        return _HEAD.unpack(data) if len(data) == _HEAD.size else None


def first_living(disk: IDisk, files: UnitFiles, log_start: int) -> int:
    """Pool: the first unit in the files whose message the log still holds; their end when there is none. A filler, or a unit that
    was never written, goes with the one after it."""

    def lives(index: int) -> bool:
        while index < files.end:
            unit = files.unit(disk, index)
            if unit is not None and unit[1] > 0 and unit[1] != CQ_FILLER_SIZE:
                return unit[0] >= log_start
            index += 1
        return True

    low, high = files.first, files.end
    if low < high and lives(low):
        return _next_solid(disk, files, low)
    while low < high:
        middle = (low + high) // 2
        if lives(middle):
            high = middle
        else:
            low = middle + 1
    return _next_solid(disk, files, low)


def _next_solid(disk: IDisk, files: UnitFiles, index: int) -> int:
    while index < files.end:
        unit = files.unit(disk, index)
        if unit is None or unit[1] != CQ_FILLER_SIZE:
            break
        index += 1
    return index


def _search(disk: IDisk, jobs: list[UnitFiles], log_start: int) -> list[int]:
    return [first_living(disk, files, log_start) for files in jobs]


async def correct_queues(
    table: QueueTable,
    disk: IDisk,
    pool: IBlockingPool,
    log_start: int,
    pause: Callable[[bool], Deferred[None]],
) -> None:
    """Let all queues begin with messages that the log still holds, and delete their files from before.

    :param pause: called between jobs, with whether files were deleted; what it gives is waited for.
    """
    keys = iter(list(table.queues))
    while batch := list(islice(keys, BATCH)):
        queues = [queue for key in batch if (queue := table.queues.get(key)) is not None]
        deleted = await _correct_batch(table, disk, pool, log_start, queues)
        await pause(deleted)


async def _correct_batch(
    table: QueueTable, disk: IDisk, pool: IBlockingPool, log_start: int, queues: list[AnyQueue]
) -> bool:
    jobs = [
        UnitFiles(
            queue.units.directory,
            queue.units.file_bytes,
            queue.min_index if isinstance(queue, ConsumeQueue) else queue.units.first_index,
            queue.units.written_index,
            queue.unit_bytes,
        )
        for queue in queues
    ]
    found: list[int] = await pool.submit(_search, disk, jobs, log_start)
    paths: list[str] = []
    for queue, job, index in zip(queues, jobs, found, strict=True):
        if isinstance(queue, ConsumeQueue):
            paths += _move_start(table, queue, job, index, log_start)
        elif table.queues.get((queue.topic, queue.queue_id)) is queue:
            # Its units count messages: it searches itself, in pages that the pool has just read.
            queue.correct_min(table.cache, log_start)
            old = queue.forget_old()
            if old:
                table.cache.forget(queue.units.directory)
            paths += old
    if paths:
        try:
            await pool.submit(_remove_all, disk, paths)
        except (OSError, StoreError) as error:
            log.error("old queue files were not deleted: {error}", error=error)
    return bool(paths)


def _move_start(
    table: QueueTable, queue: ConsumeQueue, job: UnitFiles, index: int, log_start: int
) -> list[str]:
    """Take over what was found, unless the queue was deleted or begun anew meanwhile; files that may go."""
    units = queue.units
    if (
        table.queues.get((queue.topic, queue.queue_id)) is not queue
        or queue.min_index < job.first
        or units.end_index < index
    ):
        return []
    queue.min_index = max(queue.min_index, index)
    if index >= job.end:
        # The rest was in memory when the pool looked.
        queue.correct_min(table.cache, log_start)
    old = units.forget_before(queue.min_index)
    if old:
        table.cache.forget(units.directory)
        if isinstance(queue, ExtendedQueue):
            old += queue.forget_extension(table.cache)
    return old


def _remove_all(disk: IDisk, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)
