"""How does a record get into the log's mapping without being made before? `put_record`, which is compiled, or None.

It writes what `txrocketmq.codec.record.encode_record` makes, straight into a buffer, for a quarter of the time. It takes ``(buffer, position,
limit, topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, store_host, reconsume_times,
prepared_transaction_offset, queue_offset, physical_offset, store_timestamp)``, one by one because a caller reads attributes quicker than
C does. Its answer is the record's size, or None where it would end beyond the limit or where it is one for `encode_record`, which knows all
errors: then nothing was written. Hosts and topics have to be known from an earlier record.

Crash story: what makes a record of the bytes, its size and magic, is written last.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq import native
from txrocketmq.codec.crc import crc32
from txrocketmq.codec.record import _host_bytes, _topic_parts

__all__ = ["put_record"]


def _compiled() -> Callable[..., int | None] | None:
    if native.functions is None:
        return None
    # It looks hosts and topics up where the pure code keeps them.
    native.functions.remember(_host_bytes, _topic_parts, crc32)
    found: Callable[..., int | None] = native.functions.put_record
    return found


put_record = _compiled()
