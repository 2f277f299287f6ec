"""How do a name server and a broker run in a test? The real ones, on a disk in memory, with small files, around any clock.

Blocking work is done at once, so that everything is decided in the turn in which it was asked for.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.broker.core import FROZEN_KEYS, BrokerCore
from txrocketmq.config.reload import RunTimeConfiguration
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig, NamesrvConfig
from txrocketmq.errors import ConfigError
from txrocketmq.ha.follower import Dial
from txrocketmq.interfaces import IDisk, IRemotingClient
from txrocketmq.namesrv.server import NameServer
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

ROOT = "/store"

#: Sizes that are made in no time. A log file takes one message of the greatest size that is allowed.
SMALL_FILES: dict[str, Any] = {
    "store_path_root_dir": ROOT,
    "store_path_commit_log": f"{ROOT}/commitlog",
    "mapped_file_size_commit_log": 5 * 1024 * 1024,
    "mapped_file_size_consume_queue": 20 * 1000,
    "mapped_file_size_timer_log": 52 * 1000 + 16,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def now(deferred: Deferred[Any]) -> Any:
    """The result of a Deferred that has one already; its error is raised."""
    outcome: list[Any] = []
    deferred.addCallbacks(outcome.append, lambda failure: failure.raiseException())
    assert outcome, "not finished"
    return outcome[0]


class MemoryNameServer:
    """A name server on a disk in memory, started.

    :param settings: attributes of `config.namesrv_keys.NamesrvConfig`.
    :ivar factory: of its connections.
    """

    def __init__(
        self, clock: IReactorTime, disk: MemoryDisk | None = None, **settings: Any
    ) -> None:
        self.disk = disk or MemoryDisk()
        files = ConfigFiles(self.disk, ImmediatePool(), "/namesrv")
        self.server = NameServer(NamesrvConfig(**settings), clock, files)
        self.server.start()
        self.dispatcher: Dispatcher = self.server.dispatcher
        self.clock = clock

    def factory(self, dispatcher: Dispatcher | None = None) -> RemotingServerFactory:
        """Makes its connections."""
        return RemotingServerFactory(
            dispatcher or self.dispatcher, self.clock, self.server, RemotingLimits()
        )

    def stop(self) -> None:
        """An orderly stop."""
        self.server.stop()


class MemoryBroker:
    """A broker on a disk in memory. It serves once `start` was called and its factories listen.

    :param client: asks name servers and other brokers.
    :param port: the one that clients are told.
    :param dial: connects to the master of a slave.
    :param settings: attributes of `config.schema.BrokerConfig` or `config.schema.MessageStoreConfig`.
    :raises ConfigError: there is no such setting.
    :ivar core: the broker's tables and services.
    :ivar store: its messages.
    """

    def __init__(
        self,
        clock: IReactorTime,
        client: IRemotingClient,
        disk: IDisk | None = None,
        *,
        host: str,
        port: int = 10911,
        dial: Dial | None = None,
        **settings: Any,
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = clock
        self.client = client
        self.config = BrokerConfig(broker_ip1=host, broker_ip2=host, namesrv_addr="")
        self.store_config = MessageStoreConfig(**SMALL_FILES)
        for name, value in settings.items():
            owner = self.config if hasattr(self.config, name) else self.store_config
            if not hasattr(owner, name):
                raise ConfigError(
                    f"a broker has no setting {name!r}; they are in docs/configuration.md"
                )
            setattr(owner, name, value)
        pool = ImmediatePool()
        self.store = MessageStore(
            self.store_config,
            self.disk,
            clock,
            pool=pool,
            flush_pool=pool,
            read_pool=pool,
            window_bytes=64 * 1024,
            is_controlled=self.config.enable_controller_mode,
        )
        self.core = BrokerCore(
            self.config,
            self.store_config,
            self.store,
            StoreUpkeep(self.store, self.store_config, self.disk, pool, clock),
            client,
            clock,
            ConfigFiles(self.disk, pool, f"{ROOT}/config"),
            listen_port=port,
            configuration=RunTimeConfiguration(
                (self.config, self.store_config),
                lambda: int(clock.seconds() * 1000),
                frozen=FROZEN_KEYS,
                black_list=lambda: self.config.config_black_list,
            ),
            keep_change=lambda changes: succeed(None),
            dial=dial,
            disk=self.disk,
            one_slave_by_default=True,
        )
        self.dispatcher = Dispatcher(
            self.core.operations,
            self.core.handlers(),
            clock,
            not_served=self.core.not_served,
            lane_limits=self.core.lane_limits(),
        )

    def factory(self, dispatcher: Dispatcher | None = None) -> RemotingServerFactory:
        """Makes connections for one of its ports."""
        return RemotingServerFactory(
            dispatcher or self.dispatcher, self.clock, self.core.connection_listener
        )

    def start(self) -> None:
        """Recover the store, read the tables, register."""
        now(self.store.load())
        self.store.start()
        self.core.start()

    async def stop(self) -> None:
        """An orderly stop."""
        await self.core.stop()
        await self.store.stop()
