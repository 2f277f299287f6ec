"""Is a message safe that a controlled group acknowledged, whoever fails and whoever is elected then? Hundreds of schedules, each from a seed.

The promises are those of `tests.sim.controlled`. Faults that are put in must be noticed by some of these schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.controlled import Violation, replay
from txrocketmq.broker.replication.controlled import Controlled
from txrocketmq.codec.epochfile import EpochEntry
from txrocketmq.ha import autoswitch
from txrocketmq.ha.autoservice import AutoSwitchService
from txrocketmq.ha.epochs import EpochCache
from txrocketmq.ha.syncset import SyncStateSet

SEEDS = 120


def test_promises_are_kept(seeds: range) -> None:
    for seed in seeds:
        replay(seed)


#: What schedules found, and a seed that shows it.
FOUND = [
    (500198, "a master became a slave while the device had its last messages, and they were safe"),
    (520060, "a master just started again counted as well, and the other one died, elected"),
]


@pytest.mark.parametrize(
    "seed", [seed for seed, _ in FOUND], ids=[fault.replace(" ", "-") for _, fault in FOUND]
)
def test_what_was_found_stays_mended(seed: int) -> None:
    replay(seed)


# ----------------------------------------------------------------- faults

Patch = Callable[[pytest.MonkeyPatch], None]


def older_terms_are_obeyed(patch: pytest.MonkeyPatch) -> None:
    obey = Controlled._obey

    def obey_any(self: Controlled, ruling: Any) -> None:
        if ruling.epoch != self.master_epoch:
            self.master_epoch = min(self.master_epoch, ruling.epoch - 1)
        obey(self, ruling)

    patch.setattr(Controlled, "_obey", obey_any)
    patch.setattr(AutoSwitchService, "_check_term", lambda self, epoch: None)


def an_old_master_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AutoSwitchService, "become_slave", AutoSwitchService._check_term)


def the_set_shrinks_without_the_controller(patch: pytest.MonkeyPatch) -> None:
    def want(self: AutoSwitchService, wanted: frozenset[int]) -> None:
        self.set_members(wanted, self.members.epoch + 1)

    patch.setattr(AutoSwitchService, "_want", want)


def the_set_does_not_shrink(patch: pytest.MonkeyPatch) -> None:
    want = AutoSwitchService._want

    def only_more(self: AutoSwitchService, wanted: frozenset[int]) -> None:
        if wanted > self.members.agreed:
            want(self, wanted)

    patch.setattr(AutoSwitchService, "_want", only_more)


def nothing_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(autoswitch, "consistent_point", lambda ours, end, theirs, their_end: end)


def senders_hear_before_the_replicas_have_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AutoSwitchService, "_has", lambda self, replicas, end_offset: True)


def readers_see_what_replicas_lack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncStateSet, "agreed_offset", lambda self, ends, own_end, before: own_end)


def a_start_shows_everything(patch: pytest.MonkeyPatch) -> None:
    load = AutoSwitchService.load

    def show(self: AutoSwitchService) -> None:
        load(self)
        self._store.set_confirm_offset(self._store.max_physical_offset())

    patch.setattr(AutoSwitchService, "load", show)


def a_term_that_goes_on_is_noted_anew(patch: pytest.MonkeyPatch) -> None:
    def begin(self: EpochCache, epoch: int, end: int) -> None:
        self._keep([entry for entry in self.entries if entry.epoch < epoch])
        self.append(EpochEntry(epoch, end))

    def same_start(ours: Any, our_end: int, theirs: Any, their_end: int) -> int | None:
        starts = {(entry.epoch, entry.start_offset) for entry in theirs}
        for entry in reversed(ours):
            if entry in starts:
                ends = [e.start_offset for e in (*ours, *theirs) if e.epoch > entry.epoch]
                return min([our_end, their_end, *ends])
        return None

    patch.setattr(EpochCache, "begin", begin)
    patch.setattr(autoswitch, "consistent_point", same_start)


FAULTS: list[Patch] = [
    older_terms_are_obeyed,
    an_old_master_goes_on,
    the_set_shrinks_without_the_controller,
    the_set_does_not_shrink,
    nothing_is_cut,
    senders_hear_before_the_replicas_have_it,
    readers_see_what_replicas_lack,
    a_start_shows_everything,
    a_term_that_goes_on_is_noted_anew,
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_faults_are_noticed(fault: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert any(breaks(seed) for seed in range(SEEDS))


def breaks(seed: int) -> bool:
    try:
        replay(seed)
    except Violation:
        return True
    return False
