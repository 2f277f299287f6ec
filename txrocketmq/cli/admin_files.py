"""Commands of ``mqadmin`` that read or write files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from txrocketmq.client.admin.admin import Admin
from txrocketmq.codec.bodies.admin import BrokerStatsData
from txrocketmq.codec.bodies.tables import CreateTopicListRequestBody, SubscriptionGroupList
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.record import decode_record
from txrocketmq.errors import MQClientError, RecordError, RocketMQError
from txrocketmq.model.codes import CURRENT_VERSION, version_name
from txrocketmq.model.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from txrocketmq.model.static_topic import TopicRemappingDetailWrapper

FOLDER = "/tmp/rocketmq/export"
"""Where exports go by themselves (official)."""
_PUT_NUMS = "TOPIC_PUT_NUMS"


class FileSteps:
    """Operations whose words or results are in files."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    # ----------------------------------------------------------------- from files

    async def topics(
        self, path: str, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Create or change the topics of a JSON list; the brokers that did it."""
        listed = b'{"topicConfigList":' + _read(path) + b"}"
        found = decode_body(CreateTopicListRequestBody, listed).topic_config_list
        return await self._admin.topics.create_list(found or [], broker=broker, cluster=cluster)

    async def groups(
        self, path: str, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Create or change the groups of a JSON list; the brokers that did it."""
        listed = b'{"groupConfigList":' + _read(path) + b"}"
        found = decode_body(SubscriptionGroupList, listed).group_config_list
        return await self._admin.groups.create_list(found or [], broker=broker, cluster=cluster)

    async def static_topic(
        self,
        topic: str,
        path: str,
        force: bool = False,
        total_queues: int | None = None,
        clusters: list[str] | None = None,
        brokers: list[str] | None = None,
    ) -> TopicRemappingDetailWrapper:
        """Write the plan of a file; it says all, so numbers and brokers that are given beside it do not count.

        :raises MQClientError: it is another topic's.
        """
        data = _read(path)
        planned = decode_body(TopicRemappingDetailWrapper, data).topic
        if planned != topic:
            raise MQClientError(f"{path} is a plan for topic {planned}, not for {topic}")
        return await self._admin.static_topics.apply_file(data, force=force)

    async def compaction_log(self, path: str) -> AsyncIterator[Any]:
        """The messages of a file of a compacted topic's log, up to the first thing that is none."""
        data, at = _read(path), 0
        while at < len(data):
            try:
                message, at = decode_record(data, at, check_crc=False)
            except RecordError:
                return
            yield message

    # ----------------------------------------------------------------- to files

    async def export_metadata(
        self,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        folder: str = FOLDER,
        topics: bool = False,
        groups: bool = False,
        special: bool = False,
    ) -> str:
        """Write the topics and groups that users made, or one of both; the file's path."""
        found = await self._admin.exports.metadata(broker=broker, cluster=cluster, special=special)
        content: dict[str, Any] = {"exportTime": found.export_time_ms}
        if topics or not groups:
            content["topicConfigTable"] = _beans(found.topics)
        if not topics:
            content["subscriptionGroupTable"] = _beans(found.groups)
        name = "topic" if topics else "subscriptionGroup" if groups else "metadata"
        return _write(folder, name, content)

    async def export_configs(self, cluster: str, folder: str = FOLDER) -> str:
        """Write who a cluster is, and its masters' chosen settings; the file's path."""
        found = await self._admin.exports.configs(cluster)
        scale = {
            "namesrvSize": len(found.name_servers),
            "masterBrokerSize": found.master_count,
            "slaveBrokerSize": found.slave_count,
        }
        content = {"brokerConfigs": found.broker_configs, "clusterScale": scale}
        return _write(folder, "configs", content)

    async def export_metrics(self, cluster: str, folder: str = FOLDER) -> str:
        """Write what the masters of a cluster do; the file's path."""
        report, tps, nums = {}, dict.fromkeys(_TOTAL_TPS, 0.0), dict.fromkeys(_DAY_NUMS, 0)
        for member in await self._admin.brokers.members(cluster):
            if member.broker_id == 0:
                quota = await self._quota(member.address, member.runtime)
                config = await self._admin.brokers.config(member.address)
                report[member.broker_name] = {
                    "runtimeEnv": {
                        "cpuNum": config.get("clientCallbackExecutorThreads"),
                        "totalMemKBytes": member.runtime.get("totalMemKBytes"),
                    },
                    "runtimeQuota": quota,
                    "runtimeVersion": await self._versions(member.address),
                }
                for total, name in zip(_TOTAL_TPS, _TPS, strict=True):
                    tps[total] += quota["tps"][name]
                for name in _DAY_NUMS:
                    nums[name] += quota["oneDayNum"][name]
        total_data = {"totalTps": tps, "totalOneDayNum": nums}
        return _write(folder, "metrics", {"evaluateReport": report, "totalData": total_data})

    async def _quota(self, address: str, runtime: Mapping[str, str]) -> dict[str, Any]:
        half, delayed = (
            await self._put(address, TRANS_HALF_TOPIC),
            await self._put(address, SCHEDULE_TOPIC),
        )
        rates = (
            _first(runtime.get("putTps")),
            _first(runtime.get("getTransferredTps")),
            *(
                data.stats_minute.tps if data and data.stats_minute else 0.0
                for data in (half, delayed)
            ),
        )
        nums = (
            _day(runtime, "msgPutTotal"),
            _day(runtime, "msgGetTotal"),
            *(data.stats_day.sum if data and data.stats_day else 0 for data in (half, delayed)),
        )
        return {
            "diskRatio": {
                name: runtime.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")
            },
            "tps": dict(zip(_TPS, rates, strict=True)),
            "oneDayNum": dict(zip(_DAY_NUMS, nums, strict=True)),
            "messageAverageSize": runtime.get("putMessageAverageSize"),
            "topicSize": len(await self._admin.topics.user_configs(address)),
            "groupSize": len(await self._admin.groups.user_configs(address)),
        }

    async def _put(self, address: str, topic: str) -> BrokerStatsData | None:
        try:
            return await self._admin.brokers.stats(address, _PUT_NUMS, topic)
        except RocketMQError:
            return None  # it has no such figure yet

    async def _versions(self, address: str) -> dict[str, Any]:
        clients = set()
        for group in await self._admin.groups.user_configs(address):
            with suppress(RocketMQError):  # nobody is there
                found = await self._admin.clients.consumers(group)
                clients |= {
                    f"{one.language}%{version_name(one.version)}" for one in found.connection_set
                }
        return {
            "rocketmqVersion": version_name(CURRENT_VERSION),
            "clientInfo": sorted(clients),
        }


_TPS = ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
_TOTAL_TPS = ("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps")
_DAY_NUMS = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")


def _first(text: str | None) -> float:
    """The first of several rates, that of the last ten seconds."""
    words = (text or "").split()
    return float(words[0]) if words else 0.0


def _day(runtime: Mapping[str, str], name: str) -> int:
    """Yesterday's messages."""
    return int(runtime.get(f"{name}TodayMorning") or 0) - int(
        runtime.get(f"{name}YesterdayMorning") or 0
    )


def _beans(table: Mapping[str, msgspec.Struct]) -> dict[str, Any]:
    return {name: json.loads(encode_body(bean)) for name, bean in sorted(table.items())}


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MQClientError(f"{path} cannot be read: {error.strerror}") from None


def _write(folder: str, name: str, content: Mapping[str, Any]) -> str:
    path = Path(folder) / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise MQClientError(f"{path} cannot be written: {error.strerror}") from None
    return str(path)
