"""Does the comparison of mqadmin outputs see what differs, and nothing else?"""

from __future__ import annotations

import re

import pytest

from interop.harness.mqadmin_text import Masks, compare, parse

MASKS = Masks({r"127\.0\.0\.1:10911": "<broker>"}, re.compile("TPS|RT$"))

TABLE = """\
#Broker Name                      #QID  #Min Offset           #Last Updated
broker-a                          0     0                     2026-11-30 05:40:29,811
broker-a                          1     0                     2026-11-30 05:40:23,620

Topic Put TPS: 0.5
"""


def test_a_table_has_a_field_a_cell_named_by_the_header() -> None:
    records = parse(TABLE, MASKS)
    assert records == [
        (("header", "Broker Name | QID | Min Offset | Last Updated"),),
        (
            ("Broker Name", "broker-a"),
            ("QID", "0"),
            ("Min Offset", "0"),
            ("Last Updated", "<time>"),
        ),
        (
            ("Broker Name", "broker-a"),
            ("QID", "1"),
            ("Min Offset", "0"),
            ("Last Updated", "<time>"),
        ),
        (("Topic Put TPS", "#"),),
    ]


def test_order_of_lines_and_masked_figures_do_not_count() -> None:
    lines = TABLE.splitlines()
    other = "\n".join([lines[0], lines[2], lines[1], "", "Topic Put TPS: 17.25"])
    assert compare(parse(TABLE, MASKS), parse(other, MASKS)) == (10, 10, [])


def test_what_a_young_broker_does_not_tell_yet_is_no_difference() -> None:
    young = parse("putTps: 0.1\nputMessageDistributeTime: \nbootTimestamp: 1", MASKS)
    old = parse("putTps: 0.1 0.2\nputMessageDistributeTime: [<=0ms]:1 \nbootTimestamp: 1", MASKS)
    assert compare(young, old) == (3, 3, [])
    assert compare(young[1:], old).equal == 2


@pytest.mark.parametrize(
    ("ours", "difference"),
    [
        (TABLE.replace("1     0  ", "1     7  "), ("Min Offset", "0", "7")),
        (TABLE.replace("TPS: 0.5", "TPS:"), ("Topic Put TPS", "#", "")),
    ],
)
def test_one_wrong_cell_is_one_difference(ours: str, difference: object) -> None:
    found = compare(parse(TABLE, MASKS), parse(ours, MASKS))
    assert (found.equal, found.total, found.differences) == (9, 10, [difference])


def test_a_missing_row_and_one_too_many_count_all_their_fields() -> None:
    shorter = "\n".join(TABLE.splitlines()[:2])
    assert compare(parse(TABLE, MASKS), parse(shorter, MASKS))[:2] == (5, 10)
    assert compare(parse(shorter, MASKS), parse(TABLE, MASKS))[:2] == (5, 10)


def test_json_members_are_named_by_their_path() -> None:
    text = '{\n\t"brokerDatas":[\n\t\t{\n\t\t\t"brokerAddrs":{\n\t\t\t\t0:"127.0.0.1:10911"\n\t\t\t}\n\t\t}\n\t],\n\t"perm":6\n}'
    assert parse(text, MASKS) == [
        (("brokerDatas.item.brokerAddrs.0", "<broker>"),),
        (("perm", "6"),),
    ]


def test_pairs_within_a_line_are_fields() -> None:
    text = "TopicConfig [topicName=A, perm=RW-, attributes={}]"
    assert parse(text, MASKS) == [
        (("line", "TopicConfig"), ("topicName", "A"), ("perm", "RW-"), ("attributes", "{}"))
    ]


def test_frames_of_an_exception_do_not_count_but_its_message_does() -> None:
    text = "x.SubCommandException: T command failed\n\tat a.B.c(B.java:74)\nCaused by: x.E: CODE: 17  DESC: No route\n\t... 3 more\n"
    assert [record[0][1] for record in parse(text, MASKS)] == [
        "T command failed",
        "x.E: CODE: 17  DESC: No route",
    ]
