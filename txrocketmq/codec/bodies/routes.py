"""Bodies that say where topics and brokers are.

Stands for ``TopicRouteData`` as GET_ROUTEINFO_BY_TOPIC answers it, and ``ClusterInfo``.
"""

from __future__ import annotations

import msgspec

from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.model.bean import Bean, fresh
from txrocketmq.model.route import BrokerData, TopicRouteData

_encoder = msgspec.json.Encoder()


class ClusterInfo(Bean, kw_only=True):
    """All brokers by broker name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData] = fresh(dict)
    cluster_addr_table: dict[str, list[str]] = fresh(dict)


def encode_route(route: TopicRouteData, *, strict: bool) -> bytes:
    """A route for one caller.

    :param strict: standard JSON with sorted maps, for callers of version V4_9_4 or later and those that ask for
        ``acceptStandardJsonOnly``; else the dialect with bare broker ids.
    """
    return _encoder.encode(_sorted_route(route)) if strict else encode_body(route)


def _sorted_route(route: TopicRouteData) -> TopicRouteData:
    brokers = [
        msgspec.structs.replace(broker, broker_addrs=dict(sorted(broker.broker_addrs.items())))
        if len(broker.broker_addrs) > 1
        else broker
        for broker in route.broker_datas
    ]
    mappings = route.topic_queue_mapping_by_broker
    if mappings:
        mappings = {
            name: msgspec.structs.replace(info, curr_id_map=dict(sorted(info.curr_id_map.items())))
            for name, info in sorted(mappings.items())
        }
    return msgspec.structs.replace(
        route,
        broker_datas=brokers,
        filter_server_table=dict(sorted(route.filter_server_table.items())),
        topic_queue_mapping_by_broker=mappings,
    )
