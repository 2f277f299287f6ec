"""What do the fixed-size pieces of store files look like? Consume queue units, index files, the checkpoint.

Stands for the layouts inside ``ConsumeQueue``, ``BatchConsumeQueue``, ``IndexHeader``, ``IndexFile`` and
``StoreCheckpoint``. All numbers are big-endian and signed::

    queue unit    physical offset 8 | record size 4 | tags code 8
    batch unit    physical offset 8 | record size 4 | tags code 8 | store time 8 | first logical offset 8
                  messages in the record 2 | compacted offset 4 (-1) | reserved 4
    extension     unit size 2 | tags code 8 | store time 8 | bit map size 2 | bit map
    index file    header | slots, 4 each: newest entry of the slot, 0 when empty | entries
      header      begin time 8 | end time 8 | begin offset 8 | end offset 8 | slots used 4 | next entry 4, from 1
      entry       key hash 4 | physical offset 8 | seconds after begin time 4 | older entry of the slot 4
    checkpoint    log time 8 | queue time 8 | index time 8 | master flushed offset 8 | confirm offset 8, in 4096 bytes
    timer log     unit size 4 (52) | previous unit of the slot 8 (-1) | magic 4 | write time 8 | delay 4 | physical offset 8
                  record size 4 | topic hash 4 | reserved 8
    timer wheel   time / precision 8 | first unit 8 | last unit 8 | messages 4 | magic 4; the place is the number modulo all slots
    timer check   read time 8 | flushed timer log 8 | queue offset 8 | master's 8 | state 8 | time 8 | counter 8, in 4096 bytes

The layouts are declared in `txrocketmq.codec.layouts`; this is the quick form of them and a test holds both equal.
"""

from __future__ import annotations

from struct import Struct

CQ_UNIT = Struct(">qiq")
CQ_UNIT_BYTES = CQ_UNIT.size
CQ_FILLER_SIZE = 0x7FFFFFFF
CQ_FILLER = CQ_UNIT.pack(0, CQ_FILLER_SIZE, 0)
"""Stands where a queue has no message: a queue whose first logical offset is not the start of a file."""

BATCH_UNIT = Struct(">qiqqqhii")
BATCH_UNIT_BYTES = BATCH_UNIT.size
BATCH_NOT_COMPACTED = -1

EXTENSION_HEAD = Struct(">hqqh")
EXTENSION_HEAD_BYTES = EXTENSION_HEAD.size
EXTENSION_MAX_BYTES = 0x7FFF
EXTENSION_END = b"\xff\xff"
"""Stands where the next unit is in the next file."""
EXTENSION_END_BYTES = 4
"""So much stays free behind the last unit of a file."""
EXTENSION_MAX_ADDRESS = -(1 << 31) - 1
"""A tags code of a queue's unit that is not greater is a place in the extension: its offset less 2**63."""

SIZE_FIELD = Struct(">i")
"""The record size within a unit of either kind, at `SIZE_FIELD_POSITION`; a unit with none was never written."""
SIZE_FIELD_POSITION = 8

INDEX_HEADER = Struct(">qqqqii")
INDEX_HEADER_BYTES = INDEX_HEADER.size
INDEX_SLOT = Struct(">i")
INDEX_SLOT_BYTES = INDEX_SLOT.size
INDEX_ENTRY = Struct(">iqii")
INDEX_ENTRY_BYTES = INDEX_ENTRY.size

CHECKPOINT = Struct(">qqqqq")
CHECKPOINT_BYTES = 4096

TIMER_UNIT = Struct(">iqiqiqiiq")
TIMER_UNIT_BYTES = TIMER_UNIT.size
TIMER_MAGIC_DEFAULT = 1
TIMER_MAGIC_ROLL = 2
TIMER_MAGIC_DELETE = 4

TIMER_END = Struct(">iqi")
TIMER_END_BYTES = TIMER_END.size
TIMER_END_MAGIC = -875_286_124
"""Stands where the next unit of the timer log is in the next file."""

TIMER_SLOT = Struct(">qqqii")
TIMER_SLOT_BYTES = TIMER_SLOT.size

TIMER_CHECKPOINT = Struct(">qqqqqqq")
TIMER_CHECKPOINT_SHORT = Struct(">qqqq")
"""What early 5.x brokers answer: without the version."""
TIMER_CHECKPOINT_OURS = Struct(">iiqqq")
