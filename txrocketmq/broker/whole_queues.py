"""Who asks about a queue that is still derived from the log? He is told so, instead of figures that are only part of the truth.

`IQueueOffsets.recovering` and `IQueueOffsets.incomplete` say what is known of a queue meanwhile. Official brokers derive all queues
before they serve anybody.
"""

from __future__ import annotations

from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode


def require_end(store: IMessageStore, topic: str, queue_id: int) -> None:
    """The end of a queue is known.

    :raises ResponseError: SYSTEM_BUSY, with the reason and how far it is.
    """
    _require(store.recovering(topic, queue_id))


def require_whole(store: IMessageStore, topic: str, queue_id: int) -> None:
    """All messages of a queue can be found: its begin is known, and what is searched for is found.

    :raises ResponseError: SYSTEM_BUSY, with the reason and how far it is.
    """
    _require(store.incomplete(topic, queue_id))


def _require(reason: str | None) -> None:
    if reason is not None:
        raise ResponseError(ResponseCode.SYSTEM_BUSY, reason)
