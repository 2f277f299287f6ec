"""How is much of the log read without standing in anybody's way? Piece by piece: a pool reads, the reactor looks.

A record is looked at by Python code, which no thread can do beside the reactor's: it would only fight for the interpreter lock, and win
it for 5 ms at a time. So the pool does what waits for the device, and each piece is looked at in one short turn of the reactor.

Crash story: nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from txrocketmq import native
from txrocketmq.codec.record import BLANK_RECORD_BYTES, RecordHead
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.blocks import Block
from txrocketmq.store.commitlog import LogScan
from txrocketmq.store.mapped import MappedFileQueue

START_PIECE_BYTES = 1024 * 1024
"""Looked at in one turn while nobody is served: about 5 ms with bodies of 1 KiB."""

SERVING_PIECE_BYTES = 128 * 1024
"""The same while the broker serves: less than 1 ms."""

BLOCKS_PIECE_BYTES = SERVING_PIECE_BYTES if native.functions is None else 512 * 1024
"""The same where plain records are taken as blocks."""

PROGRESS_EVERY_MS = 2000

TakeBlock = Callable[[Block, int], bool]
"""Called with a block and the offset of its first record; whether it was dealt with."""

_MB = 1_000_000


class SlicedScan(LogScan):
    """As `LogScan`, but a piece at a time, with bytes that a pool has read.

    :param limit: where to stop at the latest; a record's first byte, or the log's end.
    :ivar ended: there is no further record.
    :ivar records: how many there were, given or taken; :ivar last_ms: store time of the last one, 0 before it.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        disk: IDisk,
        pool: IBlockingPool,
        offset: int,
        *,
        check_crc: int = 0,
        limit: int | None = None,
    ) -> None:
        super().__init__(queue, offset, check_crc)
        self.limit = limit
        self.ended = False
        self.records = self.last_ms = 0
        # Up to here one record at a time: nobody took them as a block.
        self._single_to = 0
        self._disk = disk
        self._pool = pool

    async def piece(self, size: int, take: TakeBlock | None = None) -> list[tuple[int, RecordHead]]:
        """The records of the next ``size`` bytes or so; empty only at the end, or where a piece is but a file's rest, or where all
        were taken as blocks.

        :param take: is offered blocks of plain records, with their first offset; those that it takes are not given as records. They
            come in order: what is given before a block ends the piece.
        """
        found: list[tuple[int, RecordHead]] = []
        if self.is_done:
            return found
        if not self._is_buffered():
            await self._fetch(size)
        first = True
        while not self.is_done and (first or self._is_buffered()):
            first = False
            if take is not None and self._offers(take, bool(found)):
                if found:
                    break
                continue
            try:
                record = self.look(self.offset - self._buffer_offset)
            except StopIteration:
                self.ended = True
                break
            if record is not None:
                found.append(record)
                self.records += 1
                self.last_ms = record[1].store_timestamp
        return found

    def _offers(self, take: TakeBlock, only_look: bool) -> bool:
        """Whether the next records are a block that was taken, or, where it is only looked at, may be."""
        begin = self.offset
        if self._check_seal or begin < self._single_to:
            return False
        block = self._block_at(begin - self._buffer_offset, self.limit)
        if block is None or only_look:
            return block is not None
        if take(block, begin):
            self.skip(block)
            self.records += block.records
            self.last_ms = block.store_timestamp_ms
            return True
        self._single_to = self._buffer_offset + block.end
        return False

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit is reached."""
        return self.ended or (self.limit is not None and self.offset >= self.limit)

    def _is_buffered(self) -> bool:
        position = self.offset - self._buffer_offset
        available = len(self._buffer) - position
        if available < BLANK_RECORD_BYTES:
            return False
        return self._needed(position) <= available or self._at_file_end(available)

    async def _fetch(self, size: int) -> None:
        """Have the whole record at `offset` in the buffer, as far as it is in its file."""
        self._buffer, self._buffer_offset = await self._read(size), self.offset
        available = len(self._buffer)
        if available >= BLANK_RECORD_BYTES:
            wanted = self._needed(0)
            if wanted > available and not self._at_file_end(available):
                self._buffer = await self._read(wanted)

    async def _read(self, size: int) -> bytes:
        file = self._queue.find(self.offset)
        if file is None:
            return b""
        start = self.offset - file.base_offset
        end = min(start + size, file.position)
        if start >= end:
            return b""
        try:
            data: bytes = await self._pool.submit(self._disk.read_at, file.path, start, end - start)
        except FileNotFoundError:
            # Deleted meanwhile, because it has expired.
            return b""
        return data


class Progress:
    """Says now and then how far a walk over the log is.

    :param what: begins each line.
    :param end: the offset at which it will be done.
    :ivar offset: how far it is.
    """

    log = Logger()

    def __init__(self, what: str, begin: int, end: int, now_ms: Callable[[], int]) -> None:
        self.what = what
        self.begin = self.offset = begin
        self.end = end
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._say_at_ms = self._since_ms + PROGRESS_EVERY_MS

    def reached(self, offset: int, end: int | None = None) -> None:
        """Note the offset, and say it when it is time to."""
        self.offset = offset
        if end is not None:
            self.end = end
        if self._now_ms() >= self._say_at_ms:
            self._say_at_ms = self._now_ms() + PROGRESS_EVERY_MS
            self.log.info("{what}: {state}", what=self.what, state=self.text())

    @property
    def elapsed_ms(self) -> int:
        """How long it has taken until now."""
        return self._now_ms() - self._since_ms

    def text(self) -> str:
        """Share done, what is left, and how quick it goes."""
        done, whole = self.offset - self.begin, max(self.end - self.begin, 1)
        rate = done * 1000 // max(self.elapsed_ms, 1)
        left = max(self.end - self.offset, 0)
        return f"{min(100 * done // whole, 100)} %, {left // _MB} MB left, {rate // _MB} MB/s"
