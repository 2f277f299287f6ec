"""``startMonitoring``: every minute, who is behind and who stands still? Stands for ``MonitorService`` and ``DefaultMonitorListener``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.task import deferLater

from txrocketmq.client.admin.admin import Admin
from txrocketmq.client.admin.results import GroupProgress, QueueProgress
from txrocketmq.codec.bodies.clients import ConsumerRunningInfo
from txrocketmq.errors import RocketMQError
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import group_of_retry_topic, is_retry_topic

FIRST_S, ROUND_S = 20, 60
STANDS_STILL_MS = 60_000
"""Messages that wait at a member for so long without one being handled (official)."""


class Monitor:
    """What the groups of a cluster do, again and again."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._clock: Any = admin.instance.clock

    async def rounds(self) -> AsyncIterator[dict[str, Any]]:
        """Every minute, without end: how far each group is behind with each topic, and what is odd at its members."""
        await deferLater(self._clock, FIRST_S)
        while True:
            async for line in self.round():
                yield line
            await deferLater(self._clock, ROUND_S)

    async def round(self) -> AsyncIterator[dict[str, Any]]:
        """A line for each topic of each group, and one for each thing that is odd at its members."""
        names = await self._admin.topics.names()
        for group in sorted(group_of_retry_topic(name) for name in names if is_retry_topic(name)):
            try:
                progress = await self._admin.groups.progress(group)
                members = await self._admin.clients.all_running_infos(group)
            except RocketMQError:
                continue  # nobody is there, or it is being deleted
            for line in await self._behind(progress):
                yield line
            for line in self._odd(group, members):
                yield line

    async def _behind(self, progress: GroupProgress) -> list[dict[str, Any]]:
        topics: dict[str, list[QueueProgress]] = defaultdict(list)
        for row in progress.queues:
            topics[row.queue.topic].append(row)
        lines = []
        for topic, rows in sorted(topics.items()):
            newest = await self._newest(topic)
            delays = [
                newest.get(row.queue, 0) - row.last_timestamp
                for row in rows
                if row.last_timestamp > 0
            ]
            lines.append(
                {
                    "group": progress.group,
                    "topic": topic,
                    "undoneMsgsTotal": sum(max(row.diff, 0) for row in rows),
                    "undoneMsgsSingleMQ": max(max(row.diff, 0) for row in rows),
                    "undoneMsgsDelayTimeMills": max([0, *delays]),
                }
            )
        return lines

    async def _newest(self, topic: str) -> dict[MessageQueue, int]:
        """When the newest message of each queue was stored, in ms."""
        try:
            status = await self._admin.topics.status(topic)
        except RocketMQError:
            return {}
        return {queue: place.last_update_timestamp for queue, place in status.offset_table.items()}

    def _odd(self, group: str, members: dict[str, ConsumerRunningInfo]) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        wanted = {
            frozenset((one.topic, one.sub_string) for one in info.subscription_set)
            for info in members.values()
        }
        if len(wanted) > 1:
            lines.append({"group": group, "odd": "its members subscribe to different things"})
        now_ms = int(self._clock.seconds() * 1000)
        for client_id, info in sorted(members.items()):
            for queue, state in sorted(info.mq_table.items()):
                if not state.cached_msg_count:
                    continue
                still_ms = now_ms - state.last_consume_timestamp
                if still_ms > STANDS_STILL_MS:
                    lines.append(
                        {
                            "group": group,
                            "client": client_id,
                            "queue": queue,
                            "odd": f"no message was handled for {still_ms} ms",
                        }
                    )
        return lines
