"""What does a message id tell? Stands for ``DecodeMessageId``, and for reading a broker's ids."""

from __future__ import annotations

import datetime
import time

from txrocketmq.model.message_id import parse_offset_message_id, parse_uniq_id
from txrocketmq.remoting.transport import format_address

_LARGEST_PORT = 65_535
_MS_PER_SECOND = 1000


def readings(message_id: str, now_ms: int | None = None) -> list[str]:
    """One line for each way to read an id; both kinds have one form, so that only the port tells what cannot be a broker's.

    :param now_ms: wall-clock ms; a client's id holds the time since a month began.
    :raises RecordError: it is neither.
    """
    host, port, offset = parse_offset_message_id(message_id)
    unique = parse_uniq_id(
        message_id, int(time.time() * _MS_PER_SECOND) if now_ms is None else now_ms
    )
    made = datetime.datetime.fromtimestamp(unique.near_time_ms / _MS_PER_SECOND)
    lines = []
    if 0 < port <= _LARGEST_PORT and offset >= 0:
        lines.append(
            f"a broker's id: stored by {format_address(host, port)} at physical offset {offset}"
        )
    lines.append(
        f"a client's id: made at {unique.address} by process {unique.process_id} (modulo 65536), "
        f"{made:%Y-%m-%d %H:%M:%S}.{unique.near_time_ms % _MS_PER_SECOND:03d}, "
        f"counter {unique.counter}"
    )
    return lines
