"""How is a log cut while the store serves? A replica that has what its master never had goes back to where both agree.

Stands for ``DefaultMessageStore.truncateFiles``. Only a replica's log is cut: nobody appends meanwhile. Reads are refused for the moment,
the queues and the index go back with the log, and what the index loses with its last files is indexed again. Queues are cut some at a time,
so that everything else goes on; none of them is written meanwhile.

Crash story: the checkpoint goes back first, so that a start that finds the log half cut looks at all of it; later files go before the
bytes of the last one, the last file first. Queues and index may point beyond the end then: recovery cuts them. What was to be cut
and is still there is cut when the master is asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from txrocketmq.errors import StoreError

if TYPE_CHECKING:
    from txrocketmq.store.message_store import MessageStore
    from txrocketmq.store.queuetable import AnyQueue

_log = Logger()


async def truncate_log(store: MessageStore, offset: int) -> None:
    """Make a record's first byte, or the log's end, the end of the log; see `IReplicationControl.truncate_log`.

    :raises StoreError: the log does not reach back so far, is being recovered, or is being cut already.
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
        await _cut(store, offset)
    finally:
        store.is_cutting = False
    store.restart_index()


async def _cut(store: MessageStore, offset: int) -> None:
    log, files, table, disk, pool = (
        store.commit_log,
        store.commit_log.queue,
        store.queue_table,
        store.disk,
        store.derived_pool,
    )
    store.reput.drop_waiting()
    await store.index_catch_up.stop()
    await store.flusher.hold()
    await table.flush()
    await store.index.when_idle()
    first_ms = await pool.submit(log.time_at, offset)
    store.hold_checkpoint(max(first_ms, 0))
    await store.checkpoint.save(pool)
    await files.close()
    await pool.submit(files.truncate_to, offset)
    # What is kept counts as being on the device from now on, so opening the log must have nothing left to wait for.
    for file in files.files:
        if file is files.files[-1] or file.end_offset > files.flushed_offset:
            await pool.submit(disk.sync_file, file.path)
    files.open_for_append(offset)
    store.flusher.cut(log.flushed_offset)

    def cut_queue(queue: AnyQueue) -> None:
        queue.cut_beyond(disk, table.cache, offset)
        queue.next_index = queue.max_index

    def check() -> None:
        if not store.putter.is_open:
            raise StoreError("the store was stopped while its log was cut")

    await table.in_turns(cut_queue, pool, check)
    check()
    store.index.cut_beyond(offset)
    store.reput.offset = min(store.reput.offset, offset)
    store.replica_log.cut(offset)
