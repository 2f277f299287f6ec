"""What does a recall handle say? Stands for the official ``RecallMessageHandle``: URL-safe Base64 of ``v1 topic broker time id``."""

from __future__ import annotations

import base64
import binascii

import attrs

from txrocketmq.errors import MQClientError

WORDS = 5


@attrs.frozen
class RecallHandle:
    """A timed message that may be recalled.

    :ivar deliver_time: wall-clock ms as text.
    """

    topic: str
    broker_name: str
    deliver_time: str
    message_id: str


def parse_recall_handle(handle: str) -> RecallHandle:
    """Read a handle.

    :raises MQClientError: it is none.
    """
    try:
        words = base64.b64decode(handle, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        words = []
    if len(words) < WORDS or words[0] != "v1":
        raise MQClientError(f"recall handle {handle!r} is not valid")
    return RecallHandle(*words[1:WORDS])
