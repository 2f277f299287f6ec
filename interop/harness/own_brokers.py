"""How does a cell get brokers with settings of their own, of its column's make?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .clients import Admin
from .cluster import Cluster, close_all, make_cluster
from .columns import Column
from .jvm import JvmSlots
from .puppet import Puppet, PuppetPool


class OwnBrokers:
    """Makes brokers with settings of their own, of the column's provider; nothing else runs beside one."""

    def __init__(
        self, column: Column, clusters: dict[str, Cluster], puppets: PuppetPool, slots: JvmSlots
    ) -> None:
        self.column = column
        self._clusters, self._puppets, self._slots = clusters, puppets, slots

    @contextmanager
    def broker(self, settings: Mapping[str, str]) -> Iterator[tuple[Cluster, Puppet, Admin]]:
        """One that runs and is registered, a puppet, and an operator."""
        close_all(self._clusters)
        puppet = self._puppets.get(self.column.line, self.column.serialize)
        made = make_cluster(self.column.servers, self._slots, broker_settings=settings)
        with puppet.in_use(), made as cluster:
            admin = Admin(puppet, cluster.namesrv)
            try:
                admin.wait_broker(cluster.broker_name)
                yield cluster, puppet, admin
            except BaseException as failure:
                failure.add_note(cluster.logs())
                raise
            admin.forget()

    def another_puppet(self) -> Puppet:
        """A further Java process of the column's kind; whoever asks for it closes it."""
        return self._puppets.one_of_its_own(self.column.line, self.column.serialize)
