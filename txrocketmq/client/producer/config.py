"""What can be set on a producer? The official ``DefaultMQProducer`` in snake_case, with its defaults."""

from __future__ import annotations

import attrs

from txrocketmq.client.config import check_kinds, check_least
from txrocketmq.client.routes import NEW_TOPIC_QUEUES
from txrocketmq.codec.compress import DEFAULT_LEVEL, compression_type
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import AUTO_CREATE_TOPIC_KEY_TOPIC

RETRY_RESPONSE_CODES = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Answers after which another broker is tried: the official ones, and that of a broker that is about to stop."""


@attrs.define(kw_only=True)
class ProducerConfig:
    """Settings of one producer. Times in ms, sizes in bytes.

    :ivar send_msg_timeout: for all tries of one send together, look-up of the route included.
    :ivar send_msg_max_timeout_per_request: for one try that may be repeated; -1: whatever is left.
    :ivar retry_times_when_send_failed: further tries after the first.
    :ivar retry_another_broker_when_not_store_ok: try again when a message is stored but not flushed or replicated in time.
    :ivar compress_msg_body_over_howmuch: bodies of at least so many bytes are compressed.
    :ivar compress_type: ``ZLIB``, ``LZ4`` or ``ZSTD``.
    :ivar max_message_size: of a body, and of one request of a batch.
    :ivar create_topic_key: the topic whose route tells where a new topic would be made.
    :ivar back_pressure_for_async_send_num: messages that may be in flight; further sends wait for their turn.
    :ivar back_pressure_for_async_send_size: bytes of bodies that may be in flight.
    :ivar max_waiting_sends: sends that may wait for their turn; the next one is refused.
    :ivar auto_batch: collect messages of one topic for up to ``batch_max_delay_ms`` and send them as one batch.
    :ivar batch_max_bytes: bodies that make a batch go at once.
    :ivar total_batch_max_bytes: bodies that may be collected, all topics together; beyond it messages go by themselves.
    """

    send_msg_timeout: int = 3_000
    send_msg_max_timeout_per_request: int = -1
    retry_times_when_send_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    retry_response_codes: frozenset[int] = RETRY_RESPONSE_CODES
    compress_msg_body_over_howmuch: int = 4_096
    compress_level: int = DEFAULT_LEVEL
    compress_type: str = "ZLIB"
    max_message_size: int = 4 * 1024 * 1024
    create_topic_key: str = AUTO_CREATE_TOPIC_KEY_TOPIC
    default_topic_queue_nums: int = NEW_TOPIC_QUEUES
    back_pressure_for_async_send_num: int = 1_024
    back_pressure_for_async_send_size: int = 100 * 1024 * 1024
    max_waiting_sends: int = 1_000_000
    auto_batch: bool = False
    batch_max_delay_ms: int = 10
    batch_max_bytes: int = 32 * 1024
    total_batch_max_bytes: int = 32 * 1024 * 1024

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot work.

        :raises MQClientError: naming the setting.
        """
        check_kinds(self)
        try:
            compression_type(self.compress_type)
        except ValueError as error:
            raise MQClientError(f"compress_type: {error}") from None
        check_least(self, 0, "retry_times_when_send_failed", "max_waiting_sends")
        check_least(
            self,
            1,
            "send_msg_timeout",
            "default_topic_queue_nums",
            "back_pressure_for_async_send_num",
            "back_pressure_for_async_send_size",
        )
        if not 1 <= self.batch_max_delay_ms <= 30_000:
            raise MQClientError(
                f"batch_max_delay_ms must be between 1 and 30000, not {self.batch_max_delay_ms}"
            )
        if not 1 <= self.batch_max_bytes <= 2 * 1024 * 1024:
            raise MQClientError(
                f"batch_max_bytes must be between 1 and 2097152, not {self.batch_max_bytes}"
            )
