"""Which configuration classes are there? The official five, made of the key modules next to this file.

An attribute is the official key in snake_case (``brokerIP1`` is ``broker_ip1``). Parts keep the object they were given
and read the attribute at each use, so that a change at run time is seen.
"""

from __future__ import annotations

import attrs

from txrocketmq.config.broker_core_keys import BrokerCoreKeys
from txrocketmq.config.broker_feature_keys import BrokerFeatureKeys
from txrocketmq.config.broker_observe_keys import BrokerObserveKeys
from txrocketmq.config.namesrv_keys import NamesrvConfig
from txrocketmq.config.netty_keys import NettyClientConfig, NettyServerConfig
from txrocketmq.config.store_feature_keys import StoreFeatureKeys
from txrocketmq.config.store_log_keys import StoreLogKeys
from txrocketmq.config.store_replica_keys import StoreReplicaKeys

__all__ = [
    "BrokerConfig",
    "MessageStoreConfig",
    "NamesrvConfig",
    "NettyClientConfig",
    "NettyServerConfig",
]


@attrs.define(kw_only=True, slots=False)
class BrokerConfig(BrokerCoreKeys, BrokerFeatureKeys, BrokerObserveKeys):
    """All keys of the official ``BrokerConfig`` (with ``BrokerIdentity``)."""


@attrs.define(kw_only=True, slots=False)
class MessageStoreConfig(StoreLogKeys, StoreReplicaKeys, StoreFeatureKeys):
    """All keys of the official ``MessageStoreConfig``."""
