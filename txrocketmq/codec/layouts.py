"""How is every frame, record and store file laid out? The one declaration of each, in Construct.

All numbers are big-endian. What runs per message never uses these objects: `txrocketmq.codec.lower` turns the declarations into
quick code, or quick code written by hand is tested equal to them. Lengths of strings and maps in command headers are signed in Java;
they are declared unsigned, so that a negative one is refused like any other that points past the end.
"""

from __future__ import annotations

from construct import (
    Bytes,
    Construct,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    PascalString,
    Prefixed,
    StringEncoded,
    Struct,
    Terminated,
)


class JavaText(StringEncoded):  # type: ignore[misc]
    """UTF-8 text with a length before it, read as Java does: bytes that are no text become U+FFFD.

    :param lengthfield: the length's layout.
    """

    def __init__(self, lengthfield: Construct) -> None:
        super().__init__(Prefixed(lengthfield, GreedyBytes), "utf-8")

    def _decode(self, obj: bytes, context: object, path: str) -> str:
        return obj.decode("utf-8", "replace")


# --------------------------------------------------------------------------- remoting commands

FRAME_PREFIX: Construct = Struct(
    "frame_length" / Int32sb,
)
"""Before each frame: how many bytes follow (official ``NettyDecoder`` and its length field)."""

COMMAND_FRAME: Construct = Struct(
    "type_and_header_length" / Int32ub,
    "header_and_body" / GreedyBytes,
)
"""A frame without its prefix (official ``RemotingCommand``): the high byte of the first word is the serialize type, the rest of
it the length of the header; the body takes what is left."""

BINARY_HEADER: Construct = Struct(
    "code" / Int16sb,
    "language" / Int8sb,
    "version" / Int16sb,
    "opaque" / Int32sb,
    "flag" / Int32sb,
    "remark" / JavaText(Int32ub),
    "ext_fields" / Prefixed(Int32ub, GreedyBytes),
)
"""A header of serialize type ROCKETMQ (official ``RocketMQSerializable``). Its code has 16 bits only; an empty remark means none."""

MAP_ENTRY: Construct = Struct(
    "key" / JavaText(Int16ub),
    "value" / JavaText(Int32ub),
)
"""One member of a binary header's map; an empty value means none."""

MAP_ENTRIES: Construct = FocusedSeq("entries", "entries" / GreedyRange(MAP_ENTRY), Terminated)
"""The map of a binary header (``ext_fields`` of `BINARY_HEADER`)."""

# --------------------------------------------------------------------------- replication

HA_REPORT: Construct = Struct("slave_offset" / Int64sb)
"""What a slave tells its master: how far its log goes (official ``DefaultHAClient``)."""

HA_TRANSFER_HEADER: Construct = Struct(
    "physical_offset" / Int64sb,
    "body_size" / Int32sb,
)
"""Before each piece of log that a master sends (official ``DefaultHAConnection``); a heartbeat has no body."""

# --------------------------------------------------------------------------- message records

HOST_V4: Construct = Struct("address" / Bytes(4), "port" / Int32sb)
HOST_V6: Construct = Struct("address" / Bytes(16), "port" / Int32sb)
"""An address as records, message ids and receipt handles hold it."""


def message_record(version: int, *, born_ipv6: bool, store_ipv6: bool) -> Construct:
    """The layout of a commit log record (official ``MessageExtEncoder``, ``MessageDecoder``).

    :param version: 1 or 2 (``MessageVersion``); the magic says which. Version 2 has a longer length before the topic.
    :param born_ipv6: the producer's address has 16 bytes (sysFlag bit 4).
    :param store_ipv6: the broker's address has 16 bytes (sysFlag bit 5).
    """
    topic_length = Int8sb if version == 1 else Int16sb
    return Struct(
        "total_size" / Int32sb,
        "magic" / Int32sb,
        "body_crc" / Int32sb,
        "queue_id" / Int32sb,
        "flag" / Int32sb,
        "queue_offset" / Int64sb,
        "physical_offset" / Int64sb,
        "sys_flag" / Int32sb,
        "born_timestamp" / Int64sb,
        "born_host" / Bytes(20 if born_ipv6 else 8),
        "store_timestamp" / Int64sb,
        "store_host" / Bytes(20 if store_ipv6 else 8),
        "reconsume_times" / Int32sb,
        "prepared_transaction_offset" / Int64sb,
        "body" / Prefixed(Int32sb, GreedyBytes),
        "topic" / PascalString(topic_length, "utf-8"),
        "properties" / Prefixed(Int16sb, GreedyBytes),
    )


BLANK_RECORD: Construct = Struct("total_size" / Int32sb, "magic" / Int32sb)
"""Ends a commit log file; ``total_size`` is what is left of the file, its bytes are undefined."""

CLIENT_BATCH_ITEM: Construct = Struct(
    "total_size" / Int32sb,
    "magic" / Int32sb,
    "body_crc" / Int32sb,
    "flag" / Int32sb,
    "body" / Prefixed(Int32sb, GreedyBytes),
    "properties" / Prefixed(Int16sb, GreedyBytes),
)
"""One message in the body of SEND_BATCH_MESSAGE (official ``MessageDecoder.encodeMessage``); magic and CRC are 0."""

# --------------------------------------------------------------------------- consume queues

CONSUME_QUEUE_UNIT: Construct = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
)
"""An entry of a consume queue file (official ``ConsumeQueue``)."""

CONSUME_QUEUE_EXT_UNIT: Construct = Struct(
    "unit_size" / Int16sb,
    "tags_code" / Int64sb,
    "store_timestamp" / Int64sb,
    "filter_bit_map" / Prefixed(Int16sb, GreedyBytes),
)
"""An entry of a consume queue's extension file (official ``ConsumeQueueExt.CqExtUnit``)."""

BATCH_CONSUME_QUEUE_UNIT: Construct = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
    "store_timestamp" / Int64sb,
    "base_offset" / Int64sb,
    "batch_size" / Int16sb,
    "compacted_offset" / Int32sb,
    "reserved" / Int32sb,
)
"""An entry of a queue of batches (official ``BatchConsumeQueue``)."""

# --------------------------------------------------------------------------- index files, checkpoint

INDEX_HEADER: Construct = Struct(
    "begin_timestamp" / Int64sb,
    "end_timestamp" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "hash_slot_count" / Int32sb,
    "index_count" / Int32sb,
)
"""The first 40 bytes of an index file (official ``IndexHeader``); ``index_count`` starts at 1."""

INDEX_SLOT: Construct = Struct("latest_index" / Int32sb)
"""A hash slot of an index file: its newest entry, 0 when empty."""

INDEX_ENTRY: Construct = Struct(
    "key_hash" / Int32sb,
    "physical_offset" / Int64sb,
    "time_diff_s" / Int32sb,
    "previous_index" / Int32sb,
)
"""An entry of an index file (official ``IndexFile``); the time counts seconds from the header's begin."""

STORE_CHECKPOINT: Construct = Struct(
    "physic_msg_timestamp" / Int64sb,
    "logics_msg_timestamp" / Int64sb,
    "index_msg_timestamp" / Int64sb,
    "master_flushed_offset" / Int64sb,
    "confirm_physical_offset" / Int64sb,
)
"""The used part of the 4096-byte checkpoint file (official ``StoreCheckpoint``); the last two are 5.x only."""

# --------------------------------------------------------------------------- timed messages

TIMER_LOG_UNIT: Construct = Struct(
    "size" / Int32sb,
    "previous_position" / Int64sb,
    "magic" / Int32sb,
    "write_time" / Int64sb,
    "delay_ms" / Int32sb,
    "physical_offset" / Int64sb,
    "record_size" / Int32sb,
    "topic_hash" / Int32sb,
    "reserved" / Int64sb,
)
"""One waiting message in the timer log (official ``TimerLog``); the units of a slot are chained backwards."""

TIMER_LOG_END: Construct = Struct(
    "size" / Int32sb,
    "zero" / Int64sb,
    "magic" / Int32sb,
)
"""Stands in a file of the timer log where the next unit is in the next file."""

TIMER_SLOT: Construct = Struct(
    "slot" / Int64sb,
    "first_position" / Int64sb,
    "last_position" / Int64sb,
    "messages" / Int32sb,
    "magic" / Int32sb,
)
"""One slot of the timer wheel (official ``Slot``); its number is the time divided by the precision."""

TIMER_CHECKPOINT: Construct = Struct(
    "last_read_time" / Int64sb,
    "last_log_flush_position" / Int64sb,
    "last_queue_offset" / Int64sb,
    "master_queue_offset" / Int64sb,
    "state_version" / Int64sb,
    "version_timestamp" / Int64sb,
    "version_counter" / Int64sb,
)
"""The official part of the file ``timercheck`` (``TimerCheckpoint``)."""

TIMER_CHECKPOINT_OURS: Construct = Struct(
    "magic" / Int32sb,
    "crc" / Int32sb,
    "log_end" / Int64sb,
    "safe_read_time" / Int64sb,
    "safe_queue_offset" / Int64sb,
)
"""What txrocketmq keeps behind it, where official brokers look at nothing; see `txrocketmq.store.timer.checkpoint`."""
