"""Does the store keep its promises whatever disk, threads and clock do? Thousands of schedules, each from a seed.

After every crash: each message that was answered under SYNC_FLUSH, or shown to readers, is there at its place; the log is a
prefix of what was written; queues are gapless and equal to a replay of the log; keys find messages; everybody gets an answer.
"""

from __future__ import annotations

import pytest

from tests.sim.replay import replay
from tests.sim.world import FIRST_ACTIONS


def test_promises_are_kept(seeds: range) -> None:
    for seed in seeds:
        replay(seed)


#: Seeds that failed once, with the fault that they found. What a seed does depends on each disk operation of the store, so they
#: are no proof that the fault is gone; `test_faults_are_noticed` and the tests in `tests/store` are.
FOUND = [
    (0, "a queue's file got no length, a later one did"),
    (2, "a message had its keys in two index files, and lost those in the second"),
    (10, "an index file was unmapped while it was asked"),
    (16, "the directories of new queues were not synced"),
    (52, "log files that an earlier life had left unsynced counted as flushed"),
    (57, "after EIO and a restart pages were trusted that the device never got"),
    (60, "a record passed whose properties were not written"),
    (127, "units that a start had cut came back with the next power failure"),
    (177, "sends stayed refused long after queues could be written again"),
    (232, "a full disk failed the start"),
    (539, "the directories of a new store were not synced"),
    (744, "a queue that ended with units that were never written was not cut"),
    (828, "the checkpoint promised too much after the clock was set back"),
    (5756, "the checkpoint promised too much after the clock was set back twice"),
    (1253, "an index file was ahead of the log, and new messages were not indexed"),
    (100139, "a batch came when the last index file was full and closed"),
    (4412, "a start that was cut short left a gap between log files"),
]


@pytest.mark.parametrize(
    "seed", [seed for seed, _ in FOUND], ids=[fault.replace(" ", "-") for _, fault in FOUND]
)
def test_faults_that_were_found_stay_mended(seed: int) -> None:
    replay(seed, actions=FIRST_ACTIONS)
