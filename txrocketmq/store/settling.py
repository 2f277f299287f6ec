"""What is a sender told whose message had to be flushed, or to reach replicas, or both?

Stands for ``CommitLog.handleDiskFlushAndHA``: both are waited for at the same time, and what went wrong with the replicas is told
before what went wrong with the disk.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from txrocketmq.model.replication import Replicated
from txrocketmq.store.results import PutMessageResult, PutMessageStatus

_STATUS = {
    Replicated.TIMED_OUT: PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    Replicated.NO_SLAVE: PutMessageStatus.SLAVE_NOT_AVAILABLE,
}


def settle(
    result: PutMessageResult,
    flushed: Deferred[bool] | None,
    replicated: Deferred[Replicated] | None,
) -> PutMessageResult | Deferred[PutMessageResult]:
    """The result with the status that fits, once all that is waited for is known.

    :param flushed: True: on the device. None: nobody waits for that.
    :param replicated: None: nobody waits for that.
    """
    if flushed is None:
        if replicated is None:
            return result
        return replicated.addCallback(_after_replicas, result)
    on_disk = flushed.addCallback(_after_flush, result)
    if replicated is None:
        return on_disk
    return on_disk.addCallback(lambda found: replicated.addCallback(_after_replicas, found))


def _after_flush(done: bool, result: PutMessageResult) -> PutMessageResult:
    return result if done else result.with_status(PutMessageStatus.FLUSH_DISK_TIMEOUT)


def _after_replicas(outcome: Replicated, result: PutMessageResult) -> PutMessageResult:
    status = _STATUS.get(outcome)
    return result if status is None else result.with_status(status)
