"""Would the simulation notice if the store did not do its work? Faults are put in; some of the schedules of CI must fail.

A simulation that finds nothing proves something only because it finds these.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.conftest import SEEDS
from tests.sim.replay import fails
from txrocketmq.store import commitlog, flush, queuetable, recover, unitlog
from txrocketmq.store.abortfile import AbortFile
from txrocketmq.store.catchup import IndexCatchUp, QueueRebuild
from txrocketmq.store.checkpoint import StoreCheckpoint
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.flush import LogFlusher
from txrocketmq.store.index import IndexService
from txrocketmq.store.queuetable import QueueTable
from txrocketmq.testing.simdisk import Faults, SimulatedDisk


def noticed(faults: Faults | None = None, **keys: object) -> bool:
    """Whether one of the schedules breaks a promise; most faults break one within the first hundred."""
    return any(fails(seed, faults, **keys) for seed in range(SEEDS))


def nothing(*_: Any, **__: Any) -> None:
    return None


def no(*_: Any, **__: Any) -> bool:
    return False


def yes(*_: Any, **__: Any) -> bool:
    return True


def no_fault_of_record(offset: int, head: Any) -> str | None:
    return None


def write_without_sync(disk: Any, writes: Any, sync: bool) -> None:
    unitlog.write_units(disk, writes, False)


def count_what_came_meanwhile(flusher: Any, _: object, target: int, timestamp_ms: int) -> None:
    _synced(flusher, _, flusher._log.max_offset, timestamp_ms)


def flush_only_when_it_is_due(table: QueueTable, now_ms: int) -> Any:
    failure, table.failure = table.failure, None
    done = _flush_due(table, now_ms)
    table.failure = failure
    return done


def trust_the_index(index: IndexService, clean: bool) -> None:
    index.__dict__.update(drop_foreign=nothing, cut_beyond=no)
    _load_index(index, clean)


_load_index = IndexService.load
_flush_due = QueueTable.flush_due
_synced = LogFlusher._synced
_run = recover.Recoverer.run

#: What is done wrong: the owner, the name of what is replaced, and what stands there instead.
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the flusher answers without a sync": (flush, "_sync_spans", nothing),
    "a sync is said to cover what was appended meanwhile": (
        LogFlusher,
        "_synced",
        count_what_came_meanwhile,
    ),
    "after EIO the log is written on": (flush, "_is_lost", no),
    "after EIO and a restart the log is trusted": (
        AbortFile,
        "unsafe_offset",
        lambda abort: 1 << 62,
    ),
    "a torn end of properties is taken for a record": (
        commitlog,
        "record_fault",
        no_fault_of_record,
    ),
    "a hole that a power failure left is taken for damage": (recover, "looks_lost", no),
    "queues are not cut": (ConsumeQueue, "cut_beyond", no),
    "units of queues are not synced": (queuetable, "write_units", write_without_sync),
    "directories are not synced": (SimulatedDisk, "sync_directory", nothing),
    "what a start changed is not synced": (SimulatedDisk, "sync_all", nothing),
    "what is cut off the log stays there": (SimulatedDisk, "zero_from", nothing),
    "every stop counts as orderly": (
        recover.Recoverer,
        "run",
        lambda recoverer, clean: _run(recoverer, True),
    ),
    "the checkpoint promises too much": (StoreCheckpoint, "min_timestamp_ms", 1 << 62),
    "index files are trusted after a crash": (IndexService, "_is_synced", yes),
    "index files may point beyond the log": (IndexService, "load", trust_the_index),
    "queues that are derived again take messages": (QueueRebuild, "covers", no),
    "the checkpoint stays ahead of what a start cuts": (
        recover.Recoverer,
        "_hold_checkpoint",
        nothing,
    ),
    "queues that were left out of a flush count as flushed": (
        QueueTable,
        "_complete_to_ms",
        lambda table, kept: table.newest_timestamp_ms,
    ),
    "an index that is behind is left so": (
        IndexCatchUp,
        "begin",
        property(lambda walk: walk._commit_log.max_offset),
    ),
    "a message between two index files loses keys": (IndexService, "_put_missing", nothing),
    "a failed flush of queues is not tried again": (
        QueueTable,
        "flush_due",
        flush_only_when_it_is_due,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_store_does_something_wrong(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert noticed()


def test_a_device_only_says_that_it_synced() -> None:
    assert noticed(Faults(lying_sync=True))


def test_the_crc_of_bodies_is_not_checked() -> None:
    assert noticed(check_crc_on_recover=False)
