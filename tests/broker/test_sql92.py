"""Is a SQL92 filter understood as the official software understands it?"""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from golden import units
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.broker.filter import sql92
from txrocketmq.broker.filter.sql92 import compile_filter
from txrocketmq.errors import FilterError

CASES = units("5.4.0")["sql92"]


@pytest.mark.parametrize("case", CASES, ids=[case["expression"] or "nothing" for case in CASES])
def test_recorded_expressions(case: dict[str, Any]) -> None:
    if not case["parses"]:
        with pytest.raises(FilterError) as refusal:
            compile_filter(case["expression"])
        assert case["message"].endswith(str(refusal.value))
        return
    compiled = compile_filter(case["expression"])
    assert compiled.text == case["text"]
    assert compiled.matches(case["properties"]) is case["matches"]
    if "evaluateError" in case:
        with pytest.raises(FilterError) as error:
            compiled.evaluate(case["properties"])
        assert case["message"].endswith(str(error.value))
    else:
        assert compiled.evaluate(case["properties"]) is case["result"]


@pytest.mark.parametrize(
    ("expression", "properties", "result"),
    [
        ("a = 3000000000", {"a": "3000000000"}, True),
        ("a = 1 -- note\n and b = 2", {"a": "1", "b": "2"}, True),
        ("a = 'A' or b = 1", {"a": "B"}, None),
        ("a = b", {}, True),
        ("- 2147483648 = -2147483648", {}, True),
        ("2 = TRUE", {}, False),
        ("a > b", {"a": "0.0", "b": "-0.0"}, True),
        ("a >= b", {"a": " NaN ", "b": "Infinity"}, True),
        ("a = 1.5", {"a": "0x1.8p0"}, True),
        ("a = 1.5", {"a": "1.5f"}, True),
        ("a = 1 and b is null and not c is null", {"a": "1", "c": "0"}, False),
        ("a in ('1','2','3','4','5','6')", {"a": "6"}, True),
        (" or ".join(f"a = '{n}'" for n in range(1000)), {"a": "999"}, True),
    ],
)
def test_more_values(expression: str, properties: dict[str, str], result: bool | None) -> None:
    assert compile_filter(expression).evaluate(properties) is result


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("a = 1", {"a": "2147483648"}),
        ("not b = 'x'", {"b": "x"}),
        ("a > b", {"a": "1", "b": "x"}),
        ("a = 1.5", {"a": "1_5"}),
        ("a = 1", {"a": "9" * 10_000}),
    ],
)
def test_what_cannot_be_compared_does_not_match(
    expression: str, properties: dict[str, str]
) -> None:
    compiled = compile_filter(expression)
    with pytest.raises(FilterError):
        compiled.evaluate(properties)
    assert not compiled.matches(properties)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a = 0.0", "0.0 is less than 4.9E-324"),
        ("a = 1e999", "1e999 is greater than"),
        ("TRUE = 3", "'TRUE' cannot be compared with '3'"),
        ("a between NULL and 3", "values can not be null"),
        ("(" * 60 + "a" + ")" * 60, "more than 50 brackets"),
        ("not " * 200 + "a", "more than 100 levels"),
        ("a" + " is null" * 200, "more than 100 levels"),
        ("a = '" + "x" * 20_000 + "'", "more than 16384 characters"),
    ],
)
def test_refused_expressions(expression: str, words: str) -> None:
    for _ in range(2):
        with pytest.raises(FilterError, match=words):
            compile_filter(expression)


AT_MOST_S = 0.5
"""What the slowest of these takes on a busy machine is a tenth of it; before, seconds."""


@pytest.mark.parametrize("end", ["x", "1x", "..", "e", "1e+"])
def test_a_long_number_that_is_none_is_seen_at_once(end: str) -> None:
    compiled = compile_filter("a > b")
    began_s = process_time()
    assert not compiled.matches({"a": "1" * 30_000 + end, "b": "1"})
    assert process_time() - began_s < AT_MOST_S


@pytest.mark.parametrize("before", ["a = ", "a = \n"])
def test_many_minus_signs_are_no_search_for_the_end_of_a_comment(before: str) -> None:
    began_s = process_time()
    with pytest.raises(FilterError, match="more than 100 levels"):
        compile_filter(before + "-" * 16_000 + "1")
    assert process_time() - began_s < AT_MOST_S


def test_few_expressions_are_remembered() -> None:
    for number in range(3 * sql92.CACHE_ENTRIES):
        compile_filter(f"a = {number}")
    assert len(sql92._compiled) <= sql92.CACHE_ENTRIES
    assert compile_filter("a = 1") is compile_filter("a = 1")


WORDS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "(",
        "(",
        ")",
        ")",
        "=",
        "<>",
        ">",
        ">=",
        "<",
        "<=",
        ",",
        "+",
        "-",
        "and",
        "or",
        "not",
        "is",
        "null",
        "in",
        "between",
        "contains",
        "startswith",
        "true",
        "false",
        "''",
        "'x'",
        "'1'",
        "1",
        "2.5",
        ".5",
        "1e3",
        "99999999999",
        "--",
        "/*",
        "*/",
        "'",
        ".",
        ";",
        "ü",
    ]
)
TEXTS = st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=40)
VALUES = st.sampled_from(["1", "x", "-0.0", "NaN", " 1", "true", "1e3", "٣"]) | st.text(max_size=5)


@given(TEXTS, st.dictionaries(st.sampled_from("abc"), VALUES))
def test_any_text_is_a_filter_or_refused(text: str, properties: dict[str, str]) -> None:
    try:
        compiled = compile_filter(text)
    except FilterError:
        return
    assert compiled.text
    try:
        value = compiled.evaluate(properties)
    except FilterError:
        assert not compiled.matches(properties)
    else:
        assert value in (True, False, None)
        assert compiled.matches(properties) is (value is True)
