"""Does a compacted topic keep the latest message of each key while the store fails, is cleaned and is killed?"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import succeed

from tests.sim.compacted import COMPACTED_ACTIONS, CompactedWorld
from tests.sim.conftest import SEEDS
from tests.sim.replay import fails, replay
from txrocketmq.store.compaction import rewrite
from txrocketmq.store.compaction.compaction_store import CompactionStore

COUNT = 150


@pytest.mark.parametrize("block", range(0, COUNT, 50))
def test_the_latest_of_each_key_is_served(block: int, request: Any) -> None:
    first = request.config.getoption("seed", default=None)
    if first is not None:
        if block == 0:
            replay(first, COMPACTED_ACTIONS, CompactedWorld)
        return
    for seed in range(block, block + 50):
        replay(seed, COMPACTED_ACTIONS, CompactedWorld)


def copied(store: CompactionStore) -> Any:
    return succeed(True)


#: What is done wrong: the owner, the name of what is replaced, and what stands there instead.
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the log's files go before they are copied": (CompactionStore, "catch_up", copied),
    "the newest message of a key goes too": (
        rewrite,
        "stays",
        lambda kept, newest: kept.queue_offset > newest.get(kept.key),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_compaction_that_does_something_wrong_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(fails(seed, kind=CompactedWorld) for seed in range(SEEDS))
