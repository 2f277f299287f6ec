"""Which fields travel with requests and responses about the controller: electing masters, giving broker ids, its own raft events.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from msgspec import field

from txrocketmq.codec.headers.base import Header, Int32, Int64


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """Official ``AlterSyncStateSetRequestHeader``: request header of ``CONTROLLER_ALTER_SYNC_STATE_SET``
    (1001).
    """

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """Official ``AlterSyncStateSetResponseHeader``: response header of ``CONTROLLER_ALTER_SYNC_STATE_SET``
    (1001).
    """

    new_sync_state_set_epoch: Int32 = 0


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """Official ``ApplyBrokerIdRequestHeader``: request header of ``CONTROLLER_APPLY_BROKER_ID`` (1013)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """Official ``ApplyBrokerIdResponseHeader``: response header of ``CONTROLLER_APPLY_BROKER_ID`` (1013)."""

    cluster_name: str | None = None
    broker_name: str | None = None


class BrokerCloseChannelRequest(Header, kw_only=True):
    """Official ``BrokerCloseChannelRequest``: request header of ``BROKER_CLOSE_CHANNEL_REQUEST`` (1014)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None


class BrokerCloseChannelResponse(Header, kw_only=True):
    """Official ``BrokerCloseChannelResponse``."""


class CheckNotActiveBrokerRequest(Header, kw_only=True):
    """Official ``CheckNotActiveBrokerRequest``: request header of ``CHECK_NOT_ACTIVE_BROKER_REQUEST``
    (1015).
    """

    check_time_millis: Int64 | None = None


class CheckNotActiveBrokerResponse(Header, kw_only=True):
    """Official ``CheckNotActiveBrokerResponse``."""


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """Official ``CleanControllerBrokerDataRequestHeader``: request header of ``CLEAN_BROKER_DATA`` (1011)."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    clean_living_broker: bool = field(default=False, name="isCleanLivingBroker")
    invoke_time: Int64 | None = None


class ElectMasterRequestHeader(Header, kw_only=True):
    """Official ``ElectMasterRequestHeader``: request header of ``CONTROLLER_ELECT_MASTER`` (1002)."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 | None = None


class ElectMasterResponseHeader(Header, kw_only=True):
    """Official ``ElectMasterResponseHeader``: response header of ``CONTROLLER_ELECT_MASTER`` (1002)."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetBrokerLiveInfoRequest(Header, kw_only=True):
    """Official ``GetBrokerLiveInfoRequest``: request header of ``GET_BROKER_LIVE_INFO_REQUEST`` (1016)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None


class GetBrokerLiveInfoResponse(Header, kw_only=True):
    """Official ``GetBrokerLiveInfoResponse``."""


class GetMetaDataResponseHeader(Header, kw_only=True):
    """Official ``GetMetaDataResponseHeader``: response header of ``CONTROLLER_GET_METADATA_INFO`` (1005)."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """Official ``GetNextBrokerIdRequestHeader``: request header of ``CONTROLLER_GET_NEXT_BROKER_ID``
    (1012).
    """

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """Official ``GetNextBrokerIdResponseHeader``: response header of ``CONTROLLER_GET_NEXT_BROKER_ID``
    (1012).
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """Official ``GetReplicaInfoRequestHeader``: request header of ``CONTROLLER_GET_REPLICA_INFO`` (1004)."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """Official ``GetReplicaInfoResponseHeader``: response header of ``CONTROLLER_GET_REPLICA_INFO``
    (1004).
    """

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetSyncStateDataRequest(Header, kw_only=True):
    """Official ``GetSyncStateDataRequest``."""

    invoke_time: Int64 | None = None


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """Official ``NotifyBrokerRoleChangedRequestHeader``: request header of ``NOTIFY_BROKER_ROLE_CHANGED``
    (1008).
    """

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class RaftBrokerHeartBeatEventRequest(Header, kw_only=True):
    """Official ``RaftBrokerHeartBeatEventRequest``: request header of
    ``RAFT_BROKER_HEART_BEAT_EVENT_REQUEST`` (1018).
    """

    cluster_name_identity_info: str | None = None
    broker_name_identity_info: str | None = None
    broker_id_identity_info: Int64 | None = None
    broker_name: str | None = None
    broker_addr: str | None = None
    heartbeat_timeout_millis: Int64 | None = None
    broker_id: Int64 | None = None
    last_update_timestamp: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    election_priority: Int32 | None = None


class RaftBrokerHeartBeatEventResponse(Header, kw_only=True):
    """Official ``RaftBrokerHeartBeatEventResponse``."""


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """Official ``RegisterBrokerToControllerRequestHeader``: request header of
    ``CONTROLLER_REGISTER_BROKER`` (1003).
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 = 0


class RegisterBrokerToControllerResponseHeader(Header, kw_only=True):
    """Official ``RegisterBrokerToControllerResponseHeader``: response header of
    ``CONTROLLER_REGISTER_BROKER`` (1003).
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
