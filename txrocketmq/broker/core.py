"""How do the features of a broker come together: who gets what, what runs when, in which order does it start and stop?

Stands for the wiring of ``BrokerController``. It opens no socket and knows no reactor: it is given a store, a remoting client and a
clock, and gives back handlers for the dispatcher and a listener for connections.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredList, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.broker.addresses import host_port, numeric_host
from txrocketmq.broker.admin.connections import ConnectionAdmin
from txrocketmq.broker.admin.groups import GroupAdmin
from txrocketmq.broker.admin.positions import PositionAdmin
from txrocketmq.broker.admin.settings import SettingsAdmin
from txrocketmq.broker.admin.stats import StatsAdmin
from txrocketmq.broker.admin.topics import TopicAdmin
from txrocketmq.broker.admin.upkeep import UpkeepAdmin
from txrocketmq.broker.client_links import ClientLinks
from txrocketmq.broker.clients import ChangeNotices, Consumers, Producers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.delay.service import DelayService
from txrocketmq.broker.escape.bridge import EscapeBridge
from txrocketmq.broker.features import make_features
from txrocketmq.broker.figures import DAY, HOUR, MINUTE
from txrocketmq.broker.filter.consumer_filters import ConsumerFilters
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.heartbeat.processor import HeartbeatProcessor
from txrocketmq.broker.intake import Intake
from txrocketmq.broker.lock_processor import LockProcessor
from txrocketmq.broker.locks import QueueLocks
from txrocketmq.broker.not_served import NOT_SERVED
from txrocketmq.broker.offset.processor import OffsetProcessor
from txrocketmq.broker.operations import OPERATIONS
from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.progress import Progress
from txrocketmq.broker.pull.broadcast import PERIOD_S as BROADCAST_SCAN_S
from txrocketmq.broker.pull.processor import PullProcessor
from txrocketmq.broker.query.processor import QueryProcessor
from txrocketmq.broker.queue_stats import measure_by_queue
from txrocketmq.broker.registration import Registration
from txrocketmq.broker.replication.controlled import Controlled
from txrocketmq.broker.replication.feature import Replication
from txrocketmq.broker.retry.processor import RetryProcessor
from txrocketmq.broker.retry.rules import RetryRules
from txrocketmq.broker.runtime_info import runtime_info
from txrocketmq.broker.send.processor import SendProcessor
from txrocketmq.broker.send.special import SpecialSends
from txrocketmq.broker.static_topics.table import StaticTopics
from txrocketmq.broker.stats import BrokerStats, light_as_one
from txrocketmq.broker.sweep import Sweep
from txrocketmq.broker.throughput import Throughput
from txrocketmq.broker.to_clients import ClientCalls, notify_ids_changed
from txrocketmq.broker.topics import Topics
from txrocketmq.broker.transaction.service import TransactionService
from txrocketmq.config.reload import Change, RunTimeConfiguration
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ConfigError
from txrocketmq.ha.follower import Dial
from txrocketmq.interfaces import (
    IConfigFiles,
    IDisk,
    IMessageStore,
    IRemotingClient,
    IStoreUpkeep,
)
from txrocketmq.model.message import Host
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.config_changes import KeepChange
from txrocketmq.remoting.dispatch import Lane

T = TypeVar("T")

MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
CLIENT_SCAN_S = 10.0
NOTICE_FLUSH_S = 15.0

#: Never changed at run time, whatever `configBlackList` says.
FROZEN_KEYS = ("brokerConfigPath", "rocketmqHome", "configBlackList")


class BrokerCore:
    """One broker without its sockets.

    :param listen_port: the port that clients are told.
    :param store_host: the advertised address, numeric; needed when ``brokerIP1`` is a host name.
    :param configuration: all that may be shown and changed of the configuration; by default the two sections given.
    :param keep_change: writes changed keys where the next start finds them.
    :param dial: connects to the master of a slave.
    :param disk: for what a controller gives; needed with `enableControllerMode`.
    :param one_slave_by_default: `inSyncReplicas` is not set: a synchronous master waits for one slave.
    :raises ConfigError: the role is unknown or not served, or the address is a name without a ``store_host``.
    :ivar has_special_services: delays, timed messages, transactions and POP are worked on here: this broker leads its group, or acts for who did.
    """

    _log = Logger()
    operations = OPERATIONS
    not_served = NOT_SERVED

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        upkeep: IStoreUpkeep,
        remoting_client: IRemotingClient,
        clock: IReactorTime,
        config_files: IConfigFiles,
        *,
        listen_port: int,
        store_host: Host | None = None,
        configuration: RunTimeConfiguration | None = None,
        keep_change: KeepChange | None = None,
        dial: Dial | None = None,
        disk: IDisk | None = None,
        one_slave_by_default: bool = False,
    ) -> None:
        _take_role(config, store_config)
        self.config = config
        self.store_config = store_config
        self.store = store
        self.upkeep = upkeep
        self.clock, self.remoting_client = clock, remoting_client
        self.address = host_port(config.broker_ip1, listen_port)
        self.store_host = store_host or numeric_host(config.broker_ip1, listen_port)
        self._is_loaded = False
        self.has_special_services = False
        self._is_online = False
        self._sweeps: list[Sweep] = []
        self._midnight: IDelayedCall | None = None
        self._leaving: Deferred[None] | None = None
        self.started_ms = self._now_ms()

        self.topics = Topics(config, store_config, config_files, self._now_ms)
        light = store_config.enable_lmq
        self.groups = SubscriptionGroups(config, config_files, self._now_ms, light=light)
        self.offsets = ConsumerOffsets(config, config_files, self._now_ms, light=light)
        self.locks = QueueLocks(clock)
        self._notices = ChangeNotices(
            notify_ids_changed,
            lambda: config.real_time_notify_consumer_change,
            lambda: config.notify_consumer_ids_changed_enable,
        )
        self.filters = ConsumerFilters(config, config_files, self._now_ms)
        self.consumers = Consumers(clock, self._notices, self.filters)
        self.producers = Producers(clock)
        self.stats = BrokerStats(self._now_ms, config.broker_cluster_name, self.topics.is_system)
        measure_by_queue(self.stats.by_queue, config, store_config, store, self.upkeep)
        self.throughput = Throughput()
        self._make_kinds_of_messages(config_files)
        self.progress = Progress(store, self.topics, self.consumers, self.offsets)
        self._make_registration(listen_port)
        self._make_client_handlers()
        self._make_admin_handlers(
            configuration
            or RunTimeConfiguration(
                (config, store_config),
                self._now_ms,
                frozen=FROZEN_KEYS,
                black_list=lambda: config.config_black_list,
            ),
            keep_change,
        )
        self.replication = _make_replication(self, dial or _no_links, disk, one_slave_by_default)
        self.features = (self.replication, *make_features(self, config_files))
        for feature in self.features:
            self._handlers |= feature.handlers()
        self.connection_listener = ClientLinks(self)
        self.pull.held.listen_to(store)

    def _make_kinds_of_messages(self, files: IConfigFiles) -> None:
        """What messages that are more than stored and pulled need: delays, retries, transactions."""
        config, store_config, store = self.config, self.store_config, self.store
        self.static_topics = StaticTopics(config.broker_name, files, self._now_ms)
        store.use_topic_attributes(self.topics.attributes_of)
        store.use_filter_bits(self.filters.bit_map)
        store_config.bit_map_length_consume_queue_ext = self.filters.bloom.bits
        if store_config.enable_lmq and not config.enable_lmq_stats:
            self.stats.name_for = light_as_one
        others = OtherBrokers(config, self.remoting_client, self._now_ms)
        self.escape = EscapeBridge(config, store_config, store, others, self._now_ms)
        self.delays = DelayService(
            config,
            store_config,
            store,
            self.escape,
            self.upkeep,
            self.clock,
            files,
            self._now_ms,
            self.stats,
        )
        self.intake = Intake(store, self.delays.levels)
        self.retry_rules = RetryRules(self.topics, self.groups, self.locks)
        self.transactions = TransactionService(
            config,
            store_config,
            store,
            self.escape,
            self.topics,
            self.producers,
            self.offsets,
            self.intake,
            self.store_host,
            self.clock,
            files,
            self._now_ms,
            self.stats,
        )

    def _make_registration(self, listen_port: int) -> None:
        ha_port = self.store_config.ha_listen_port or listen_port + 1
        self.registration = Registration(
            self.config,
            self.topics,
            self.remoting_client,
            self.clock,
            self.address,
            host_port(self.config.broker_ip2, ha_port),
            self.static_topics,
        )
        self.topics.on_change = self.registration.topics_changed

    def _make_client_handlers(self) -> None:
        config, store, topics, groups = self.config, self.store, self.topics, self.groups
        self.send = SendProcessor(
            config,
            self.store_config,
            store,
            topics,
            SpecialSends(
                config, store, self.intake, self.retry_rules, self.transactions.open, self.stats
            ),
            self.store_host,
            self._now_ms,
            self.stats,
            self.throughput,
        )
        self.pull = PullProcessor(
            config,
            self.store_config,
            self.clock,
            store,
            topics,
            groups,
            self.consumers,
            self.filters,
            self.offsets,
            self.stats,
            self.throughput,
        )
        heartbeat = HeartbeatProcessor(
            config, topics, groups, self.consumers, self.producers, self._now_ms
        )
        heartbeat.register_took = self.stats.by_queue.registered
        self.offset = OffsetProcessor(config, store, topics, groups, self.offsets)
        self._handlers: dict[str, object] = {
            "send": self.send,
            "retry": RetryProcessor(
                config,
                store,
                self.intake,
                self.retry_rules,
                self.stats,
                self.consumers.may_be_doubled,
            ),
            "delay": self.delays,
            "transaction": self.transactions.processor,
            "pull": self.pull,
            "query": QueryProcessor(self.store_config, store),
            "offset": self.offset,
            "heartbeat": heartbeat,
            "lock": LockProcessor(self.locks),
        }

    def _make_admin_handlers(
        self, configuration: RunTimeConfiguration, keep_change: KeepChange | None
    ) -> None:
        config, store, topics, groups = self.config, self.store, self.topics, self.groups
        clients = ClientCalls(self.consumers)
        self._handlers |= {
            "topics": TopicAdmin(
                config, store, topics, self.static_topics, self.offsets, self._topic_deleted
            ),
            "groups": GroupAdmin(config, groups, self.offsets, self._group_deleted),
            "connections": ConnectionAdmin(
                config,
                self.address,
                store,
                topics,
                groups,
                self.offsets,
                self.consumers,
                self.producers,
                clients,
            ),
            "stats": StatsAdmin(
                config.broker_name,
                self.address,
                store,
                topics,
                groups,
                self.progress,
                self.stats,
                self._now_ms,
            ),
            "positions": PositionAdmin(
                config,
                self.store_config,
                store,
                topics,
                groups,
                self.offsets,
                self.progress,
                clients,
                self.pull.held.wake_group,
            ),
            "settings": SettingsAdmin(configuration, keep_change, self._configuration_changed),
            "upkeep": UpkeepAdmin(
                store, self.upkeep, self.consumers, self.filters, lambda: runtime_info(self)
            ),
        }

    def handlers(self) -> dict[str, object]:
        """The objects whose methods the operations table names."""
        return dict(self._handlers)

    def lane_limits(self) -> dict[Lane, int]:
        """How many requests of each kind may wait for a deferred answer."""
        config = self.config
        limits = {
            Lane.SEND: config.send_thread_pool_queue_capacity,
            Lane.PULL: config.pull_thread_pool_queue_capacity,
            Lane.QUERY: config.query_thread_pool_queue_capacity,
            Lane.HEARTBEAT: config.heartbeat_thread_pool_queue_capacity,
            Lane.CLIENT: config.client_manager_thread_pool_queue_capacity,
            Lane.OFFSET: config.consumer_manager_thread_pool_queue_capacity,
            Lane.TRANSACTION: config.end_transaction_pool_queue_capacity,
            Lane.ADMIN: config.admin_broker_thread_pool_queue_capacity,
        }
        for feature in self.features:
            limits |= feature.lane_limits()
        return limits

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
        if not self.replication.is_slave:
            self.offsets.stay_within(self._end_of)
        self.filters.load()
        self.delays.load()
        self.transactions.load()
        for feature in self.features:
            feature.load()

    def start(self) -> None:
        """Begin timed work and register with the name servers; the store is loaded and the port listens."""
        self.load()
        self._every(CLIENT_SCAN_S, self._expire_clients)
        self._every(max(0.1, self.config.flush_consumer_offset_interval / 1000), self._save_changes)
        self._every(
            max(0.1, self.store_config.flush_delay_offset_interval / 1000),
            self.delays.offsets.save_if_changed,
        )
        self._every(
            max(0.1, self.config.transaction_metric_flush_interval / 1000),
            self.transactions.open.save_if_changed,
        )
        for feature in self.features:
            feature.start()
        self._every(NOTICE_FLUSH_S, self._notices.flush)
        self._every(1.0, self._sample_throughput)
        self._every(BROADCAST_SCAN_S, self.pull.broadcast.scan)
        for span, sample in (
            (MINUTE, self.stats.sample_for_minute),
            (HOUR, self.stats.sample_for_hour),
            (DAY, self.stats.sample_for_day),
        ):
            self._every(span.period_s, sample)
        self._wait_for_midnight()
        ready = self.replication.prepare_online()
        if ready is None:
            self._go_online()
        else:
            ready.addBoth(lambda ignored: self._go_online()).addErrback(self._not_online)

    def _go_online(self) -> None:
        if self._leaving is not None:
            return
        self._is_online = True
        self.lead_or_follow()
        self.registration.start()

    def _not_online(self, failure: Failure) -> None:
        self._log.failure("going online failed", failure)

    def role_changed(self, epoch: int) -> None:
        """The broker has another role since a controller's term: what depends on it follows, and name servers are told."""
        for version in (
            self.topics.data_version,
            self.groups.data_version,
            self.offsets.data_version,
        ):
            version.next(self._now_ms(), epoch)
        if not self.replication.is_slave:
            self.offsets.stay_within(self._end_of)
        if not self._is_online:
            return
        self.lead_or_follow()
        self.registration.register_all(True)

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        """Up to where a queue is stored; None while that is not known."""
        store = self.store
        return None if store.recovering(topic, queue_id) else store.max_offset(topic, queue_id)

    def leave(self) -> Deferred[None]:
        """Unregister from the name servers, so that clients are sent elsewhere; requests are served until `stop`."""
        if self._leaving is None:
            self._leaving = self.registration.stop()
        waiting: Deferred[None] = Deferred()

        def left(outcome: T) -> T:
            waiting.callback(None)
            return outcome

        self._leaving.addBoth(left)
        return waiting

    def stop(self) -> Deferred[None]:
        """Unregister, answer what is held, save the tables. The store is stopped by whoever started it."""
        for sweep in self._sweeps:
            sweep.stop()
        self._sweeps.clear()
        if self._midnight is not None:
            self._midnight.cancel()
            self._midnight = None
        leaving = self.leave()
        self.change_special_services(False)
        for feature in self.features:
            feature.stop()
        self.pull.held.stop()
        return leaving.addCallback(lambda ignored: self._save_all())

    def lead_or_follow(self) -> None:
        """The broker's place in its group may have changed: begin or end what only one of them may do."""
        if not self._is_online or self._leaving is not None:
            return
        self.change_special_services(self.replication.leads)
        for feature in self.features:
            feature.role_changed()

    def change_special_services(self, should_run: bool) -> None:
        """Begin or end what only one broker of a group may do: deliver delays, ask about transactions."""
        if should_run == self.has_special_services:
            return
        self.has_special_services = should_run
        if should_run:
            self.delays.start()
            self.transactions.start()
        else:
            self.delays.stop()
            self.transactions.stop()

    def now_ms(self) -> int:
        """Wall-clock milliseconds."""
        return self._now_ms()

    def _now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def _every(self, period_s: float, work: Callable[[], object]) -> None:
        self._sweeps.append(Sweep(self.clock, period_s, work))

    def _sample_throughput(self) -> None:
        self.throughput.sample(self._now_ms(), self.stats.put_total(True))

    def _wait_for_midnight(self) -> None:
        """Days are those of the machine's time zone, as officially."""
        now = datetime.fromtimestamp(self.clock.seconds())
        tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        delay_s = max(1.0, tomorrow.timestamp() - now.timestamp())
        self._midnight = self.clock.callLater(delay_s, self._day_is_over)

    def _day_is_over(self) -> None:
        self.stats.midnight()
        self._wait_for_midnight()

    def _topic_deleted(self, topic: str) -> None:
        if self.config.auto_delete_unused_stats:
            self.stats.topic_deleted(topic)
        self.transactions.open.topic_deleted(topic)
        self.pull.broadcast.topic_deleted(topic)
        for feature in self.features:
            feature.topic_deleted(topic)

    def _group_deleted(self, group: str) -> None:
        self.stats.group_deleted(group)
        self.pull.broadcast.group_deleted(group)
        for feature in self.features:
            feature.group_deleted(group)

    def _configuration_changed(self, change: Change) -> None:
        """What has to follow a change of the configuration at once."""
        if "brokerPermission" in change.changed:
            # Clients see the broker's permission in the routes of its topics.
            self.topics.data_version.next(self._now_ms())
            self.registration.register_all(True)
        elif "namesrvAddr" in change.changed:
            self.registration.register_all(True)

    def _expire_clients(self) -> None:
        expired_ms = self.config.channel_expired_timeout
        self.consumers.expire(expired_ms)
        self.producers.expire(expired_ms)
        self.locks.expire()

    def _save_changes(self) -> None:
        self.offsets.save_if_changed()
        self.filters.save_if_changed()
        for table in (
            self.topics.file,
            self.groups.file,
            self.offsets.file,
            self.filters.file,
            self.delays.offsets.file,
            self.transactions.open.file,
        ):
            table.retry()
        for feature in self.features:
            feature.save_changes()

    def _save_all(self) -> Deferred[None]:
        saving = [
            self.topics.file.save(),
            self.groups.file.save(),
            self.offsets.save(),
            self.filters.save(),
            self.delays.save(),
            self.transactions.save(),
        ]
        for feature in self.features:
            done = feature.save()
            if done is not None:
                saving.append(done)
        return DeferredList(saving).addCallback(lambda ignored: None)


def _no_links(host: str, port: int, factory: object) -> Deferred[Any]:
    """For a broker without sockets."""
    return fail(ConfigError("this broker makes no connections"))


def _make_replication(
    core: BrokerCore, dial: Dial, disk: IDisk | None, one_slave_by_default: bool
) -> Replication:
    if not core.config.enable_controller_mode:
        return Replication(core, dial, one_slave_by_default=one_slave_by_default)
    if disk is None:
        raise ConfigError("enableControllerMode: this broker has no disk for its identity")
    return Controlled(core, dial, disk, one_slave_by_default=one_slave_by_default)


def _take_role(config: BrokerConfig, store_config: MessageStoreConfig) -> None:
    if config.enable_controller_mode:
        # A slave of nobody, until a controller says what it is.
        if not config.controller_addr:
            raise ConfigError("enableControllerMode needs controllerAddr")
        if config.enable_slave_acting_master:
            raise ConfigError("enableControllerMode and enableSlaveActingMaster exclude each other")
        store_config.broker_role = "SLAVE"
        config.broker_id = max(config.broker_id, MASTER_ID + 1)
        return
    role = store_config.broker_role
    if role in MASTER_ROLES:
        # A master is number 0 of its group whatever the file says.
        config.broker_id = MASTER_ID
    elif role == "SLAVE":
        if config.broker_id <= MASTER_ID:
            raise ConfigError(f"brokerId {config.broker_id}: a SLAVE needs a number above 0")
    else:
        raise ConfigError(
            f"brokerRole {role}: expected one of {', '.join((*MASTER_ROLES, 'SLAVE'))}"
        )
