"""What does a plug-in see of a request? Values, which it cannot change.

Stands for ``SendMessageContext`` and ``ConsumeMessageContext``.
"""

from __future__ import annotations

from typing import NamedTuple


class SendView(NamedTuple):
    """A send.

    :ivar queue_id: -1 for any.
    :ivar properties: in the form in which they are stored.
    :ivar client: ``host:port``.
    :ivar fields: the fields of the request's header.
    """

    topic: str
    group: str
    queue_id: int
    body: bytes
    properties: str
    client: str
    fields: dict[str, str]


class PullView(NamedTuple):
    """A pull."""

    topic: str
    group: str
    queue_id: int
    offset: int
    client: str


class PulledView(NamedTuple):
    """What a pull got: how many messages, their bytes, and the offset to go on with."""

    topic: str
    group: str
    queue_id: int
    messages: int
    size_bytes: int
    next_offset: int
