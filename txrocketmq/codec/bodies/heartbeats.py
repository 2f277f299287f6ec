"""How a heartbeat is read when one of its groups cannot be: the others must count all the same.

Stands for the reading half of ``HeartbeatData``, as HEART_BEAT needs it.
"""

from __future__ import annotations

import msgspec

from txrocketmq.codec.bodies.wire import convert_body, decode_body, load_dialect
from txrocketmq.errors import BodyError
from txrocketmq.model.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)

# A number in an enum's place is read as its ordinal.
_ORDINALS: dict[str, tuple[str, ...]] = {
    "consumeType": tuple(ConsumeType),
    "messageModel": tuple(MessageModel),
    "consumeFromWhere": tuple(ConsumeFromWhere),
}


class DecodedHeartbeat(msgspec.Struct, frozen=True):
    """A heartbeat, and what in it could not be read.

    :ivar faults: one text per group that was left out, naming group and member; empty when all is well.
    """

    heartbeat: HeartbeatData
    faults: tuple[str, ...] = ()


def decode_heartbeat(data: bytes) -> DecodedHeartbeat:
    """A heartbeat with all groups that can be read; those that cannot are told apart in ``faults``.

    :raises BodyError: the text is not JSON, or the heartbeat itself (client id) cannot be read.
    """
    try:
        return DecodedHeartbeat(decode_body(HeartbeatData, data))
    except BodyError:
        value = load_dialect(HeartbeatData, data)
    if not isinstance(value, dict):
        raise BodyError("HeartbeatData: not an object")
    consumers = value.pop("consumerDataSet", [])
    producers = value.pop("producerDataSet", [])
    for name, groups in (("consumerDataSet", consumers), ("producerDataSet", producers)):
        if not isinstance(groups, list):
            raise BodyError(f"HeartbeatData: {name} is not an array")
    heartbeat = convert_body(HeartbeatData, value)
    faults: list[str] = []
    for position, group in enumerate(consumers):
        try:
            heartbeat.consumer_data_set.append(_consumer(group))
        except BodyError as error:
            faults.append(_fault("consumerDataSet", position, group, error))
    for position, group in enumerate(producers):
        try:
            heartbeat.producer_data_set.append(convert_body(ProducerData, group))
        except BodyError as error:
            faults.append(_fault("producerDataSet", position, group, error))
    return DecodedHeartbeat(heartbeat, tuple(faults))


def _consumer(group: object) -> ConsumerData:
    if isinstance(group, dict):
        group = dict(group)
        for name, words in _ORDINALS.items():
            number = group.get(name)
            if type(number) is int and 0 <= number < len(words):
                group[name] = words[number]
    return convert_body(ConsumerData, group)


def _fault(where: str, position: int, group: object, error: BodyError) -> str:
    name = group.get("groupName") if isinstance(group, dict) else None
    return f"{where}[{position}] group {name!r}: {error}"
