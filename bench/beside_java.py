"""How do benches of clients come by an official broker and an official client beside it?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from interop.harness.clients import Admin
from interop.harness.cluster import Cluster, OfficialCluster
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet

FLAGS = ("-XX:+UseSerialGC", "-Xmx1g", "-XX:MaxDirectMemorySize=512m")


@contextmanager
def java_beside(topic: str, group: str) -> Iterator[tuple[Cluster, Puppet]]:
    """An official name server and broker with a topic, and a Java process with a producer of a group, called ``load`` there."""
    slots = JvmSlots()
    with OfficialCluster(slots, "5.4.0") as cluster:
        java = Puppet(slots, "5.4.0", flags=FLAGS)
        try:
            admin = Admin(java, cluster.namesrv)
            admin.wait_broker(cluster.broker_name)
            admin.create_topic(cluster.broker_address, topic)
            admin.wait_route(topic)
            java.call("load.open", name="load", group=group, namesrv=cluster.namesrv)
            yield cluster, java
        finally:
            java.close()
