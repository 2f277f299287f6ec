"""What does a running broker say of itself (GET_BROKER_RUNTIME_INFO)?

Stands for ``AdminBrokerProcessor.prepareRuntimeInfo``, as far as this release counts anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txrocketmq.model.codes import CURRENT_VERSION, version_name

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore


def runtime_info(core: BrokerCore) -> dict[str, str]:
    """Figures by their official names."""
    return {
        "brokerActive": "true",
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerVersion": str(int(CURRENT_VERSION)),
        "bootTimestamp": str(core.started_ms),
        "runtime": _duration(core.now_ms() - core.started_ms),
        "msgPutTotalTodayNow": str(core.send.message_count),
        "msgGetTotalTodayNow": str(core.pull.message_count),
        "startAcceptSendRequestTimeStamp": str(core.config.start_accept_send_request_time_stamp),
        "sendThreadPoolQueueCapacity": str(core.config.send_thread_pool_queue_capacity),
        "pullThreadPoolQueueSize": str(core.pull.held.count),
        "pullThreadPoolQueueCapacity": str(core.config.pull_thread_pool_queue_capacity),
    }


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
