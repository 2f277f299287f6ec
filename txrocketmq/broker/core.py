"""How do the features of a broker come together: who gets what, what runs when, in which order does it start and stop?

Stands for the wiring of ``BrokerController``. It opens no socket and knows no reactor: it is given a store, a remoting client and a
clock, and gives back handlers for the dispatcher and a listener for connections.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.broker.admin.processor import AdminProcessor
from txrocketmq.broker.clients import ChangeNotices, Consumers, Producers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.heartbeat.processor import HeartbeatProcessor
from txrocketmq.broker.lock_processor import LockProcessor
from txrocketmq.broker.locks import QueueLocks
from txrocketmq.broker.offset.processor import OffsetProcessor
from txrocketmq.broker.operations import NOT_SERVED, OPERATIONS
from txrocketmq.broker.pull.processor import PullProcessor
from txrocketmq.broker.registration import Registration
from txrocketmq.broker.runtime_info import runtime_info
from txrocketmq.broker.send.processor import SendProcessor
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.headers import NotifyConsumerIdsChangedRequestHeader
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ConfigError
from txrocketmq.interfaces import (
    IConfigFiles,
    IConnection,
    IConnectionListener,
    IMessageStore,
    IRemotingClient,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import Host
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.dispatch import Lane

MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
CLIENT_SCAN_S = 10.0
NOTICE_FLUSH_S = 15.0

_NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED.value


class BrokerCore:
    """One broker without its sockets.

    :param listen_port: the port that clients are told.
    :param store_host: the advertised address, numeric; needed when ``brokerIP1`` is a host name.
    :raises ConfigError: the role is unknown or not served, or the address is a name without a ``store_host``.
    """

    operations = OPERATIONS
    not_served = NOT_SERVED

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        remoting_client: IRemotingClient,
        clock: IReactorTime,
        config_files: IConfigFiles,
        *,
        listen_port: int,
        store_host: Host | None = None,
    ) -> None:
        _take_role(config, store_config)
        self.config = config
        self._store = store
        self._clock = clock
        self.address = host_port(config.broker_ip1, listen_port)
        self._is_loaded = False
        self._sweeps: list[_Sweep] = []
        self.started_ms = self._now_ms()

        self.topics = Topics(config, store_config, config_files, self._now_ms)
        self.groups = SubscriptionGroups(config, config_files, self._now_ms)
        self.offsets = ConsumerOffsets(config, config_files, self._now_ms)
        self.locks = QueueLocks(clock)
        self._notices = ChangeNotices(
            _notify,
            lambda: config.real_time_notify_consumer_change,
            lambda: config.notify_consumer_ids_changed_enable,
        )
        self.consumers = Consumers(clock, self._notices)
        self.producers = Producers(clock)
        self.send = SendProcessor(
            config,
            store_config,
            store,
            self.topics,
            self.groups,
            store_host or numeric_host(config.broker_ip1, listen_port),
            self._now_ms,
        )
        self.pull = PullProcessor(
            config, clock, store, self.topics, self.groups, self.consumers, self.offsets
        )
        self._heartbeat = HeartbeatProcessor(
            config, self.topics, self.groups, self.consumers, self.producers, self._now_ms
        )
        self._offset = OffsetProcessor(store, self.topics, self.groups, self.offsets)
        self._admin = AdminProcessor(
            config, self.topics, self.groups, self.offsets, lambda: runtime_info(self)
        )
        self.registration = Registration(
            config,
            self.topics,
            remoting_client,
            clock,
            self.address,
            host_port(config.broker_ip2, store_config.ha_listen_port or listen_port + 1),
        )
        self.topics.on_change = self.registration.topics_changed
        self.connection_listener = ClientLinks(self)
        store.add_arrival_listener(self.pull.held.message_arrived)

    def handlers(self) -> dict[str, object]:
        """The objects whose methods the operations table names."""
        return {
            "send": self.send,
            "pull": self.pull,
            "offset": self._offset,
            "heartbeat": self._heartbeat,
            "lock": LockProcessor(self.locks),
            "admin": self._admin,
        }

    def lane_limits(self) -> dict[Lane, int]:
        """How many requests of each kind may wait for a deferred answer."""
        config = self.config
        return {
            Lane.SEND: config.send_thread_pool_queue_capacity,
            Lane.PULL: config.pull_thread_pool_queue_capacity,
            Lane.QUERY: config.query_thread_pool_queue_capacity,
            Lane.HEARTBEAT: config.heartbeat_thread_pool_queue_capacity,
            Lane.CLIENT: config.client_manager_thread_pool_queue_capacity,
            Lane.OFFSET: config.consumer_manager_thread_pool_queue_capacity,
            Lane.ADMIN: config.admin_broker_thread_pool_queue_capacity,
        }

    def load(self) -> None:
        """Read the tables of topics, groups and offsets; once, after the store's lock is held.

        :raises StoreError: a file is not what its name says.
        """
        if self._is_loaded:
            return
        self._is_loaded = True
        self.topics.load()
        self.groups.load()
        self.offsets.load()

    def start(self) -> None:
        """Begin timed work and register with the name servers; the store is loaded and the port listens."""
        self.load()
        self._every(CLIENT_SCAN_S, self._expire_clients)
        self._every(max(0.1, self.config.flush_consumer_offset_interval / 1000), self._save_changes)
        self._every(NOTICE_FLUSH_S, self._notices.flush)
        self.registration.start()

    def stop(self) -> Deferred[None]:
        """Unregister, answer what is held, save the tables. The store is stopped by whoever started it."""
        for sweep in self._sweeps:
            sweep.stop()
        self._sweeps.clear()
        leaving = self.registration.stop()
        self.pull.held.stop()
        return leaving.addCallback(lambda ignored: self._save_all())

    def now_ms(self) -> int:
        """Wall-clock milliseconds."""
        return self._now_ms()

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _every(self, period_s: float, work: Callable[[], object]) -> None:
        self._sweeps.append(_Sweep(self._clock, period_s, work))

    def _expire_clients(self) -> None:
        expired_ms = self.config.channel_expired_timeout
        self.consumers.expire(expired_ms)
        self.producers.expire(expired_ms)

    def _save_changes(self) -> None:
        self.offsets.save_if_changed()
        for table in (self.topics.file, self.groups.file, self.offsets.file):
            table.retry()

    def _save_all(self) -> Deferred[None]:
        saving = (self.topics.file.save(), self.groups.file.save(), self.offsets.save())
        return DeferredList(saving).addCallback(lambda ignored: None)


@implementer(IConnectionListener)
class ClientLinks:
    """Lets the tables of clients follow the life of connections (official ``ClientHousekeepingService``)."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def connected(self, connection: IConnection) -> None:
        """A link alone says nothing: clients introduce themselves by heartbeat."""

    def disconnected(self, connection: IConnection, reason: str) -> None:
        """The client is gone from all tables at once, and its held pulls with it."""
        core = self._core
        core.pull.held.drop_connection(connection)
        core.producers.drop_connection(connection)
        core.consumers.drop_connection(connection)

    def idle(self, connection: IConnection) -> None:
        """Nothing was heard for two minutes; `disconnected` follows."""


class _Sweep:
    """Work at every period; a failure is logged and the next period comes all the same."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, period_s: float, work: Callable[[], object]) -> None:
        self._clock = clock
        self._period_s = period_s
        self._work = work
        self._call: IDelayedCall = clock.callLater(period_s, self._run)

    def stop(self) -> None:
        if self._call.active():
            self._call.cancel()

    def _run(self) -> None:
        self._call = self._clock.callLater(self._period_s, self._run)
        try:
            self._work()
        except Exception:
            self._log.failure("timed work failed")


def _notify(connection: IConnection, group: str) -> object:
    return connection.oneway(
        _NOTIFY, NotifyConsumerIdsChangedRequestHeader(consumer_group=group), b""
    )


def _take_role(config: BrokerConfig, store_config: MessageStoreConfig) -> None:
    role = store_config.broker_role
    if role in MASTER_ROLES:
        # A master is number 0 of its group whatever the file says.
        config.broker_id = MASTER_ID
    elif role == "SLAVE":
        raise ConfigError("brokerRole SLAVE: slaves are not served by this release")
    else:
        raise ConfigError(
            f"brokerRole {role}: expected one of {', '.join((*MASTER_ROLES, 'SLAVE'))}"
        )


def host_port(host: str, port: int) -> str:
    """An address as it is advertised; IPv6 hosts in brackets."""
    if ":" in host and not host.startswith("["):
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def numeric_host(host: str, port: int) -> Host:
    """The host part of records and message ids.

    :raises ConfigError: the host is a name; only a numeric address fits into a record.
    """
    try:
        return str(ip_address(host.strip("[]"))), port
    except ValueError:
        raise ConfigError(
            f"brokerIP1 {host} is a name that was not resolved; a record holds a numeric address"
        ) from None
