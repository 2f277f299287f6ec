"""Do the bytes on the wire page say what the page says?"""

from __future__ import annotations

import shlex
from itertools import pairwise

from pages import blocks, blocks_of, dump_bytes, lines_of

from txrocketmq.codec import fastjson
from txrocketmq.codec.command import decode_command
from txrocketmq.codec.explain import explain_stream
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.record import decode_record

PAGE = "wire.md"


def test_every_frame_is_explained_by_the_text_behind_it() -> None:
    examples = [
        (dump_bytes(first[1]), second)
        for first, second in pairwise(blocks(PAGE))
        if first[0] == "hex"
    ]
    assert len(examples) == 4
    for data, (kind, text) in examples:
        assert kind == "text"
        assert explain_stream(data) == text.rstrip("\n")


def test_the_command_explains_an_example() -> None:
    (typed,) = lines_of(PAGE)
    program, word, digits = shlex.split(typed)
    assert (program, word) == (".venv/bin/txrocketmq", "explain")
    assert bytes.fromhex(digits) in [dump_bytes(text) for text in blocks_of(PAGE, "hex")]


def test_every_frame_is_written_again_as_it_was_read() -> None:
    for text in blocks_of(PAGE, "hex"):
        data = dump_bytes(text)
        (frame,) = FrameSplitter().feed(data)
        assert decode_command(frame).encode() == data


def test_the_record_is_what_the_page_says() -> None:
    (text,) = blocks_of(PAGE, "record")
    data = dump_bytes(text)
    message, end = decode_record(data)
    assert end == len(data) == 105
    assert (message.topic, message.tags, message.body) == ("Hi", "a", b"hello")
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (1, 3, 4096)
    assert (message.born_host, message.store_host) == (("192.0.2.10", 40000), ("192.0.2.1", 10911))
    assert (message.born_timestamp, message.store_timestamp) == (1700000000000, 1700000000001)


def test_the_dialect_is_read() -> None:
    (text,) = blocks_of(PAGE, "dialect")
    group, locks = (fastjson.loads(line.encode()) for line in text.splitlines())
    assert isinstance(group, dict)
    assert group["brokerAddrs"] == {"0": "192.0.2.1:10911", "1": "192.0.2.2:10911"}
    assert locks == {
        "lockTable": {'{"brokerName":"broker-a","queueId":1,"topic":"Hi"}': 1700000000000}
    }
