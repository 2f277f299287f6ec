"""Does the store keep its promises when the kernel syncs its log, without a thread?"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import succeed

from tests.sim.kernel import FAILING_ACTIONS, KernelWorld, SimulatedKernel
from tests.sim.replay import fails, replay
from tests.sim.world import FIRST_ACTIONS
from txrocketmq.store.flush import LogFlusher

COUNT = 100


@pytest.mark.parametrize("block", range(0, COUNT, 50))
def test_promises_are_kept_when_the_kernel_syncs(block: int, request: Any) -> None:
    first = request.config.getoption("seed", default=None)
    if first is not None:
        if block == 0:
            replay(first, FIRST_ACTIONS, KernelWorld)
        return
    for seed in range(block, block + 50):
        replay(seed, FIRST_ACTIONS, KernelWorld)


def test_promises_are_kept_when_syncs_of_the_kernel_fail(request: Any) -> None:
    first = request.config.getoption("seed", default=None)
    for seed in range(50) if first is None else [first]:
        replay(seed, FAILING_ACTIONS, KernelWorld)


@pytest.mark.parametrize("seed", [200246, 200413])
def test_faults_that_were_found_stay_mended(seed: int) -> None:
    """A sync of pages that were made ready failed, which the kernel told to nobody else."""
    replay(seed, FAILING_ACTIONS, KernelWorld)


def test_the_kernel_has_much_to_do() -> None:
    worlds = [KernelWorld(seed) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(world.kernel_syncs for world in worlds) > 30


def sync_the_last_file(flusher: LogFlusher, spans: Any, flushed_offset: int) -> Any:
    return _start_sync(flusher, spans[-1:], flushed_offset)


_start_sync = LogFlusher._start_sync

#: What is done wrong: the owner, the name of what is replaced, and what stands there instead.
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the kernel only says that it synced": (SimulatedKernel, "sync", lambda *_: succeed(None)),
    "a file that just became full is not synced": (LogFlusher, "_start_sync", sync_the_last_file),
    "an error of the device is not noted for the next start": (
        LogFlusher,
        "_note_lost",
        lambda flusher, failure, offset: failure,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_kernel_syncs_are_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(
        fails(seed, kind=KernelWorld, actions=actions)
        for actions in (FIRST_ACTIONS, FAILING_ACTIONS)
        for seed in range(COUNT)
    )
