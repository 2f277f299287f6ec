"""Of two slaves only the one with the id 1 serves an official consumer that is far behind, whoever made the master."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from interop.harness import checks
from interop.harness.clients import Admin, Producer, PushConsumer
from interop.harness.cluster import Cluster, close_all, make_cluster
from interop.harness.controlled import ask
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet, PuppetPool
from interop.harness.replicas import log_end
from interop.harness.waiting import wait_until
from txrocketmq.codec.bodies import BrokerStatsData, decode_body
from txrocketmq.codec.headers import ViewBrokerStatsDataRequestHeader
from txrocketmq.model.codes import RequestCode

pytestmark = pytest.mark.java

MASTERS = ("ours", "official-5.4.0")
COUNT = 300
#: Whatever is not read yet is more than fits into no memory at all.
SLOW = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
PATIENCE_S = 90


@pytest.fixture
def puppet(puppets: PuppetPool) -> Iterator[Puppet]:
    """Clients of the 5.x line."""
    found = puppets.get("5.4.0", "JSON")
    with found.in_use():
        yield found


def served(broker: Cluster, topic: str, group: str) -> int:
    """How many messages a broker gave to a group within the last minute."""
    header = ViewBrokerStatsDataRequestHeader(
        stats_name="GROUP_GET_NUMS", stats_key=f"{topic}@{group}"
    )
    answer = ask(broker.broker_address, RequestCode.VIEW_BROKER_STATS_DATA, header)
    if answer.code:
        return 0
    return int(decode_body(BrokerStatsData, answer.body).stats_minute.sum)


if os.environ.get("INTEROP_TIER") == "full":

    @pytest.mark.parametrize("make", MASTERS)
    def test_only_the_slave_with_id_1_serves_slow_reads(
        make: str, puppet: Puppet, jvm_slots: JvmSlots, clusters: dict[str, Cluster]
    ) -> None:
        close_all(clusters)
        names = make_cluster("ours", jvm_slots)
        common = {**SLOW, "namesrvAddr": names.namesrv, "timerWheelEnable": "false"}
        master = make_cluster(make, jvm_slots, name_servers=0, broker_settings=common)
        slaves = [
            make_cluster(
                "ours",
                jvm_slots,
                name_servers=0,
                broker_settings={**common, "brokerRole": "SLAVE", "brokerId": str(number)},
            )
            for number in (1, 2)
        ]
        brokers = (master, *slaves)
        for broker in brokers:
            port = int(broker.broker_address.split(":")[1])
            broker.change_settings({"haListenPort": str(port + 1)})
        topic, group = f"SlowReads-{os.getpid()}-{make}".replace(".", ""), "SlowReaders"
        try:
            names.start_name_server(0)
            for broker in brokers:
                broker.start_broker()
            admin = Admin(puppet, names.namesrv)
            admin.wait_broker(master.broker_name)
            admin.create_topic(master.broker_address, topic, 4)
            admin.wait_route(topic)
            with Producer(puppet, names.namesrv, topic + "-p") as producer:
                checks.all_was_acknowledged(producer.send(topic, topic, COUNT, size=500), COUNT)
            wait_until(
                lambda: len({log_end(broker.store) for broker in brokers}) == 1,
                "both slaves have all",
                PATIENCE_S,
            )
            with PushConsumer(puppet, names.namesrv, group, topic) as consumer:
                consumer.wait_for_all(range(COUNT))
                wait_until(
                    lambda: served(slaves[0], topic, group) > 0,
                    "the first slave has served some",
                    PATIENCE_S,
                )
            assert served(slaves[1], topic, group) == 0
        except BaseException as failure:
            failure.add_note("".join(broker.logs() for broker in brokers))
            raise
        finally:
            for part in (*slaves, master, names):
                part.close()
