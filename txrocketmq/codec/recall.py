"""What does a recall handle say? Stands for the official ``RecallMessageHandle``: URL-safe Base64 of ``v1 topic broker time id``."""

from __future__ import annotations

import base64
import binascii

import attrs

_WORDS = 5
_VERSION = "v1"


@attrs.frozen
class RecallHandle:
    """A timed message that may be recalled.

    :ivar deliver_time: wall-clock ms as text.
    """

    topic: str
    broker_name: str
    deliver_time: str
    message_id: str

    def encode(self) -> str:
        """The handle as producers get it."""
        words = (_VERSION, self.topic, self.broker_name, self.deliver_time, self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """Read a handle.

        :raises ValueError: it is none.
        """
        try:
            words = base64.b64decode(handle, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            words = []
        if len(words) < _WORDS or words[0] != _VERSION:
            raise ValueError("recall handle is invalid")
        return cls(*words[1:_WORDS])
