"""Which fields travel with requests and responses about a broker's group of replicas and the broker container.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from txrocketmq.codec.headers.base import Header, Int64


class AddBrokerRequestHeader(Header, kw_only=True):
    """Official ``AddBrokerRequestHeader``: request header of ``ADD_BROKER`` (902)."""

    config_path: str | None = None


class ExchangeHAInfoRequestHeader(Header, kw_only=True):
    """Official ``ExchangeHAInfoRequestHeader``: request header of ``EXCHANGE_BROKER_HA_INFO`` (906)."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(Header, kw_only=True):
    """Official ``ExchangeHAInfoResponseHeader``: response header of ``EXCHANGE_BROKER_HA_INFO`` (906)."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """Official ``GetBrokerMemberGroupRequestHeader``: request header of ``GET_BROKER_MEMBER_GROUP`` (901)."""

    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """Official ``NotifyMinBrokerIdChangeRequestHeader``: request header of ``NOTIFY_MIN_BROKER_ID_CHANGE``
    (905).
    """

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class RemoveBrokerRequestHeader(Header, kw_only=True):
    """Official ``RemoveBrokerRequestHeader``: request header of ``REMOVE_BROKER`` (903)."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """Official ``ResetMasterFlushOffsetHeader``: request header of ``RESET_MASTER_FLUSH_OFFSET`` (908)."""

    master_flush_offset: Int64
