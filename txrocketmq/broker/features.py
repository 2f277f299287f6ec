"""Which features has a broker besides sending, pulling, delays and transactions? Made in this order, started and stopped in it.

A feature takes what it needs from the broker when it is made; the broker knows it by `IBrokerFeature` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.plugins.service import Plugins, chosen_plugins
from txrocketmq.broker.pop.service import PopService
from txrocketmq.broker.reply.processor import ReplyService
from txrocketmq.broker.slow_reads.service import SlowReads
from txrocketmq.broker.static_topics.service import StaticTopicService
from txrocketmq.broker.strict_locks import StrictLocks
from txrocketmq.broker.timer.service import TimerService
from txrocketmq.interfaces import IConfigFiles

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore


def make_features(core: BrokerCore, files: IConfigFiles) -> tuple[Feature, ...]:
    """The features of a broker whose tables and stores are made."""
    return (
        PopService(core, files),
        TimerService(core, files),
        ReplyService(core),
        StaticTopicService(core),
        SlowReads(core),
        StrictLocks(core),
        Plugins(core, chosen_plugins(core.config.broker_plugins)),
    )
