"""How do the records of an answer become messages that an application can use? Decoded, with their plain bodies.

Stands for ``MessageDecoder.decodesBatch`` as clients call it.
"""

from __future__ import annotations

from twisted.logger import Logger

from txrocketmq.client.config import ClientConfig
from txrocketmq.codec.compress import decompress_body
from txrocketmq.codec.record import decode_records
from txrocketmq.errors import BodyError
from txrocketmq.model.flags import COMPRESSED_FLAG
from txrocketmq.model.message import MessageExt

log = Logger()


MAX_PLAIN_BYTES = 8 * 1024 * 1024
"""What the compressed bodies of one pull's answer may grow to; the messages behind are left for the next pull."""


def decode_messages(
    body: bytes,
    config: ClientConfig,
    broker_name: str = "",
    offset_delta: int = 0,
    left_out: list[MessageExt] | None = None,
) -> list[MessageExt]:
    """The messages of an answer's body, decompressed as the configuration wants it. CRCs of bodies are not compared.

    :param offset_delta: added to logical offsets (static topics).
    :param left_out: gets what is not decompressed because the bodies before it grew over `MAX_PLAIN_BYTES`. Without it all are.
    """
    # As official clients do: a body that was stored damaged must not stop its queue for ever.
    messages = decode_records(body, check_crc=False, with_body=config.decode_read_body)
    decompress = config.decode_read_body and config.decode_decompress_body
    grown = 0
    for number, message in enumerate(messages):
        message.broker_name = broker_name
        if offset_delta:
            message.queue_offset += offset_delta
        if message.sys_flag & COMPRESSED_FLAG and decompress:
            if grown >= MAX_PLAIN_BYTES and left_out is not None:
                # A few kilobytes can stand for gigabytes, whose making would hold everything else up.
                left_out += messages[number:]
                return messages[:number]
            decompress_message(message)
            grown += len(message.body)
    return messages


def decompress_message(message: MessageExt) -> MessageExt:
    """The message with its plain body; as it is, with a line in the log, when the body is damaged: one odd message must not stop a
    queue."""
    try:
        message.body = decompress_body(message.body, message.sys_flag)
    except BodyError as error:
        log.warn(
            "message {id} of topic {topic} stays compressed: {error}",
            id=message.msg_id,
            topic=message.topic,
            error=error,
        )
    return message
