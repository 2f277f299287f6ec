"""What does a producer hear when the store did not take its message?

Stands for the failure half of ``SendMessageProcessor.handlePutMessageResult``.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.store.results import PutMessageStatus

_REFUSALS: dict[PutMessageStatus, tuple[ResponseCode, str]] = {
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
        ResponseCode.SYSTEM_ERROR,
        "in-sync replicas not enough",
    ),
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: "
        "the broker's disk is full, messages are put to the slave, message store has been shut "
        "down, etc.",
    ),
    PutMessageStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutMessageStatus.QUEUE_RECOVERING: (
        ResponseCode.SYSTEM_BUSY,
        "[RECOVERY]the broker is in recovery and does not know this queue's next offset yet, try another queue or again later",
    ),
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.SYSTEM_ERROR,
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq "
        "consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w.",
    ),
    PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}

_TIMER_REMARKS: dict[PutMessageStatus, tuple[ResponseCode, Callable[[MessageStoreConfig], str]]] = {
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        lambda config: (
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be "
            "bigger than the current time"
        ),
    ),
    PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL: (
        ResponseCode.SYSTEM_ERROR,
        lambda config: (
            f"timer message is under flow control, max num limit is {config.timer_congest_num_each_slot * 2} or "
            f"the current value is greater than {config.timer_congest_num_each_slot} and less than "
            f"{config.timer_congest_num_each_slot * 2}, trigger random flow control"
        ),
    ),
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        lambda config: "accurate timer message is not enabled, timerWheelEnable is false",
    ),
}

#: Refusals of which the store knows more.
_REASONED = (
    PutMessageStatus.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
)


#: What a send is told while the disk stands still.
REJECT_REQUEST = "[REJECTREQUEST]system busy, start flow control for a while"


def busy(cause: str, waited_ms: int, waiting: int) -> ResponseError:
    """The answer that asks a producer to slow down; clients retry elsewhere.

    :param cause: the official word for it.
    :param waited_ms: how long the request waited for its turn.
    :param waiting: how many others wait.
    """
    return ResponseError(
        ResponseCode.SYSTEM_BUSY,
        f"[{cause}]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
        f"size of queue: {waiting}",
    )


def put_refused(
    status: PutMessageStatus, config: MessageStoreConfig, reason: str | None = None
) -> tuple[int, str]:
    """Response code and remark for a message that is not in the log.

    :param reason: why the store takes no messages; the remark names it behind the official words.
    """
    if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
        return (
            ResponseCode.MESSAGE_ILLEGAL.value,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {config.max_message_size}B, msg properties length limit 32KB.",
        )
    if status in _TIMER_REMARKS:
        timer_code, text = _TIMER_REMARKS[status]
        return timer_code.value, text(config)
    code, remark = _REFUSALS.get(status, (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"))
    if reason is not None and status in _REASONED:
        remark = f"{remark} Reason: {reason}"
    return code.value, remark
