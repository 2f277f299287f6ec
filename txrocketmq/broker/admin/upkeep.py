"""What may operators look at, and clean up, in the store?

Stands for the store half of ``AdminBrokerProcessor``, and for the answer to GET_BROKER_RUNTIME_INFO.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from txrocketmq.broker.clients import Consumers
from txrocketmq.broker.filter.consumer_filters import ConsumerFilters
from txrocketmq.broker.whole_queues import require_whole
from txrocketmq.codec.bodies import (
    ConsumeQueueData,
    KVTable,
    QueryConsumeQueueResponseBody,
    encode_body,
)
from txrocketmq.codec.headers import QueryConsumeQueueRequestHeader
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore, IStoreUpkeep
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import REMARK_NO_CODE, Reply, Request

MAX_ENTRIES = 10_000
"""Most entries of a queue that are shown at once."""


class UpkeepAdmin:
    """Serves raw views of the store and its cleaning.

    :param runtime_info: figures of the running broker by their official names.
    """

    _log = Logger()

    def __init__(
        self,
        store: IMessageStore,
        upkeep: IStoreUpkeep,
        consumers: Consumers,
        filters: ConsumerFilters,
        runtime_info: Callable[[], dict[str, str]],
    ) -> None:
        self._store = store
        self._upkeep = upkeep
        self._consumers = consumers
        self._filters = filters
        self._runtime_info = runtime_info

    def get_runtime_info(self, request: Request[None]) -> Reply:
        """GET_BROKER_RUNTIME_INFO: figures of the running broker."""
        return Reply(body=encode_body(KVTable(table=self._runtime_info())))

    def query_consume_queue(self, request: Request[QueryConsumeQueueRequestHeader]) -> Reply:
        """QUERY_CONSUME_QUEUE: entries of a queue as they are, and what a group wants of its topic.

        Official brokers answer success with a remark that no code was set.
        """
        header = request.header
        topic, queue_id = header.topic or "", header.queue_id
        require_whole(self._store, topic, queue_id)
        count = max(0, min(header.count, MAX_ENTRIES))
        units = self._upkeep.queue_units(topic, queue_id, header.index, count)
        if units is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not units and count:
            return Reply(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            min_queue_index=self._store.min_offset(topic, queue_id),
            max_queue_index=self._store.max_offset(topic, queue_id),
            queue_data=[
                ConsumeQueueData(physic_offset=position, physic_size=size, tags_code=code)
                for position, size, code in units
            ],
        )
        if header.consumer_group is not None:
            group = self._consumers.get(header.consumer_group)
            wanted = None if group is None else group.subscriptions.get(topic)
            body.subscription_data = wanted
            if wanted is None:
                body.filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                kept = self._filters.get(topic, header.consumer_group)
                body.filter_data = "null" if kept is None else encode_body(kept.data).decode()
        return Reply(remark=REMARK_NO_CODE, body=encode_body(body))

    def clean_expired_queues(self, request: Request[None]) -> Reply:
        """CLEAN_EXPIRED_CONSUMEQUEUE: forget queues whose messages are all gone."""
        count = self._upkeep.clean_expired_queues()
        self._log.info(
            "{client} cleaned {count} expired queues",
            client=request.connection.remote_text,
            count=count,
        )
        return Reply()

    def delete_expired_files(self, request: Request[None]) -> Reply:
        """DELETE_EXPIRED_COMMITLOG: begin to delete what is older than ``fileReservedTime``, whatever the hour."""
        client = request.connection.remote_text
        self._upkeep.delete_expired_files().addCallback(
            lambda count: self._log.info(
                "{client} had {count} expired log files deleted", client=client, count=count
            )
        )
        return Reply()
