"""How is a log cut while the store serves? A replica that has what its master never had goes back to where both agree.

Stands for ``DefaultMessageStore.truncateFiles``. Only a replica's log is cut: nobody appends meanwhile. Reads are refused for the moment,
the queues and the index go back with the log, and what the index loses with its last files is indexed again. Queues are cut some at a time,
so that everything else goes on; none of them is written meanwhile.

What the disk refuses is tried again until it is done or the store stops: half a cut would leave nothing that could go on. A failed sync is not: the
log is read-only until a restart then, as after any other.

Crash story: the checkpoint goes back first, so that a start that finds the log half cut looks at all of it; later files go before the
bytes of the last one, the last file first. Queues and index may point beyond the end then: recovery cuts them. What was to be cut
and is still there is cut when the master is asked again.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from txrocketmq.errors import PoolFullError, StoreError
from txrocketmq.store.mapped import FULL_DISK

if TYPE_CHECKING:
    from txrocketmq.store.message_store import MessageStore
    from txrocketmq.store.queuetable import AnyQueue

RETRY_S = 5.0
"""How soon a part of a cut is tried again that the disk refused."""

_log = Logger()


async def truncate_log(store: MessageStore, clock: IReactorTime, offset: int) -> None:
    """Make a record's first byte, or the log's end, the end of the log; see `IReplicationControl.truncate_log`.

    :raises StoreError: the log does not reach back so far, is being recovered, or is being cut already; the store was stopped.
    """
    log = store.commit_log
    if not log.min_offset <= offset <= log.max_offset:
        raise StoreError(
            f"the log goes from {log.min_offset} to {log.max_offset}, it cannot be cut at {offset}"
        )
    if store.is_cutting:
        raise StoreError("the log is being cut already")
    if store.rebuild is not None:
        raise StoreError("queues are being derived from the log: it cannot be cut now")
    if offset == log.max_offset:
        return
    _log.warn(
        "the log is cut at {offset}, {doomed} bytes before its end: the master never had them",
        offset=offset,
        doomed=log.max_offset - offset,
    )
    store.is_cutting = True
    try:
        for part in (_hold, _cut_files, _cut_queues):
            await _insist(store, clock, part, offset)
    finally:
        store.is_cutting = False
    store.restart_index()


async def _insist(
    store: MessageStore,
    clock: IReactorTime,
    part: Callable[[MessageStore, int], Awaitable[None]],
    offset: int,
) -> None:
    """Do a part of the cut, and again as long as the disk refuses: each can be done twice."""
    told = False
    while True:
        try:
            await part(store, offset)
            return
        except (OSError, PoolFullError) as error:
            if not told:
                _log.error(
                    "the log cannot be cut at {offset}, tried again every {seconds:.0f} s: {error}",
                    offset=offset,
                    seconds=RETRY_S,
                    error=error,
                )
            told = True
        _check(store)
        store.next_try = deferLater(clock, RETRY_S)
        try:
            await store.next_try
        except CancelledError:
            _check(store)


def _check(store: MessageStore) -> None:
    if not store.putter.is_open:
        raise StoreError("the store was stopped while its log was cut")


async def _hold(store: MessageStore, offset: int) -> None:
    """Let nothing be written any more, and promise nothing of what goes."""
    pool = store.derived_pool
    store.reput.drop_waiting()
    await store.index_catch_up.stop()
    await store.flusher.hold()
    await store.queue_table.flush()
    await store.index.when_idle()
    first_ms = await pool.submit(store.commit_log.time_at, offset)
    store.hold_checkpoint(max(first_ms, 0))
    await store.checkpoint.save(pool)
    if not store.checkpoint.is_saved:
        raise OSError(errno.EIO, "the checkpoint was not written")


async def _cut_files(store: MessageStore, offset: int) -> None:
    """Cut the log."""
    files, pool = store.commit_log.queue, store.derived_pool
    await files.close()
    await pool.submit(files.truncate_to, offset)
    # What is kept counts as being on the device from now on, so opening the log must have nothing left to wait for.
    try:
        for file in files.files:
            if file is files.files[-1] or file.end_offset > files.flushed_offset:
                await pool.submit(store.disk.sync_file, file.path)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise
        await store.flusher.lost(error)
        return
    files.open_for_append(offset + 1)
    store.flusher.cut(store.commit_log.flushed_offset)


async def _cut_queues(store: MessageStore, offset: int) -> None:
    """Let nothing point beyond the log's end."""
    table, disk = store.queue_table, store.disk

    def cut_queue(queue: AnyQueue) -> None:
        queue.cut_beyond(disk, table.cache, offset)
        queue.next_index = queue.max_index

    def check() -> None:
        _check(store)

    await table.in_turns(cut_queue, store.derived_pool, check)
    check()
    store.index.cut_beyond(offset)
    store.reput.offset = min(store.reput.offset, offset)
    store.replica_log.cut(offset)
