"""Do log, queues and index of a store directory agree? Every record, unit and index entry against the others.

For ``txrocketmq store verify``. One pass over the log checks each record (lengths, position, CRC) and compares its queue unit; what
nothing in the log answered to is looked at afterwards. A second pass compares the index (`txrocketmq.store.verifyindex`): where there is
enough to do, and a second processor, it is another process that makes it at the same time. Nothing is written.

Records as nearly all are take a short path; anything else is left to `StoreDirectory.look`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from struct import Struct

from txrocketmq import native
from txrocketmq.codec.crc import crc32
from txrocketmq.codec.record import MAGIC_V1, RecordHead
from txrocketmq.codec.seal import SEAL_BYTES, SEAL_HEAD, seal_fault
from txrocketmq.codec.storefiles import (
    CQ_FILLER_SIZE,
    CQ_UNIT,
    CQ_UNIT_BYTES,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model import properties as props
from txrocketmq.model.flags import BORN_HOST_V6_FLAG, INNER_BATCH_FLAG, STORE_HOST_V6_FLAG
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.names import LMQ_QUEUE_ID, is_lmq
from txrocketmq.model.properties import parse_properties
from txrocketmq.store.blocks import BLOCK_BYTES, Block, scan_block
from txrocketmq.store.consumequeue import SCHEDULE_TOPIC
from txrocketmq.store.inspect import (
    LogFault,
    LogRecord,
    QueueFiles,
    StoreDirectory,
)
from txrocketmq.store.lightqueues import places
from txrocketmq.store.reput import NOT_IN_QUEUE
from txrocketmq.store.verifyindex import IndexVerifier

#: Units with smaller tags codes point into the queue's extension file.
_EXTENSION_LIMIT = -(1 << 31)
_UNUSUAL = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG | NOT_IN_QUEUE | INNER_BATCH_FLAG
_PROGRESS_BYTES = 64 * 1024 * 1024
_LIGHT_OFFSETS = props.INNER_MULTI_QUEUE_OFFSET.encode()

BESIDE_BYTES = 64 * 1024 * 1024
"""A shorter log is not worth a second process."""

# Of a record with IPv4 hosts; times of birth, hosts and retries are not needed.
_HEAD = Struct(">iiiiiqqi16xq20xi")
_HEAD_BYTES = _HEAD.size
_UNIT_START = Struct(">qi")

Say = Callable[[str], object]


class Verifier:
    """One verification of a directory.

    :ivar faults: how many were found; each was said.
    :ivar records: records of the log that are whole.
    :ivar units: queue units, :ivar entries: index entries that were looked at.
    """

    def __init__(
        self,
        store: StoreDirectory,
        say: Say,
        progress: Callable[[int], object] = lambda _: None,
        *,
        with_index: bool = True,
    ) -> None:
        self._store = store
        self._say = say
        self._progress = progress
        self._with_index = with_index
        self._queues: dict[tuple[bytes, int], QueueFiles] = {}
        self._matched: dict[tuple[bytes, int], int] = {}
        # Where the next unit of a batch queue lies that the log has not come to yet.
        self._batch_places: dict[tuple[bytes, int], int] = {}
        self._missing: dict[tuple[bytes, int], list[int]] = {}
        self._codes: dict[bytes, int] = {}
        self._newest_ms = 0
        # The keys under which light queues are derived; None where there are none.
        self._light: MessageStoreConfig | None = None
        self.faults = 0
        self.records = 0
        self.units = 0
        self.entries = 0
        self.end_offset = store.min_offset

    def fault(self, text: str) -> None:
        """Count a fault and say it."""
        self.faults += 1
        self._say(text)

    def run(self) -> int:
        """Verify everything; how many faults there are."""
        beside = self._begin_beside() if self._with_index else None
        for queue in self._store.queues():
            if is_lmq(queue.topic) and self._light is None:
                self._light = MessageStoreConfig(enable_lmq=True, enable_multi_dispatch=True)
            key = (queue.topic.encode(), queue.queue_id)
            self._queues[key] = queue
            self.units += queue.unit_count
        self._walk()
        self._say_what_is_missing()
        self._check_rest_of_queues()
        if beside is not None:
            self._end_beside(beside)
        elif self._with_index:
            index = IndexVerifier(self._store, self.fault)
            index.run()
            self.entries = index.entries
        return self.faults

    def _begin_beside(self) -> Connection | None:
        """Let another process verify the index; None when it is not worth it."""
        store = self._store
        if store.files_end - store.min_offset < BESIDE_BYTES or (os.cpu_count() or 1) < 2:
            return None
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_verify_index, args=(store, sender), daemon=True)
        process.start()
        sender.close()
        return receiver

    def _end_beside(self, receiver: Connection) -> None:
        try:
            while isinstance(said := receiver.recv(), str):
                self.fault(said)
        except EOFError:
            self.fault("index: could not be verified, the process ended")
            return
        self.entries = said

    # ------------------------------------------------------------------ the log

    def _walk(self) -> None:
        store = self._store
        at = store.min_offset
        said = at
        while True:
            at = self._go_over(at, min(at + _PROGRESS_BYTES, store.files_end))
            if at - said >= _PROGRESS_BYTES:
                said = at
                self._progress(at)
            found = store.look(at)
            if isinstance(found, LogRecord):
                self._check(found)
                at += found.head.total_size
            elif isinstance(found, int):
                at = found
            else:
                fault = store.fault_at(at, self._newest_ms)
                if fault is None or fault.end is None:
                    self.end_offset = at
                    if fault is not None:
                        self._say_log_fault(fault)
                    return
                self._say_log_fault(fault)
                at = fault.end

    def _say_log_fault(self, fault: LogFault) -> None:
        behind = "nothing valid is behind it" if fault.end is None else f"goes on at {fault.end}"
        self.fault(f"log: no valid record at {fault.start} ({fault.reason}); {behind}")

    def _go_over(self, at: int, stop: int) -> int:
        """Go over ordinary records in one file; where the first other one, or none, begins."""
        if native.functions is None:
            return self._quick(at, stop)
        while at < stop:
            found = self._store.buffer_at(at)
            if found is None:
                return at
            file, buffer = found
            position = at - file.base_offset
            block = scan_block(buffer, position, min(position + BLOCK_BYTES, file.size), at, crc32)
            begin, end = at, file.base_offset + block.end
            if block.records and self._takes(block):
                at = end
                continue
            # One by one where a queue does not have the block's units; else just the one that the block ends before.
            at = self._quick(begin, max(end, begin + 1))
            if at == begin:
                return at
        return at

    def _takes(self, block: Block) -> bool:
        """Whether all queues have the units of a block."""
        queues = []
        for topic, queue_id, first, units, _ in block.runs:
            key = (topic.encode(), queue_id)
            queue = self._queues.get(key)
            if queue is None or queue.is_batch:
                return False
            place = (first - queue.first_index) * CQ_UNIT_BYTES
            if place < 0 or queue.stretch(place, len(units)) != units:
                return False
            queues.append((key, len(units) // CQ_UNIT_BYTES))
        for key, count in queues:
            self._matched[key] = self._matched.get(key, 0) + count
        self.records += block.records
        self._newest_ms = block.store_timestamp_ms
        return True

    def _quick(self, at: int, stop: int) -> int:
        """Go over ordinary records in one file; where the first other one, or none, begins."""
        found = self._store.buffer_at(at)
        if found is None:
            return at
        file, buffer = found
        base, size_of_file = file.base_offset, file.size
        position, last = at - base, min(stop - base, size_of_file)
        unpack, pack, crc, view = _HEAD.unpack_from, CQ_UNIT.pack, crc32, memoryview(buffer)
        queues, matched, codes = self._queues, self._matched, self._codes
        records, timestamp = 0, self._newest_ms
        schedule, has_light = SCHEDULE_TOPIC.encode(), self._light is not None
        while position + 91 <= size_of_file and position < last:
            (
                total, magic, body_crc, queue_id, _, index, offset, flags, stored, body_size,
            ) = unpack(buffer, position)  # fmt: skip
            body = position + _HEAD_BYTES
            body_end = body + body_size
            end = position + total
            if (
                magic != MAGIC_V1
                or flags & _UNUSUAL
                or offset != base + position
                or body_size < 0
                or end > size_of_file
                or body_end + 3 > end
                or (body_size and crc(view[body:body_end]) & 0x7FFFFFFF != body_crc)
            ):
                break
            topic_end = body_end + 1 + buffer[body_end]
            if topic_end + 2 > end:
                break
            text = buffer[topic_end + 2 : end]
            if buffer[topic_end] << 8 | buffer[topic_end + 1] != len(text) or b"\0" in text:
                break
            topic = buffer[body_end + 1 : topic_end]
            key = (topic, queue_id)
            queue = queues.get(key)
            if queue is None or queue.is_batch or topic == schedule or b"\0" in topic:
                break
            tag = text.find(b"TAGS\x01")
            if tag < 0:
                code = 0
            elif tag and text[tag - 1] != 2:
                break
            else:
                tag_end = text.find(b"\x02", tag)
                raw = text[tag + 5 : tag_end if tag_end >= 0 else None]
                found_code = codes.get(raw)
                code = self._code(raw) if found_code is None else found_code
            place = (index - queue.first_index) * CQ_UNIT_BYTES - queue.block_at
            unit = pack(offset, total, code)
            if (place < 0 or queue.block[place : place + CQ_UNIT_BYTES] != unit) and (
                queue.bring(place + queue.block_at) != unit
            ):
                break
            if text[-SEAL_BYTES:].startswith(SEAL_HEAD) and seal_fault(view[position:end], False):
                break
            if has_light and _LIGHT_OFFSETS in text:
                break
            matched[key] = matched.get(key, 0) + 1
            records += 1
            timestamp = stored
            position = end
        view.release()
        self.records += records
        self._newest_ms = timestamp
        return base + position

    def _code(self, raw: bytes) -> int:
        if len(self._codes) > 8192:
            self._codes.clear()
        code = self._codes[raw] = tags_code(raw.decode("utf-8", "replace"))
        return code

    def _check(self, record: LogRecord) -> None:
        """Check any record against its queue and the index, saying what is wrong."""
        head = record.head
        self.records += 1
        self._newest_ms = head.store_timestamp
        topic = head.topic.encode()
        fault = seal_fault(record.data, False)
        if fault is not None:
            self.fault(f"log: the record at {record.offset}: {fault}")
        if not head.sys_flag & NOT_IN_QUEUE:
            self._check_unit(record.offset, head, (topic, head.queue_id))
            if self._light is not None and _LIGHT_OFFSETS in head.properties:
                self._check_light(record.offset, head, self._light)

    def _check_unit(self, offset: int, head: RecordHead, key: tuple[bytes, int]) -> None:
        queue = self._queues.get(key)
        if queue is None:
            self._missing.setdefault(key, []).append(offset)
            return
        name = f"queue {head.topic}-{head.queue_id}"
        if queue.is_batch:
            if self._has_batch_unit(queue, key, offset, head.total_size):
                self._matched[key] = self._matched.get(key, 0) + 1
            else:
                self._missing.setdefault(key, []).append(offset)
            return
        place = (head.queue_offset - queue.first_index) * CQ_UNIT_BYTES
        if place < 0:
            self.fault(f"{name}: begins behind message {head.queue_offset}, record at {offset}")
            return
        data = queue.bring(place)
        if len(data) < CQ_UNIT_BYTES:
            self._missing.setdefault(key, []).append(offset)
            return
        at, size, code = CQ_UNIT.unpack(data)
        tags = parse_properties(head.properties).get(props.TAGS)
        wanted = tags_code(tags) if tags else 0
        if at > offset and self._is_message(at, head):
            # The queue was deleted and begun anew: the later message has the place.
            return
        if (at, size) != (offset, head.total_size):
            self.fault(
                f"{name}: unit {head.queue_offset} says {size} bytes at {at}, "
                f"the record has {head.total_size} at {offset}"
            )
        elif code != wanted and head.topic != SCHEDULE_TOPIC and code >= _EXTENSION_LIMIT:
            self.fault(
                f"{name}: unit {head.queue_offset} has tags code {code}, "
                f"the record at {offset} has {wanted}"
            )
        self._matched[key] = self._matched.get(key, 0) + 1

    def _has_batch_unit(
        self, queue: QueueFiles, key: tuple[bytes, int], offset: int, size: int
    ) -> bool:
        """Whether a batch queue has a unit for a record. Units and records are in the same order, so both are gone through once."""
        place = self._batch_places.get(key, 0)
        while data := _unit_at(queue, place):
            if _UNIT_START.unpack_from(data)[0] >= offset:
                break
            place += queue.unit_bytes
        self._batch_places[key] = place
        # A wrong unit must not hide the one behind it.
        for candidate in (place, place + queue.unit_bytes):
            data = _unit_at(queue, candidate)
            if data and _UNIT_START.unpack_from(data) == (offset, size):
                self._batch_places[key] = candidate + queue.unit_bytes
                return True
        return False

    def _check_light(self, offset: int, head: RecordHead, config: MessageStoreConfig) -> None:
        """Check the places that a record has in light queues."""
        for name, index in places(config, head.topic, parse_properties(head.properties)):
            key = (name.encode(), LMQ_QUEUE_ID)
            queue = self._queues.get(key)
            place = -1 if queue is None else (index - queue.first_index) * CQ_UNIT_BYTES
            data = b"" if queue is None or place < 0 else queue.bring(place)
            if len(data) < CQ_UNIT_BYTES:
                self._missing.setdefault(key, []).append(offset)
                continue
            at, size, _ = CQ_UNIT.unpack(data)
            if at > offset and self._has_place(at, config, name, index):
                # The queue was deleted and begun anew: the later message has the place.
                continue
            if (at, size) != (offset, head.total_size):
                self.fault(
                    f"light queue {name}: unit {index} says {size} bytes at {at}, "
                    f"the record has {head.total_size} at {offset}"
                )
            self._matched[key] = self._matched.get(key, 0) + 1

    def _has_place(self, offset: int, config: MessageStoreConfig, name: str, index: int) -> bool:
        other = self._store.look(offset)
        if not isinstance(other, LogRecord):
            return False
        found = parse_properties(other.head.properties)
        return (name, index) in places(config, other.head.topic, found)

    def _is_message(self, offset: int, head: RecordHead) -> bool:
        other = self._store.look(offset)
        return isinstance(other, LogRecord) and (
            other.head.topic,
            other.head.queue_id,
            other.head.queue_offset,
        ) == (head.topic, head.queue_id, head.queue_offset)

    def _say_what_is_missing(self) -> None:
        known = self._store.known_topics()
        for (raw, queue_id), offsets in sorted(self._missing.items()):
            topic = raw.decode()
            if (raw, queue_id) not in self._queues and known is not None and topic not in known:
                self._say(f"topic {topic} was deleted: {len(offsets)} messages of queue {queue_id}")
                continue
            self.fault(
                f"queue {topic}-{queue_id}: lacks {len(offsets)} messages of the log, "
                f"from {offsets[0]} to {offsets[-1]}"
            )

    # ------------------------------------------------------------------ queues

    def _check_rest_of_queues(self) -> None:
        """Look at the units of queues for which the log did not answer all."""
        first = self._store.min_offset
        for key, queue in self._queues.items():
            if self._matched.get(key, 0) == queue.unit_count:
                continue
            name = f"queue {queue.topic}-{queue.queue_id}"
            for number, unit in enumerate(queue.units(), queue.first_index):
                offset, size = unit[:2]
                if size == CQ_FILLER_SIZE or 0 < offset + size <= first:
                    continue
                reason = self._unit_fault(queue, number, offset, size)
                if reason is not None:
                    self.fault(f"{name}: unit {number} says {size} bytes at {offset}, {reason}")

    def _unit_fault(self, queue: QueueFiles, number: int, offset: int, size: int) -> str | None:
        if size <= 0:
            return "it was never written"
        if offset >= self.end_offset:
            return f"behind the log's end {self.end_offset}"
        record = self._store.look(offset)
        if not isinstance(record, LogRecord):
            return "where no valid record is"
        head = record.head
        if head.total_size != size:
            # Said with the record, where it belongs to this queue.
            return f"where a record of {head.total_size} bytes is"
        if queue.is_batch or is_lmq(queue.topic):
            return None
        if (head.topic, head.queue_id, head.queue_offset) != (queue.topic, queue.queue_id, number):
            return f"where message {head.queue_offset} of {head.topic}-{head.queue_id} is"
        return None


def _unit_at(queue: QueueFiles, place: int) -> bytes:
    """The unit that begins so many bytes behind the first one; empty where there is none."""
    start = place - queue.block_at
    if 0 <= start < len(queue.block):
        return queue.block[start : start + queue.unit_bytes]
    return queue.bring(place)


def _verify_index(store: StoreDirectory, sender: Connection) -> None:
    """In a process of its own: faults as they are found, then the number of entries."""
    index = IndexVerifier(store, sender.send)
    index.run()
    sender.send(index.entries)
