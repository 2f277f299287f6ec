"""Java .properties files read as Java reads them, and what is written reads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.config.properties import format_properties_file, parse_properties_file
from txrocketmq.errors import ConfigError


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("brokerName=broker-a", ("brokerName", "broker-a")),
        ("brokerName = broker-a ", ("brokerName", "broker-a ")),
        ("brokerName : broker-a", ("brokerName", "broker-a")),
        ("brokerName broker-a", ("brokerName", "broker-a")),
        ("brokerName\t:\tbroker-a", ("brokerName", "broker-a")),
        ("  indented=1", ("indented", "1")),
        ("empty=", ("empty", "")),
        ("alone", ("alone", "")),
        ("namesrvAddr=a:9876;b:9876", ("namesrvAddr", "a:9876;b:9876")),
        ("a\\=b=c", ("a=b", "c")),
        ("a\\ b=c", ("a b", "c")),
        ("path=c:\\\\store", ("path", "c:\\store")),
        ("tab=a\\tb\\nc", ("tab", "a\tb\nc")),
        ("odd=\\q", ("odd", "q")),
        ("uni=\\u4e2d\\u6587", ("uni", "中文")),
        ("emoji=\\uD83D\\uDE00", ("emoji", "😀")),
        ("double==x", ("double", "=x")),
        ("plain=中文", ("plain", "中文")),
    ],
)
def test_one_entry(line, entry):
    assert list(parse_properties_file(line.encode()).items()) == [entry]


def test_comments_and_blank_lines_are_skipped():
    assert parse_properties_file(b"# a=1\n ! b=2\n\n \t\nc=3\n") == {"c": "3"}


def test_a_line_goes_on_after_a_backslash_and_loses_its_indent():
    assert parse_properties_file(b"levels=1s \\\n    5s \\\r\n    10s\nx=1") == {
        "levels": "1s 5s 10s",
        "x": "1",
    }


def test_two_backslashes_end_the_line():
    assert parse_properties_file(b"a=b\\\\\nc=d") == {"a": "b\\", "c": "d"}


def test_a_comment_sign_inside_a_continued_value_is_data():
    assert parse_properties_file(b"a=b\\\n#c") == {"a": "b#c"}


def test_the_later_entry_wins():
    assert parse_properties_file(b"a=1\nb=2\na=3") == {"a": "3", "b": "2"}


def test_latin_1_files_are_understood():
    assert parse_properties_file("city=Z\u00fcrich".encode("latin-1")) == {"city": "Zürich"}


def test_a_byte_order_mark_is_skipped():
    assert parse_properties_file(b"\xef\xbb\xbfa=1") == {"a": "1"}


def test_a_broken_escape_is_named():
    with pytest.raises(ConfigError, match=r"a=\\\\u12"):
        parse_properties_file(b"a=\\u12")


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_written_reads_back(entries):
    entries = {
        key.encode("utf-8", "replace").decode(): value.encode("utf-8", "replace").decode()
        for key, value in entries.items()
    }
    assert parse_properties_file(format_properties_file(entries)) == entries
