"""How does a slave's log become its master's, byte by byte, and how is a log read for a slave?

Stands for ``DefaultMessageStore.appendToCommitLog`` and ``getCommitLogData``. Bytes come in pieces that end anywhere, also within a
record; each record is dispatched to its queue and the index once it is whole. What comes is checked where a record begins: bytes of
another log (a master whose log went another way) are not appended.

Crash story: as for a log of one's own. A restart cuts off the record that was not whole, and the master is asked for it again.
"""

from __future__ import annotations

from struct import Struct

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.codec.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, RecordHead
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.commitlog import CommitLog
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.index import IndexService
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.store.reput import NOT_IN_QUEUE, Reput

# A record's size and magic, and its physical offset.
_START = Struct(">ii20xq")
_SIZE = Struct(">i")


class ReplicaLog:
    """The raw side of a commit log.

    :ivar damage: why no more can be appended: what came is not a log.
    """

    log = Logger()

    def __init__(
        self,
        commit_log: CommitLog,
        queue_table: QueueTable,
        reput: Reput,
        index: IndexService,
        disk: IDisk,
        read_pool: IBlockingPool,
    ) -> None:
        self.damage: str | None = None
        self._log = commit_log
        self._queues = queue_table
        self._reput = reput
        self._index = index
        self._disk = disk
        self._pool = read_pool
        #: Where the record that is not whole yet will end, as far as its size is known.
        self._record_end = 0

    def append(self, offset: int, data: bytes | memoryview) -> bool:
        """See `IMessageAppender.append_raw`."""
        queue = self._log.queue
        for fault in (self.damage, self._log.read_only):
            if fault is not None:
                raise StoreError(fault)
        if offset != queue.max_offset:
            if queue.max_offset > queue.min_offset or offset % queue.file_size:
                raise StoreError(
                    f"bytes for offset {offset} do not follow on a log that ends at {queue.max_offset}"
                )
            if not queue.begin_at(offset):
                return False
        if queue.max_offset == queue.min_offset:
            # The first bytes of an empty log; its file may have come since they were refused.
            self._reput.offset = offset
        if offset % queue.file_size + len(data) > queue.file_size:
            raise StoreError(
                f"{len(data)} bytes for offset {offset} reach over the end of a file: "
                "mappedFileSizeCommitLog is not the master's"
            )
        if self._reput.offset == offset:
            _check_start(offset, data)
        if self._index.is_behind or not self._log.append_raw(offset, data):
            return False
        if queue.max_offset >= self._record_end:
            self._dispatch(data if offset == self._reput.offset else None)
        return True

    def confirmed(self) -> None:
        """Replicas agree on more of the log: derive what waited for that."""
        if self._reput.offset < self._log.max_offset:
            self._dispatch()

    def hold_rest(self) -> None:
        """This log is the master's from now on: what replicas do not agree on yet waits like what comes."""
        for position, head in self._log.scan(self._reput.offset):
            self._reput.hold_head(position, head)

    def _dispatch(self, data: bytes | memoryview | None = None) -> None:
        """Derive what belongs to the records that are whole by now, and that replicas agree on where somebody asks for that.

        :param data: the log from where it is derived to its end, where that is at hand.
        """
        reput = self._reput
        confirmed = reput.confirm_offset
        scan = self._log.scan(reput.offset)
        if data is not None:
            scan.give(data)
        # Up to here one record at a time: a block did not do.
        single_to = 0
        while True:
            begin = scan.offset
            block = scan.block(confirmed) if begin >= single_to else None
            if block is not None:
                scan.skip(block)
                if reput.dispatch_block(block, begin):
                    self._log.last_store_timestamp_ms = block.store_timestamp_ms
                    continue
                single_to, scan.offset = scan.offset, begin
            found = next(scan, None)
            if found is None:
                break
            position, head = found
            if confirmed is not None and position + head.total_size > confirmed:
                reput.offset = position
                return
            self._dispatch_one(position, head)
        reput.offset = self._record_end = scan.offset
        end = self._log.max_offset
        if scan.damage is None or end - scan.offset < _SIZE.size:
            return
        size = _SIZE.unpack(self._log.read(scan.offset, _SIZE.size))[0]
        self._record_end = scan.offset + size
        if not 0 < size <= self._log.queue.file_size or self._record_end <= end:
            self.damage = f"what the master sent is no log: {scan.damage}"
            self.log.critical("{damage}", damage=self.damage)
            raise StoreError(self.damage)

    def _dispatch_one(self, position: int, head: RecordHead) -> None:
        self._begin_anew(head)
        dispatch = self._reput.dispatch_of(position, head)
        self._reput.dispatch(*dispatch)
        queue = dispatch[0]
        queue.next_index = queue.max_index
        self._log.last_store_timestamp_ms = head.store_timestamp

    def _begin_anew(self, head: RecordHead) -> None:
        """A queue's first message: where there are others already, the master deleted the topic, and it began anew. Nothing of this is
        said in the log."""
        table = self._queues
        queue = table.queues.get((head.topic, head.queue_id))
        if (
            head.queue_offset == 0
            and queue is not None
            and queue.max_index > 0
            and not (queue.is_batch or head.sys_flag & NOT_IN_QUEUE)
            and not (table.rows is not None and table.rows.covers((head.topic, head.queue_id)))
        ):
            table.delete_topics(frozenset((head.topic,)))

    def cut(self, offset: int) -> None:
        """The log was cut at a record's end: what comes next begins there."""
        self._record_end = offset
        self.damage = None

    def last_record(self) -> tuple[int, bytes] | None:
        """See `IReplicationControl.last_record`."""
        table = self._queues
        # Of a queue that is derived again a row has the newest messages.
        last = max(
            (
                queue
                for queue in (*table.queues.values(), *table.ahead.values())
                if isinstance(queue, ConsumeQueue) and queue.max_index > queue.min_index
            ),
            key=lambda queue: queue.max_physical_offset,
            default=None,
        )
        if last is None:
            return None
        unit = last.unit(table.cache, last.max_index - 1)
        if unit is None:
            return None
        offset, size, _ = unit
        return offset, self._log.read(offset, size)

    def read(self, offset: int, max_bytes: int) -> bytes | Deferred[bytes]:
        """See `IReplicationControl.read_log`."""
        data = self._log.read_ready(offset, max_bytes)
        if data is not None:
            return data
        file = self._log.queue.find(offset)
        assert file is not None, "bytes that are not there are no cold ones"
        start = offset - file.base_offset
        size = min(max_bytes, file.position - start)
        return self._pool.submit(self._disk.read_at, file.path, start, size)


def _check_start(offset: int, data: bytes | memoryview) -> None:
    """See that bytes for the end of the last record can be the beginning of the next one.

    :raises StoreError: they cannot.
    """
    if len(data) < _START.size:
        return
    size, magic, told = _START.unpack_from(data)
    if magic == BLANK_MAGIC or (magic in (MAGIC_V1, MAGIC_V2) and told == offset and size > 0):
        return
    raise StoreError(
        f"the master's log and this one went different ways before offset {offset}: no record begins "
        "there in the master's. Empty this store to take over the master's log"
    )
