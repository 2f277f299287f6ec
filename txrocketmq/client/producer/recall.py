"""Which message does a recall handle name? See `txrocketmq.codec.recall`."""

from __future__ import annotations

from txrocketmq.codec.recall import RecallHandle
from txrocketmq.errors import MQClientError


def parse_recall_handle(handle: str) -> RecallHandle:
    """Read a handle.

    :raises MQClientError: it is none.
    """
    try:
        return RecallHandle.decode(handle)
    except ValueError as error:
        raise MQClientError(f"recall handle {handle!r} is not valid") from error
