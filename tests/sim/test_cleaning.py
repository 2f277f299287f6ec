"""Does the store keep its promises while old messages go and disks fill up?"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.cleaning import CLEANING_ACTIONS, CleaningWorld
from tests.sim.conftest import SEEDS
from tests.sim.replay import fails, replay
from txrocketmq.store import mapped, retention
from txrocketmq.store.logdirs import Readers
from txrocketmq.store.retention import Retention

COUNT = 400


@pytest.mark.parametrize("block", range(0, COUNT, 50))
def test_promises_are_kept_while_files_are_deleted(block: int, request: Any) -> None:
    first = request.config.getoption("seed", default=None)
    if first is not None:
        if block == 0:
            replay(first, CLEANING_ACTIONS, CleaningWorld)
        return
    for seed in range(block, block + 50):
        replay(seed, CLEANING_ACTIONS, CleaningWorld)


async def at_once(cleaner: Retention, following: Any) -> bool:
    return True


async def end_of_log(cleaner: Retention) -> int:
    return cleaner._queue.max_offset


def nothing_follows(*_: Any) -> Any:
    async def follow() -> None:
        return None

    return follow()


def without_sync(disk: Any, mapping: Any, path: str) -> None:
    if mapping is not None:
        mapping.close()
    disk.remove(path)


#: What is done wrong: the owner, the name of what is replaced, and what stands there instead.
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "files go before their time": (Retention, "_is_expired", at_once),
    "files go under readers": (Readers, "need", lambda readers, path: False),
    "queues may forget what goes": (Retention, "_make_queues_safe", end_of_log),
    "queues do not follow the log": (retention, "correct_queues", nothing_follows),
    "a deletion is not synced": (mapped, "discard", without_sync),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_cleaning_that_does_something_wrong_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(fails(seed, kind=CleaningWorld) for seed in range(SEEDS))
