"""Bodies of the controller and of members that synchronise.

Stands for the official classes of the same names.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.route import BrokerMemberGroup


class GetBrokerMemberGroupResponseBody(Bean, kw_only=True):
    """The members of a broker name."""

    broker_member_group: BrokerMemberGroup | None = None


class BrokerSyncInfo(Bean, kw_only=True):
    """Where a slave finds its master's HA port, and how far the master has flushed."""

    master_address: str | None = None
    master_flush_offset: int = default(0)
    master_ha_address: str | None = None


class SyncStateSet(Bean, kw_only=True):
    """The broker ids that are in sync, and the epoch of that set."""

    sync_state_set: set[int] = fresh(set)
    sync_state_set_epoch: int = default(0)


class ElectMasterResponseBody(Bean, kw_only=True):
    """What the controller decided."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[int] = fresh(set)


class EpochEntry(Bean, kw_only=True):
    """A term of mastership; offsets are physical."""

    end_offset: int = default(9223372036854775807)
    epoch: int = default(0)
    start_offset: int = default(0)


class EpochEntryCache(Bean, kw_only=True):
    """All terms a broker knows."""

    broker_id: int = default(0)
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = fresh(list)
    max_offset: int = default(0)


class ReplicaIdentity(Bean, kw_only=True):
    """One replica."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: int | None = None
    broker_name: str | None = None


class ReplicasInfo(Bean, kw_only=True):
    """A broker name's master and replicas."""

    in_sync_replicas: list[ReplicaIdentity] = fresh(list)
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = default(0)
    not_in_sync_replicas: list[ReplicaIdentity] = fresh(list)
    sync_state_set_epoch: int = default(0)


class BrokerReplicasInfo(Bean, kw_only=True):
    """Replicas by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = fresh(dict)
