"""Where a topic lives: the queues and brokers that a name server names.

Stands for ``TopicRouteData``, ``QueueData``, ``BrokerData`` and ``BrokerMemberGroup``.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.names import MASTER_ID
from txrocketmq.model.static_topic import TopicQueueMappingInfo


class QueueData(Bean, kw_only=True):
    """How many queues of a topic a broker name has, and what may be done with them."""

    broker_name: str | None = None
    perm: int = default(0)
    read_queue_nums: int = default(0)
    topic_sys_flag: int = default(0)
    write_queue_nums: int = default(0)


class BrokerData(Bean, kw_only=True):
    """The members of a broker name: broker id (0 is the master) to ``host:port``."""

    broker_addrs: dict[int, str] = fresh(dict)
    broker_name: str | None = None
    cluster: str | None = None
    enable_acting_master: bool = default(False)
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        """The master's address; None when there is none."""
        return self.broker_addrs.get(MASTER_ID)

    def any_address(self) -> str | None:
        """The master's address, else that of the member with the smallest id; None when there is no member."""
        if not self.broker_addrs:
            return None
        return self.broker_addrs.get(MASTER_ID) or self.broker_addrs[min(self.broker_addrs)]


class TopicRouteData(Bean, kw_only=True):
    """A topic's route.

    :ivar order_topic_conf: ``broker:queues;...`` for ordered topics.
    :ivar filter_server_table: broker address to filter servers; written for old clients.
    """

    broker_datas: list[BrokerData] = fresh(list)
    filter_server_table: dict[str, list[str]] = fresh(dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = fresh(list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class BrokerMemberGroup(Bean, kw_only=True):
    """The members of one broker name, as brokers ask for them."""

    broker_addrs: dict[int, str] = fresh(dict)
    broker_name: str | None = None
    cluster: str | None = None
