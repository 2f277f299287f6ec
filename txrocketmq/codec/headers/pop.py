"""Which fields travel with requests and responses about pop consumption: pop, acknowledge, change the invisible time, notification, polling.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from txrocketmq.codec.headers.base import Header, Int32, Int64, TopicQueueRequestHeader


class AckMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``AckMessageRequestHeader``: request header of ``ACK_MESSAGE`` (200051)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class ChangeInvisibleTimeRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``ChangeInvisibleTimeRequestHeader``: request header of ``CHANGE_MESSAGE_INVISIBLETIME``
    (200053).
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """Official ``ChangeInvisibleTimeResponseHeader``: response header of ``CHANGE_MESSAGE_INVISIBLETIME``
    (200053).
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``NotificationRequestHeader``: request header of ``NOTIFICATION`` (200054)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """Official ``NotificationResponseHeader``: response header of ``NOTIFICATION`` (200054)."""

    has_msg: bool = False
    polling_full: bool = False


class PeekMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``PeekMessageRequestHeader``: request header of ``PEEK_MESSAGE`` (200052)."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class PollingInfoRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``PollingInfoRequestHeader``: request header of ``POLLING_INFO`` (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header, kw_only=True):
    """Official ``PollingInfoResponseHeader``: response header of ``POLLING_INFO`` (200055)."""

    polling_num: Int32


class PopMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """Official ``PopMessageRequestHeader``: request header of ``POP_MESSAGE`` (200050)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """Official ``PopMessageResponseHeader``: response header of ``POP_MESSAGE`` (200050), ``PEEK_MESSAGE``
    (200052).
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None
