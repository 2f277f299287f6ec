"""How do routes look to one caller? A slave in its master's place, and only the brokers of the caller's zone.

Stands for the last part of ``RouteInfoManager.pickupTopicRouteData`` and for ``ZoneRouteRPCHook``. Both work on a route that was made
for this caller alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from txrocketmq.model.flags import PERM_WRITE
from txrocketmq.model.names import MASTER_ID, SYNC_BROKER_MEMBER_GROUP_PREFIX
from txrocketmq.model.route import TopicRouteData

ZONE_NAME_FIELD = "__ZONE_NAME"
ZONE_MODE_FIELD = "__ZONE_MODE"


def show_acting_masters(topic: str, route: TopicRouteData) -> None:
    """Give the smallest slave the master's id, where the group allows it, has no master, and the topic is closed for writing.

    Brokers find their own group through a topic of its own; there everybody keeps its id.
    """
    if topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX):
        return
    read_only = {queue.broker_name for queue in route.queue_datas if not queue.perm & PERM_WRITE}
    for broker in route.broker_datas:
        members = broker.broker_addrs
        if (
            broker.enable_acting_master
            and members
            and MASTER_ID not in members
            and broker.broker_name in read_only
        ):
            members[MASTER_ID] = members.pop(min(members))


def wanted_zone(ext_fields: Mapping[str, str]) -> str | None:
    """The zone that a caller asks for; None when it takes all."""
    if ext_fields.get(ZONE_MODE_FIELD, "").lower() != "true":
        return None
    zone = ext_fields.get(ZONE_NAME_FIELD, "")
    return zone if zone.strip() else None


def keep_zone(route: TopicRouteData, zone: str) -> None:
    """Leave out brokers of other zones. Those without a master stay: their slaves are better than nothing."""
    removed = [
        broker
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
        and (broker.zone_name or "").casefold() != zone.casefold()
    ]
    if not removed:
        return
    names = {broker.broker_name for broker in removed}
    route.broker_datas = [b for b in route.broker_datas if b.broker_name not in names]
    route.queue_datas = [q for q in route.queue_datas if q.broker_name not in names]
    for broker in removed:
        for address in broker.broker_addrs.values():
            route.filter_server_table.pop(address, None)
