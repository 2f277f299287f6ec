"""What do headers cost? Microseconds of CPU to read a send request and to write its answer, in both serializations.

Run it as ``python bench/codec.py``. Each figure is the best of many rounds; the budget beside it is a ceiling on a quiet
machine of the size the design was measured on. The request is what an official producer sends (short send header, 14 fields).
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from timeit import repeat

from txrocketmq.codec.command import RemotingCommand, decode_command, encode_reply
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from txrocketmq.model.codes import LanguageCode

JSON, ROCKETMQ = 0, 1
NUMBER = 20_000
ROUNDS = 9

REQUEST = SendMessageRequestHeaderV2(
    producer_group="PG_send",
    topic="TopicA",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1795973233713,
    flag=0,
    properties="KEYS\x01key-1 key-2\x02UNIQ_KEY\x01C000020A2A184E0E2F2A93F0D4270000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    reconsume_times=0,
    unit_mode=False,
    batch=False,
    broker_name="broker-a",
)
ANSWER = SendMessageResponseHeader(
    msg_id="7F000002000051AF00000000000000F2",
    queue_id=0,
    queue_offset=12345,
    transaction_id="C000020A2A184E0E2F2A93F0D4270000",
)
EXTRA = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def request_frame(serialize_type: int) -> bytes:
    """The request with a body of 1 KiB, length prefix included."""
    return RemotingCommand.create_request(
        310,
        REQUEST,
        body=bytes(1024),
        opaque=4242,
        language=int(LanguageCode.JAVA),
        serialize_type=serialize_type,
    ).encode()


def show(name: str, budget_us: float | None, work: Callable[[], object]) -> None:
    """Time a piece of work and print its line."""
    best_us = min(repeat(work, timer=process_time, number=NUMBER, repeat=ROUNDS)) / NUMBER * 1e6
    budget = "" if budget_us is None else f"  (budget {budget_us:.1f})"
    print(f"{name:<44}{best_us:8.2f} us{budget}")


def main() -> None:
    """Print all figures."""
    json_frame, binary_frame = request_frame(JSON), request_frame(ROCKETMQ)
    feed = FrameSplitter().feed
    show("split one frame of 1.3 KiB", None, lambda: feed(json_frame))
    for name, frame, budget in (("JSON", json_frame[4:], 2.0), ("ROCKETMQ", binary_frame[4:], 5.0)):
        show(
            f"read a send request, {name}",
            budget,
            lambda frame=frame: decode_command(frame).decode_header(SendMessageRequestHeaderV2),
        )
    for name, serialize_type, extra, budget in (
        ("JSON", JSON, None, 1.0),
        ("JSON, with region and trace", JSON, EXTRA, None),
        ("ROCKETMQ", ROCKETMQ, None, None),
        ("ROCKETMQ, with region and trace", ROCKETMQ, EXTRA, None),
    ):
        show(
            f"write a send answer, {name}",
            budget,
            lambda kind=serialize_type, extra=extra: encode_reply(
                4242, kind, 0, ANSWER, None, b"", extra
            ),
        )


if __name__ == "__main__":
    main()
