"""Does the store keep its promises with batch queues, light queues and extensions?"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.conftest import SEEDS
from tests.sim.kinds import KINDS_ACTIONS, KindsWorld
from tests.sim.replay import fails, replay
from txrocketmq.store.batchqueue import BatchConsumeQueue
from txrocketmq.store.extension import Extension
from txrocketmq.store.lightqueues import LightQueues

COUNT = 150


@pytest.mark.parametrize("block", range(0, COUNT, 50))
def test_promises_are_kept_with_queues_of_all_kinds(block: int, request: Any) -> None:
    first = request.config.getoption("seed", default=None)
    if first is not None:
        if block == 0:
            replay(first, KINDS_ACTIONS, KindsWorld)
        return
    for seed in range(block, block + 50):
        replay(seed, KINDS_ACTIONS, KindsWorld)


def begin_anew(extension: Extension, disk: Any, last_address: int | None) -> None:
    """The extension goes on at its start, over what is there."""


#: What is done wrong: the owner, the name of what is replaced, and what stands there instead.
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "batch queues are not cut": (BatchConsumeQueue, "cut_beyond", lambda *_: False),
    "light queues are not derived": (LightQueues, "derived", lambda *_: ()),
    "places in an extension are used twice": (Extension, "load", begin_anew),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_does_something_wrong_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(fails(seed, kind=KindsWorld) for seed in range(SEEDS))
