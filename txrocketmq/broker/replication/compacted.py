"""How does a slave get messages of compacted topics that are older than its log? It pulls them from its master, as consumers do.

Stands for ``MessageFetcher``. That one sends a heartbeat for a group of its own before, so that the master makes such a group, with a retry
topic, for each queue. Here the request says what it subscribes to, and its group is the one that tools have everywhere.

Crash story: nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from zope.interface import implementer

from txrocketmq.broker.replication.sync import REQUEST_TIMEOUT_MS, SlaveSync
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocketmq.errors import HeaderError, RemotingError, StoreError
from txrocketmq.interfaces import ICompactedSource
from txrocketmq.model.attributes import CLEANUP_POLICY, COMPACTION
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import pull_sys_flag
from txrocketmq.model.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

MOST_MESSAGES = 32
MOST_BYTES = 1 << 20

_GO_ON = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


@implementer(ICompactedSource)
class MastersCopies:
    """See `ICompactedSource`.

    :param is_slave: whether this broker is one now.
    """

    def __init__(self, core: BrokerCore, sync: SlaveSync, is_slave: Callable[[], bool]) -> None:
        self._core = core
        self._sync = sync
        self._is_slave = is_slave

    def is_there(self) -> bool:
        """See `ICompactedSource`."""
        return self._is_slave()

    def queues(self) -> Iterable[tuple[str, int]]:
        """See `ICompactedSource`."""
        for topic in self._core.topics.all():
            attributes = topic.attributes
            if attributes and attributes.get(CLEANUP_POLICY) == COMPACTION:
                for queue_id in range(topic.write_queue_nums):
                    yield topic.topic_name or "", queue_id

    def fetch(self, topic: str, queue_id: int, offset: int) -> Deferred[tuple[bytes, int | None]]:
        """See `ICompactedSource`."""
        return Deferred.fromCoroutine(self._fetch(topic, queue_id, offset))

    async def _fetch(self, topic: str, queue_id: int, offset: int) -> tuple[bytes, int | None]:
        address = self._sync.master_address
        if address is None:
            raise StoreError("nobody knows the master")
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_CONSUMER_GROUP,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=MOST_MESSAGES,
            sys_flag=pull_sys_flag(commit_offset=False, suspend=False, subscription=True),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            max_msg_bytes=MOST_BYTES,
        )
        code = RequestCode.PULL_MESSAGE.value
        try:
            asked = self._core.remoting_client.request(
                address, code, header, b"", REQUEST_TIMEOUT_MS, None
            )
            answer = await cast("Deferred[RemotingCommand]", asked)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return b"", None
            if answer.code != ResponseCode.SUCCESS and answer.code not in _GO_ON:
                raise StoreError(f"the master answers {answer.code}: {answer.remark}")
            following = answer.decode_header(PullMessageResponseHeader).next_begin_offset
        except (RemotingError, HeaderError) as error:
            raise StoreError(f"the master does not answer: {error}") from error
        return (bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""), following
