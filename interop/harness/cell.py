"""What does one test in one column hold? Its cluster, its puppet, and names of its own."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack

from .clients import Admin, Producer
from .cluster import Cluster
from .columns import Column
from .puppet import Puppet, PuppetPool

_NUMBERS = itertools.count(1)


class Cell:
    """One test in one column: its cluster, its puppet, and names that no other test uses."""

    def __init__(self, column: Column, cluster: Cluster, puppet: Puppet, pool: PuppetPool) -> None:
        self.column = column
        self.cluster = cluster
        self.puppet = puppet
        self.count = column.message_count
        self.namesrv = cluster.namesrv
        self._pool = pool
        self._stack = ExitStack()
        number = f"{os.getpid()}-{next(_NUMBERS)}"
        self.topic = f"Cell-{number}"
        self.group = f"cell-group-{number}"
        self.seed = f"seed-{number}"
        self.admin = Admin(puppet, cluster.namesrv)

    def another_puppet(self) -> Puppet:
        """A further Java process of the same kind, closed at the end of the test."""
        puppet = self._pool.one_of_its_own(self.column.line, self.column.serialize)
        self._stack.enter_context(puppet.in_use())
        self._stack.callback(puppet.close)
        return puppet

    def configure(self, **settings: str) -> None:
        """Change keys of the running broker as an operator does, until its next start."""
        for key, value in settings.items():
            words = ("-b", self.cluster.broker_address, "-k", key, "-v", value)
            done = self.admin.command("updateBrokerConfig", *words)
            assert "update broker config success" in done["output"], done["output"]

    def make_topics(self, producer: Producer, *topics: str) -> None:
        """The first message of a topic makes it; consumers are told not to count that one."""
        for topic in topics:
            producer.send_text(topic, "makes the topic")
            self.admin.wait_route(topic)

    def make_retry_topic(self, group: str) -> None:
        """Before its consumer starts: one that sees its retry topic come waits twenty seconds until it divides that topic's queues."""
        topic = f"%RETRY%{group}"
        self.admin.create_topic(self.cluster.broker_address, topic, 1)
        self.admin.wait_route(topic)

    def close(self) -> None:
        """End what the test started."""
        self._stack.close()
