"""Are the bits of groups those of official brokers, and do filters with bits let through what filters without them do?"""

from __future__ import annotations

import pytest
from small_broker import SmallBroker, properties

from txrocketmq.broker.filter.bloom import BloomFilter, has_bits, set_bits
from txrocketmq.errors import ConfigError
from txrocketmq.model.heartbeat import SubscriptionData


@pytest.mark.parametrize(
    ("percent", "groups", "places", "bits", "positions"),
    [
        (20, 32, 3, 112, [[24, 26, 83], [47, 50, 53], [84, 31, 108], [20, 101, 70]]),
        (
            10,
            64,
            4,
            312,
            [
                [160, 90, 291, 206],
                [255, 82, 221, 48],
                [156, 271, 180, 247],
                [180, 285, 78, 183],
            ],
        ),
        (90, 100, 1, 24, [[16], [15], [12], [12]]),
    ],
)
def test_the_bits_are_the_official_ones(
    percent: int, groups: int, places: int, bits: int, positions: list[list[int]]
) -> None:
    """As the official ``BloomFilter.calcBitPositions`` of 5.4.0 says."""
    bloom = BloomFilter(percent, groups)
    assert (bloom.places, bloom.bits) == (places, bits)
    names = [
        ("G", "T"),
        ("group-one", "TopicTest"),
        ("\u00e4\u4e2d\U0001f600", "T"),
        ("0123456789abcdef0123456789abcdef", "x"),
    ]
    assert [bloom.positions(*name) for name in names] == positions


def test_a_bit_map_has_its_first_bit_lowest() -> None:
    bit_map = bytearray(14)
    set_bits(bit_map, [24, 26, 83])
    assert bit_map.hex() == "0000000500000000000008000000"
    assert has_bits(bit_map, [24, 83])
    assert not has_bits(bit_map, [24, 25])


@pytest.mark.parametrize(("percent", "groups"), [(0, 32), (100, 32), (20, 0)])
def test_keys_that_make_no_filter_are_refused(percent: int, groups: int) -> None:
    with pytest.raises(ConfigError):
        BloomFilter(percent, groups)


EXT = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "enable_property_filter": True,
}


def subscribe(broker: SmallBroker, group: str, expression: str, version: int = 1) -> None:
    broker.core.filters.register(
        group,
        [
            SubscriptionData(
                topic="TopicA",
                sub_string=expression,
                expression_type="SQL92",
                sub_version=version,
            )
        ],
    )


def wanted_by(broker: SmallBroker, group: str) -> tuple[list[bytes], int]:
    """What a group's filter lets through, and how many records were read for it."""
    from txrocketmq.codec.record import decode_records

    kept = broker.core.filters.get("TopicA", group)
    assert kept is not None
    found = broker.store.get_message("TopicA", 0, 0, 32, 1 << 20, kept.message_filter)
    bodies = [message.body for message in decode_records(b"".join(found.records))]  # type: ignore[union-attr]
    return bodies, len(bodies) + found.filtered_count  # type: ignore[union-attr]


@pytest.mark.parametrize("option", [False, True])
def test_results_are_equal_with_and_without_bits(option: bool) -> None:
    broker = SmallBroker(**{**EXT, "enable_calc_filter_bit_map": option})
    assert broker.store_config.bit_map_length_consume_queue_ext == 112
    peer = broker.connect()
    peer.send("TopicA", b"before", properties=properties(UNIQ_KEY="u", n="3"))
    subscribe(broker, "G", "n > 2")
    subscribe(broker, "H", "n < 2")
    broker.clock.advance(0.01)
    for number in range(5):
        peer.send("TopicA", b"%d" % number, properties=properties(UNIQ_KEY="u", n=str(number)))
    bodies, read = wanted_by(broker, "G")
    assert bodies == [b"before", b"3", b"4"]
    assert read == (3 if option else 6)
    assert wanted_by(broker, "H")[0] == [b"0", b"1"]
    # Another expression of the group: older bits are not its own.
    subscribe(broker, "G", "n = 0", 2)
    assert wanted_by(broker, "G")[0] == [b"0"]
    again = broker.restarted(**{**EXT, "enable_calc_filter_bit_map": option})
    assert wanted_by(again, "G")[0] == [b"0"]
    assert wanted_by(again, "H")[0] == [b"0", b"1"]
    again.stop()


def test_bits_laid_out_otherwise_are_not_believed() -> None:
    broker = SmallBroker(**EXT)
    subscribe(broker, "G", "n > 2")
    broker.clock.advance(0.01)
    for number in range(4):
        broker.connect().send(
            "TopicA", b"%d" % number, properties=properties(UNIQ_KEY="u", n=str(number))
        )
    kept = broker.core.filters.get("TopicA", "G")
    assert kept is not None
    assert kept.data.bloom_filter_data is not None
    assert kept.data.bloom_filter_data.bit_num == 112
    broker.clock.advance(1)
    again = broker.restarted(**EXT, expect_consumer_num_use_filter=64)
    assert wanted_by(again, "G") == ([b"3"], 4)
    again.stop()
