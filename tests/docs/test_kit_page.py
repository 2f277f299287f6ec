"""Does what the page on the test kit shows work?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from pages import DOCS, blocks_of

from txrocketmq.testing import LoopbackRocketMQ, RocketMQ

PAGE = "test-kit.md"
CALL = re.compile(r"`mq\.(\w+)[(.`]")


@pytest.mark.parametrize("number", range(len(blocks_of(PAGE, "python"))))
def test_a_program_of_the_page_runs(number: int) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks_of(PAGE, "python")[number], PAGE, "exec"), names)
    for name, function in list(names.items()):
        if name.startswith("test_"):
            with RocketMQ() as mq:
                function(mq)


def test_the_calls_named_exist_and_nearly_all_in_both_modes() -> None:
    mq = RocketMQ()
    named = set(CALL.findall((DOCS / PAGE).read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if not hasattr(mq, name)] == []
    for name in ("messages", "assert_stored", "drop", "delay", "answer_with", "kill_broker"):
        assert hasattr(LoopbackRocketMQ, name)
