"""What does a running broker say of itself (GET_BROKER_RUNTIME_INFO)?

Stands for ``AdminBrokerProcessor.prepareRuntimeInfo``, ``DefaultMessageStore.getRuntimeInfo`` and what they collect. Keys that official
brokers do not have appear only when there is something to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txrocketmq.model.codes import CURRENT_VERSION, version_name

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

NO_TRANSIENT_POOL = 2**31 - 1
DIFFERING_GROUPS = "consumerGroupsSubscribingDifferently"
DIFFERENCE_OF = "subscriptionDifference_"
REFUSAL = "messagesRefused"
BUSY_OF = "sendsAnsweredBusy_"

_UNITS = "KMGTPE"


def runtime_info(core: BrokerCore) -> dict[str, str]:
    """Figures by their official names."""
    return {
        **_messages(core),
        **_store(core),
        **_timer(),
        **_lanes(core),
        **_own(core),
        **core.delays.figures(),
        **core.transactions.figures(),
        **{name: value for feature in core.features for name, value in feature.figures().items()},
        "brokerActive": "true" if core.has_special_services else "false",
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerVersion": str(int(CURRENT_VERSION)),
        "bootTimestamp": str(core.started_ms),
        "runtime": _duration(core.now_ms() - core.started_ms),
        "startAcceptSendRequestTimeStamp": str(core.config.start_accept_send_request_time_stamp),
    }


def _messages(core: BrokerCore) -> dict[str, str]:
    stats, flow = core.stats, core.throughput
    put_times = max(1, stats.put_total(True))
    put_bytes = stats.put_bytes()
    return {
        "msgPutTotalYesterdayMorning": str(stats.put_marks[1]),
        "msgPutTotalTodayMorning": str(stats.put_marks[0]),
        "msgPutTotalTodayNow": str(stats.put_total()),
        "msgGetTotalYesterdayMorning": str(stats.get_marks[1]),
        "msgGetTotalTodayMorning": str(stats.get_marks[0]),
        "msgGetTotalTodayNow": str(stats.get_total()),
        "putMessageTimesTotal": str(put_times),
        "putMessageFailedTimes": str(flow.failed_puts),
        "putMessageSizeTotal": str(put_bytes),
        "putMessageAverageSize": repr(put_bytes / put_times),
        "putMessageEntireTimeMax": str(flow.put_max_ms),
        "putMessageDistributeTime": flow.put_times(),
        "putLatency99": flow.put_share(0.99),
        "putLatency999": flow.put_share(0.999),
        "getMessageEntireTimeMax": str(flow.get_max_ms),
        "putTps": flow.rates("put"),
        "getFoundTps": flow.rates("found"),
        "getMissTps": flow.rates("missed"),
        "getTotalTps": flow.total_read_rates(),
        "getTransferredTps": flow.rates("transferred"),
        # As brokers and tools of the 4.x line spell it.
        "getTransferedTps": flow.rates("transferred"),
    }


def _store(core: BrokerCore) -> dict[str, str]:
    store, upkeep = core.store, core.upkeep
    paths, (queue_used, queue_total) = upkeep.disk_usage()
    ratios = {path: _share(used, total) for path, used, total in paths}
    _, used, total = paths[0]
    return {
        **{f"commitLogDiskRatio_{path}": repr(ratio) for path, ratio in ratios.items()},
        "commitLogDiskRatio": repr(min(ratios.values())),
        "consumeQueueDiskRatio": repr(_share(queue_used, queue_total)),
        "commitLogMinOffset": str(store.min_physical_offset()),
        "commitLogMaxOffset": str(store.max_physical_offset()),
        "commitLogDirCapacity": f"Total : {readable(total)}, Free : {readable(total - used)}.",
        "dispatchBehindBytes": str(upkeep.dispatch_behind_bytes()),
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": str(upkeep.lock_time_ms()),
        "earliestMessageTimeStamp": str(upkeep.earliest_time()),
        "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
        "remainHowManyDataToFlush": readable(
            max(0, store.max_physical_offset() - store.flushed_offset())
        ),
    }


def _timer() -> dict[str, str]:
    """What the timer wheel has to do when it is not enabled: nothing."""
    return {
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }


def _lanes(core: BrokerCore) -> dict[str, str]:
    """Requests that wait. Pulls that are held on purpose are not waiting for the broker, and not counted."""
    config = core.config
    figures = {
        "sendThreadPoolQueueSize": str(core.send.waiting_count),
        "sendThreadPoolQueueHeadWaitTimeMills": str(core.send.longest_wait_ms()),
        "sendThreadPoolQueueCapacity": str(config.send_thread_pool_queue_capacity),
        "pullThreadPoolQueueCapacity": str(config.pull_thread_pool_queue_capacity),
        "litePullThreadPoolQueueCapacity": str(config.lite_pull_thread_pool_queue_capacity),
        "queryThreadPoolQueueCapacity": str(config.query_thread_pool_queue_capacity),
        "ackThreadPoolQueueCapacity": str(config.ack_thread_pool_queue_capacity),
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
    }
    for lane in ("pull", "litePull", "query", "ack"):
        figures[f"{lane}ThreadPoolQueueSize"] = "0"
        figures[f"{lane}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return figures


def _own(core: BrokerCore) -> dict[str, str]:
    """What only this broker tells: how far recovery is, groups whose members do not agree, and why no messages are taken."""
    found = core.upkeep.recovery_figures()
    differing = core.consumers.differing()
    if differing:
        found[DIFFERING_GROUPS] = str(len(differing))
        found.update({DIFFERENCE_OF + group: words for group, words in differing.items()})
    found.update({BUSY_OF + cause: str(count) for cause, count in core.throughput.busy.items()})
    refusal = core.upkeep.write_refusal()
    if refusal is not None:
        found[REFUSAL] = refusal
    return found


def readable(size_bytes: int) -> str:
    """A number of bytes as official tools spell it: ``285 B``, ``252.0 GiB``."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{size_bytes / 1024**power:.1f} {_UNITS[power - 1]}iB"


def _share(used: int, total: int) -> float:
    """Used part of a disk, in full hundredths, rounded up; -1 when it cannot be told."""
    return -(-used * 100 // total) / 100 if total else -1.0


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
