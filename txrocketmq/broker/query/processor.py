"""Which messages have this key, and what is the message with this id: QUERY_MESSAGE, VIEW_MESSAGE_BY_ID?

Stands for ``QueryMessageProcessor``.
"""

from __future__ import annotations

from txrocketmq.codec.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

UNIQUE_KEY_FLAG = "_UNIQUE_KEY_QUERY"


class QueryProcessor:
    """Finds messages for operators and traces."""

    def __init__(self, store_config: MessageStoreConfig, store: IMessageStore) -> None:
        self._store_config = store_config
        self._store = store

    def query_message(self, request: Request[QueryMessageRequestHeader]) -> Reply:
        """QUERY_MESSAGE: the records with a key of the client's, or with its unique key, within a time."""
        header = request.header
        max_count = header.max_num
        if request.ext_fields.get(UNIQUE_KEY_FLAG) == "true":
            max_count = self._store_config.default_query_max_num
        found = self._store.query_message(
            header.topic,
            header.key,
            max_count,
            header.begin_timestamp,
            header.end_timestamp,
            header.index_type,
        )
        answer = QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_offset,
        )
        if not found.records:
            return Reply(
                ResponseCode.QUERY_NOT_FOUND.value,
                answer,
                remark="can not find message, maybe time range not correct",
            )
        return Reply(header=answer, body=found.records)

    def view_message(self, request: Request[ViewMessageRequestHeader]) -> Reply:
        """VIEW_MESSAGE_BY_ID: the record at a physical offset, which is part of the message's id."""
        offset = request.header.offset
        record = self._store.look_message_bytes(offset, 0)
        if record is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return Reply(body=record)
