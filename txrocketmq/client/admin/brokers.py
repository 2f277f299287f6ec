"""Brokers: who they are, their figures and settings, cleaning, replication, cold reads, timers, and containers of brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from txrocketmq.client.admin.core import AdminCore, properties_body, settings_of
from txrocketmq.client.admin.results import ClusterMember
from txrocketmq.codec.bodies.admin import (
    BrokerStatsData,
    CheckRocksdbCqWriteResult,
    HARuntimeInfo,
    TimerMetricsSerializeWrapper,
)
from txrocketmq.codec.bodies.controller import EpochEntryCache
from txrocketmq.codec.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.tables import KVTable
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    AddBrokerRequestHeader,
    CheckRocksdbCqWriteProgressRequestHeader,
    ExportRocksDBConfigToJsonRequestHeader,
    Header,
    RemoveBrokerRequestHeader,
    ResetMasterFlushOffsetHeader,
    ViewBrokerStatsDataRequestHeader,
)
from txrocketmq.model.codes import RequestCode

READ_AHEAD_MODE = "READ_AHEAD_MODE"
TIMER_ENGINE = "E_T"
CONFIG_TYPES_SEPARATOR = ";"


class BrokerAdmin:
    """One broker, or the brokers of a cluster. Answers of several are by address."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def _tell(
        self,
        what: str,
        code: RequestCode,
        broker: str | None,
        cluster: str | None,
        header: Header | None = None,
        body: bytes = b"",
        *,
        slaves: bool = False,
        ext_fields: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, RemotingCommand]:
        """The same request for every target."""

        async def call(address: str) -> RemotingCommand:
            return await self._core.ask(
                address, code, header, body, ext_fields=ext_fields, timeout_ms=timeout_ms
            )

        targets = await self._core.targets(broker, cluster, slaves=slaves)
        return await self._core.spread(what, targets, call)

    # ----------------------------------------------------------------- who is there

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters that the name servers know."""
        return await self._core.cluster_info()

    async def members(self, cluster: str | None = None) -> list[ClusterMember]:
        """All brokers with their run-time figures (``clusterList``), by cluster, name and id; those that do not answer have none."""
        info = await self._core.cluster_info()
        places = [
            (name, broker, number, address)
            for name in sorted(info.cluster_addr_table)
            if cluster in (None, name)
            for broker in sorted(info.cluster_addr_table[name])
            if broker in info.broker_addr_table
            for number, address in sorted(info.broker_addr_table[broker].broker_addrs.items())
        ]
        found, _ = await self._core.try_each((place[3] for place in places), self.runtime_info)
        return [
            ClusterMember(name, broker, number, address, found.get(address, {}))
            for name, broker, number, address in places
        ]

    # ----------------------------------------------------------------- figures

    async def runtime_info(self, broker: str) -> dict[str, str]:
        """A broker's run-time figures, text by name (``brokerStatus``)."""
        return (await self._core.read(KVTable, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def runtime_infos(self, cluster: str) -> dict[str, dict[str, str]]:
        """The figures of all members of a cluster (``brokerStatus -c``)."""
        targets = await self._core.targets(None, cluster, slaves=True)
        return await self._core.spread("run-time figures", targets, self.runtime_info)

    async def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """One figure over the last minute, hour and day.

        :param name: official name, such as ``TOPIC_PUT_NUMS`` or ``GROUP_GET_NUMS``.
        :param key: topic, or ``topic@group``.
        :raises BrokerError: the broker has no such figure.
        """
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        return await self._core.read(BrokerStatsData, broker, code, header)

    async def consumer_offsets(self, broker: str) -> ConsumerOffsetSerializeWrapper:
        """The whole table of groups' offsets, as slaves copy it."""
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        return await self._core.read(ConsumerOffsetSerializeWrapper, broker, code)

    async def delay_offsets(self, broker: str) -> DelayOffsetSerializeWrapper:
        """How far the delivery of each delay level is, as slaves copy it."""
        code = RequestCode.GET_ALL_DELAY_OFFSET
        return await self._core.read(DelayOffsetSerializeWrapper, broker, code)

    async def timer_metrics(self, broker: str) -> TimerMetricsSerializeWrapper:
        """Pending timed messages by topic (5.x brokers)."""
        code = RequestCode.GET_TIMER_METRICS
        return await self._core.read(TimerMetricsSerializeWrapper, broker, code)

    # ----------------------------------------------------------------- settings

    async def config(self, broker: str) -> dict[str, str]:
        """A broker's settings (``getBrokerConfig``)."""
        return settings_of(await self._core.ask(broker, RequestCode.GET_BROKER_CONFIG))

    async def configs(self, cluster: str) -> dict[str, dict[str, str]]:
        """The settings of all members of a cluster (``getBrokerConfig -c``)."""
        targets = await self._core.targets(None, cluster, slaves=True)
        return await self._core.spread("settings", targets, self.config)

    async def update_config(
        self,
        changes: Mapping[str, object],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        slaves: bool = False,
    ) -> list[str]:
        """Change settings while brokers run (``updateBrokerConfig``); the brokers that did it.

        :param slaves: of a cluster also the slaves.
        """
        body = properties_body(changes)
        code = RequestCode.UPDATE_BROKER_CONFIG
        what = "change of settings"
        return list(await self._tell(what, code, broker, cluster, None, body, slaves=slaves))

    # ----------------------------------------------------------------- cleaning

    async def clean_expired_queues(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Delete files of consume queues whose messages are gone (``cleanExpiredCQ``); the brokers that did it."""
        code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
        return list(await self._tell("cleaning of queues", code, broker, cluster))

    async def delete_expired_commit_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Delete log files that are past their time now (``deleteExpiredCommitLog``); the brokers that did it."""
        code = RequestCode.DELETE_EXPIRED_COMMITLOG
        return list(await self._tell("deletion of log files", code, broker, cluster))

    async def clean_unused_topics(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Delete queues of topics that are no more (``cleanUnusedTopic``); the brokers that did it."""
        code = RequestCode.CLEAN_UNUSED_TOPIC
        return list(await self._tell("cleaning of topics", code, broker, cluster))

    # ----------------------------------------------------------------- replication

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """A broker's replication (``haStatus``, 5.x brokers)."""
        return await self._core.read(HARuntimeInfo, broker, RequestCode.GET_BROKER_HA_STATUS)

    async def ha_statuses(self, cluster: str) -> dict[str, HARuntimeInfo]:
        """The replication of all masters of a cluster (``haStatus -c``)."""
        targets = await self._core.masters(cluster)
        return await self._core.spread("replication", targets, self.ha_status)

    async def epochs(self, broker: str) -> EpochEntryCache:
        """The terms of mastership that a broker knows (``getBrokerEpoch``, brokers with a controller)."""
        return await self._core.read(EpochEntryCache, broker, RequestCode.GET_BROKER_EPOCH_CACHE)

    async def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Tell a slave how far its master has flushed (``resetMasterFlushOffset``)."""
        header = ResetMasterFlushOffsetHeader(master_flush_offset=offset)
        await self._core.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    # ----------------------------------------------------------------- cold reads

    async def cold_data_info(self, broker: str) -> dict[str, Any]:
        """The flow control of groups that read what is not in memory (``getColdDataFlowCtrInfo``), as the broker words it."""
        answer = await self._core.ask(broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        found = msgspec.json.decode(answer.body or b"{}")
        return found if isinstance(found, dict) else {"": found}

    async def update_cold_data_threshold(
        self, group: str, threshold: int, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """How many bytes a second a group may read cold (``updateColdDataFlowCtrGroupConfig``); the brokers that did it."""
        body = properties_body({group: threshold})
        code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        return list(await self._tell("flow control", code, broker, cluster, None, body))

    async def remove_cold_data_threshold(
        self, group: str, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Let a group read cold as all others do again (``removeColdDataFlowCtrGroupConfig``); the brokers that did it."""
        code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        return list(await self._tell("flow control", code, broker, cluster, None, group.encode()))

    async def set_read_ahead_mode(
        self, mode: int, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """How the log's pages are read ahead (``setCommitLogReadAheadMode``); the brokers that did it.

        :param mode: 0 as usual, 1 at random (the numbers of ``madvise``).
        """
        code = RequestCode.SET_COMMITLOG_READ_MODE
        fields = {READ_AHEAD_MODE: str(mode)}
        return list(await self._tell("read-ahead", code, broker, cluster, ext_fields=fields))

    # ----------------------------------------------------------------- other stores

    async def switch_timer_engine(
        self, engine: str, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Which engine delivers timed messages (``switchTimerEngine``, 5.4); the brokers that did it.

        :param engine: ``R`` for RocksDB, ``F`` for the time wheel's files.
        """
        code = RequestCode.SWITCH_TIMER_ENGINE
        fields = {TIMER_ENGINE: engine}
        return list(await self._tell("timer engine", code, broker, cluster, ext_fields=fields))

    async def check_rocksdb_queues(
        self, broker: str, topic: str = "", check_from_ms: int = 0
    ) -> CheckRocksdbCqWriteResult:
        """Whether queues in RocksDB agree with those in files (``checkRocksdbCqWriteProgress``)."""
        header = CheckRocksdbCqWriteProgressRequestHeader(
            topic=topic, check_store_time=check_from_ms
        )
        code = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        return await self._core.read(CheckRocksdbCqWriteResult, broker, code, header)

    async def export_rocksdb_config(
        self, types: list[str], *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Write tables kept in RocksDB to the broker's JSON files (``rocksDBConfigToJson``); the brokers that did it.

        :param types: of ``topics``, ``subscriptionGroups``, ``consumerOffsets``.
        """
        header = ExportRocksDBConfigToJsonRequestHeader(
            config_type=CONFIG_TYPES_SEPARATOR.join(types)
        )
        code = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON
        return list(await self._tell("export", code, broker, cluster, header))

    async def export_pop_records(
        self, *, broker: str | None = None, cluster: str | None = None, dry_run: bool = False
    ) -> dict[str, bool]:
        """Write pop records kept in RocksDB back to files (``exportPopRecord``); by broker, whether it was told to.

        :param dry_run: only say which brokers keep them so.
        """
        targets = await self._core.targets(broker, cluster)

        async def call(address: str) -> bool:
            config = await self.config(address)
            if config.get("popConsumerKVServiceEnable") != "true":
                return False
            if not dry_run:
                timeout_ms = self._core.timeout_ms * 6
                await self._core.ask(address, RequestCode.POP_ROLLBACK, timeout_ms=timeout_ms)
            return True

        return await self._core.spread("export of pop records", targets, call)

    # ----------------------------------------------------------------- containers

    async def add_to_container(self, container: str, config_path: str) -> None:
        """Start a broker in a container (``addBroker``).

        :param config_path: its configuration file, where the container runs.
        """
        header = AddBrokerRequestHeader(config_path=config_path)
        await self._core.ask(container, RequestCode.ADD_BROKER, header)

    async def remove_from_container(
        self, container: str, cluster: str, broker_name: str, broker_id: int
    ) -> None:
        """Stop a broker in a container (``removeBroker``)."""
        header = RemoveBrokerRequestHeader(
            broker_cluster_name=cluster, broker_name=broker_name, broker_id=broker_id
        )
        await self._core.ask(container, RequestCode.REMOVE_BROKER, header)
