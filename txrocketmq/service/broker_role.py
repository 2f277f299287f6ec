"""How does a broker run in a process? Ports, store, pools and remoting client around `BrokerCore`.

Start: store (lock, recover), tables, ports, registration. Stop: the reverse, so that clients are sent elsewhere first, whoever
waits for a flush is answered, and the store closes in order.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IListeningPort, IProtocolFactory

from txrocketmq.broker.addresses import host_port
from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.broker.core import FROZEN_KEYS, BrokerCore
from txrocketmq.broker.name_server_source import NameServerSource, address_server_url
from txrocketmq.config.load import Settings, kept_changes_path, split_addresses
from txrocketmq.config.reload import RunTimeConfiguration
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)
from txrocketmq.config.write_back import write_back
from txrocketmq.errors import ConfigError, StoreError
from txrocketmq.remoting.address_server import AddressServer
from txrocketmq.remoting.budget import Room
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.remoting.host_names import resolver_of
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.remoting.together import Together
from txrocketmq.remoting.transport import client_endpoint
from txrocketmq.service.addresses import advertised_host
from txrocketmq.service.kernel_syncs import KernelSyncs
from txrocketmq.service.pools import BlockingPool
from txrocketmq.service.ports import ClaimedPort, claim_port
from txrocketmq.service.startup import StartupError
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.logdirs import SEPARATOR, split_paths
from txrocketmq.store.message_store import MessageStore, log_directories
from txrocketmq.store.upkeep import StoreUpkeep

_READ_THREADS = 4
_DIAL_TIMEOUT_S = 3.0


class BrokerRole:
    """A broker as a role of a process.

    :param main: the port that clients are told, claimed already.
    :param fast: the second one.
    :param replicas: the one for slaves.
    :param room: how many connections all roles of the process may have.
    :raises ConfigError: the role is not served, or the address cannot be resolved.
    """

    def __init__(
        self,
        settings: Settings,
        reactor: Any,
        main: ClaimedPort,
        fast: ClaimedPort,
        replicas: ClaimedPort,
        room: Room,
    ) -> None:
        self._config = settings.section(BrokerConfig)
        self._store_config = settings.section(MessageStoreConfig)
        self._network = settings.section(NettyServerConfig)
        self._reactor = reactor
        self._claimed = (main, fast, replicas)
        self._listening: list[IListeningPort] = []
        self._is_serving = False
        self._disk = RealDisk()
        self._pools = {
            "store-files": BlockingPool(reactor, "store-files", 1),
            "store-flush": BlockingPool(reactor, "store-flush", 1),
            "store-read": BlockingPool(reactor, "store-read", _READ_THREADS),
            "store-queues": BlockingPool(reactor, "store-queues", 1),
            "broker-files": BlockingPool(reactor, "broker-files", 1),
            "store-compaction": BlockingPool(
                reactor, "store-compaction", max(1, self._store_config.compaction_thread_num)
            ),
        }
        self._kernel_syncs = KernelSyncs(reactor)
        self._store = MessageStore(
            self._store_config,
            self._disk,
            reactor,
            pool=self._pools["store-files"],
            flush_pool=self._pools["store-flush"],
            read_pool=self._pools["store-read"],
            queue_pool=self._pools["store-queues"],
            compaction_pool=self._pools["store-compaction"],
            kernel_syncs=self._kernel_syncs,
            is_controlled=settings.section(BrokerConfig).enable_controller_mode,
        )
        self._client = RemotingClient(
            reactor, limits=RemotingLimits.for_client(settings.section(NettyClientConfig))
        )
        self._core = self._make_core(settings)
        self._name_servers = self._make_source(settings.unknown)
        dispatcher = Dispatcher(
            self._core.operations,
            self._core.handlers(),
            reactor,
            not_served=self._core.not_served,
            lane_limits=self._core.lane_limits(),
        )
        self._dispatchers = (dispatcher, dispatcher.for_vip())
        limits = RemotingLimits.for_server(self._network)
        together = Together()
        self._store.flusher.answer_together = together
        self._core.replication.ha.answer_together = together
        self._factories = [
            RemotingServerFactory(
                served, reactor, self._core.connection_listener, limits, room, together
            )
            for served in self._dispatchers
        ]

    def _make_core(self, settings: Settings) -> BrokerCore:
        def now_ms() -> int:
            return int(self._reactor.seconds() * 1000)

        self._upkeep = StoreUpkeep(
            self._store,
            self._store_config,
            self._disk,
            self._pools["store-queues"],
            self._reactor,
        )
        with settings.blaming("brokerIP1"):
            host = numeric_address(self._config.broker_ip1)
        return BrokerCore(
            self._config,
            self._store_config,
            self._store,
            self._upkeep,
            self._client,
            self._reactor,
            ConfigFiles(
                self._disk,
                self._pools["broker-files"],
                os.path.join(self._store_config.store_path_root_dir, "config"),
            ),
            listen_port=self._config.listen_port,
            store_host=(host, self._config.listen_port),
            dial=self._dial,
            disk=self._disk,
            one_slave_by_default=not settings.is_explicit("inSyncReplicas"),
            configuration=RunTimeConfiguration(
                [part for part in settings.sections if not isinstance(part, NamesrvConfig)],
                now_ms,
                frozen=FROZEN_KEYS,
                black_list=lambda: self._config.config_black_list,
                unknown=settings.unknown,
            ),
            keep_change=self._keep_change,
        )

    def _make_source(self, loose: Mapping[str, str]) -> NameServerSource:
        """Who tells the name servers."""
        config = self._config
        fetch = None
        if config.fetch_namesrv_addr_by_address_server:
            url = address_server_url(
                loose.get("rmqAddressServerDomain", ""), loose.get("rmqAddressServerSubGroup", "")
            )
            fetch = AddressServer(self._reactor, url, "", client_endpoint).fetch
        return NameServerSource(
            config,
            self._reactor,
            fetch=fetch,
            resolve=resolver_of(self._reactor)
            if config.fetch_name_srv_addr_by_dns_lookup
            else None,
            changed=lambda: self._core.registration.register_all(True),
        )

    def _dial(self, host: str, port: int, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect to a master's replication port."""
        endpoint = HostnameEndpoint(self._reactor, host, port, timeout=_DIAL_TIMEOUT_S)
        return cast("Deferred[Any]", endpoint.connect(factory))

    def _keep_change(self, changes: Mapping[str, str]) -> Deferred[None]:
        path = self._config.broker_config_path or kept_changes_path(
            self._store_config.store_path_root_dir
        )
        pool = self._pools["broker-files"]
        return pool.submit(write_back, self._disk, os.path.abspath(path), dict(changes))

    async def start(self) -> str:
        """Recover the store, listen, register."""
        # A stop does not wait until all is recovered.
        trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._store.stop)
        self._kernel_syncs.open()
        await self._store.load()
        self._reactor.removeSystemEventTrigger(trigger)
        self._core.load()
        self._store.start()
        self._upkeep.start()
        factories: list[Any] = [*self._factories, self._core.replication.ha.factory]
        for claimed, factory in zip(self._claimed, factories, strict=True):
            self._listening.append(
                claimed.open(self._reactor, factory, self._network.server_socket_backlog)
            )
        self._is_serving = True
        self._core.start()
        self._name_servers.start()
        return self._description()

    def _description(self) -> str:
        config, (main, fast, replicas) = self._config, self._claimed
        servers = ";".join(split_addresses(config.namesrv_addr)) or "no name server"
        return (
            f"broker {config.broker_name} ({config.broker_cluster_name}, id {config.broker_id}, "
            f"{self._store_config.broker_role}) listens on {main.text} and {fast.port}, "
            f"is advertised as {host_port(config.broker_ip1, main.port)} to {servers}, slaves come to {replicas.port}, "
            f"store {self._store_config.store_path_root_dir}"
        )

    async def stop(self) -> None:
        """Unregister, flush, close."""
        if self._is_serving:
            self._is_serving = False
            self._name_servers.stop()
            await self._send_clients_away()
            await self._core.replication.drain()
            await self._core.stop()
        for claimed in self._claimed:
            claimed.release()
        for port in self._listening:
            await maybeDeferred(port.stopListening)
        await self._upkeep.stop()
        await self._store.stop()
        for factory in self._factories:
            await factory.close_all("the broker stops")
        await self._client.stop()
        for pool in self._pools.values():
            await pool.stop()
        self._kernel_syncs.close()
        self._disk.close()

    async def _send_clients_away(self) -> None:
        """Leave the routes; with `enableShutdownGracefully` tell askers to go elsewhere, and give them time to do so.

        Never without that time: a 5.4.0 client that is sent away reconnects at once, and when the port is closed by then
        its consumer forgets the queue for two minutes.
        """
        await self._core.leave()
        if self._network.enable_shutdown_gracefully:
            for dispatcher in self._dispatchers:
                dispatcher.going_away = True
            waiting: Deferred[None] = Deferred()
            self._reactor.callLater(
                self._network.shutdown_wait_time_seconds, waiting.callback, None
            )
            await waiting


def claim_replica_port(settings: Settings, main: ClaimedPort) -> ClaimedPort:
    """Bind the port for slaves: `haListenPort`, or the one above the main port; any, where the system chose that as well.

    :raises StartupError: it is taken.
    """
    network = settings.section(NettyServerConfig)
    if settings.is_explicit("haListenPort"):
        return claim_port(network.bind_address, settings.section(MessageStoreConfig).ha_listen_port)
    try:
        return claim_port(network.bind_address, main.port + 1)
    except StartupError as error:
        if network.listen_port == 0:
            return claim_port(network.bind_address, 0)
        raise StartupError(f"{error} (the port for slaves, one above listenPort)") from error


def prepare_addresses(settings: Settings, main_port: int, ha_port: int) -> None:
    """Fill in what depends on this machine: absolute store paths, the addresses to advertise, the ports chosen."""
    config = settings.section(BrokerConfig)
    store = settings.section(MessageStoreConfig)
    network = settings.section(NettyServerConfig)
    config.broker_ip1 = advertised_host(config.broker_ip1, network.bind_address)
    config.broker_ip2 = advertised_host(config.broker_ip2 or config.broker_ip1, "")
    config.listen_port = network.listen_port = main_port
    store.ha_listen_port = ha_port
    store.store_path_root_dir = os.path.abspath(store.store_path_root_dir)
    store.store_path_commit_log = _absolute(store.store_path_commit_log)
    store.read_only_commit_log_store_paths = _absolute(store.read_only_commit_log_store_paths)


def _absolute(paths: str | None) -> str | None:
    found = [os.path.abspath(path) for path in split_paths(paths)]
    return SEPARATOR.join(found) if found else paths


def check_store(config: MessageStoreConfig) -> None:
    """See early whether the store's directories can be used: they are made, and their locks are taken and given back.

    :raises StoreError: one cannot; one line.
    """
    disk = RealDisk()
    path = config.store_path_root_dir
    try:
        disk.makedirs(path)
        disk.lock(f"{path}/lock").release()
        for path in log_directories(config, disk).writable:
            disk.makedirs(path)
            disk.lock_directory(path).release()
    except OSError as error:
        # A file in its place "exists" when the directory is to be made.
        code = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno
        reason = os.strerror(code).lower() if code else str(error)
        raise StoreError(f"cannot use the store directory {path}: {reason}") from error
    finally:
        disk.close()


def numeric_address(host: str) -> str:
    """The numeric address of the advertised host: only that fits into stored records.

    :raises ConfigError: the name is not known.
    """
    plain = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(plain, None, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.args[1] if isinstance(error, socket.gaierror) else str(error)
        raise ConfigError(
            f"bad configuration value brokerIP1={host}: a host that can be resolved is needed "
            f"({reason.lower()})"
        ) from error
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if ":" not in address), addresses[0])
