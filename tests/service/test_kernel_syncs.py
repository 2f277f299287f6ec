"""Does the kernel sync what it is asked to, say when it is done, and stay closed where it cannot?"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.interfaces import IReadDescriptor
from zope.interface.verify import verifyObject

from txrocketmq.interfaces import IKernelSyncs
from txrocketmq.service import kernel_syncs
from txrocketmq.service.kernel_syncs import MOST_AT_ONCE, KernelSyncs


class Readers:
    """What the syncs need of a reactor; `run` waits for what they read."""

    def __init__(self) -> None:
        self.readers: list[Any] = []

    def addReader(self, reader: Any) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.remove(reader)

    def run(self) -> None:
        # Not by ``select``: a run of many tests may hold more than 1,024 descriptors.
        poll = select.poll()
        readers = {reader.fileno(): reader for reader in self.readers}
        for descriptor in readers:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(60_000)
        assert ready, "nothing is told within a minute"
        for descriptor, _ in ready:
            readers[descriptor].doRead()


@pytest.fixture
def reactor() -> Readers:
    return Readers()


@pytest.fixture
def syncs(reactor: Readers) -> Iterator[KernelSyncs]:
    made = KernelSyncs(reactor)
    made.open()
    assert made.is_open, "Linux since 4.18 has these calls"
    yield made
    made.close()
    assert reactor.readers == []


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, b"x" * 10_000, 0)
    yield descriptor
    os.close(descriptor)


def test_provides_the_interface(syncs: KernelSyncs) -> None:
    verifyObject(IKernelSyncs, syncs)
    verifyObject(IReadDescriptor, syncs)


def test_a_sync_is_told_of_when_it_is_over(syncs: KernelSyncs, reactor: Readers, file: int) -> None:
    for end in (10_000, 20_000):
        job = syncs.sync(file, end)
        assert job is not None
        assert not job.called
        while not job.called:
            reactor.run()
        assert job.result is None


def test_several_syncs_are_told_of_one_by_one(
    syncs: KernelSyncs, reactor: Readers, file: int
) -> None:
    jobs = [syncs.sync(file, end) for end in range(MOST_AT_ONCE)]
    assert None not in jobs
    assert syncs.sync(file, 0) is None, "a mark is in use once"
    assert syncs.sync(file, MOST_AT_ONCE) is None, "more than there is room for"
    while not all(job is not None and job.called for job in jobs):
        reactor.run()
    assert syncs.sync(file, 0) is not None


def test_what_cannot_be_synced_is_left_to_others(syncs: KernelSyncs) -> None:
    reading, writing = os.pipe()
    assert syncs.sync(writing, 1) is None
    os.close(reading)
    os.close(writing)
    assert syncs.sync(writing, 2) is None


def test_a_failed_sync_fails_with_its_error(
    syncs: KernelSyncs, reactor: Readers, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = syncs._call

    def failing(number: Any, *args: Any) -> Any:
        result = call(number, *args)
        if number is syncs._get_events and result > 0:
            syncs._events[0].result = -errno.EIO
        return result

    job = syncs.sync(file, 1)
    assert job is not None
    monkeypatch.setattr(syncs, "_call", failing)
    found: list[Any] = []
    job.addBoth(found.append)
    while not found:
        reactor.run()
    assert found[0].check(OSError)
    assert found[0].value.errno == errno.EIO


def test_when_nothing_can_be_learned_any_more_it_is_closed(
    syncs: KernelSyncs, reactor: Readers, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = syncs._call
    job = syncs.sync(file, 1)
    assert job is not None
    found: list[Any] = []
    job.addErrback(found.append)

    def refusing(number: Any, *args: Any) -> Any:
        if number is not syncs._get_events:
            return call(number, *args)
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(syncs, "_call", refusing)
    while not found:
        reactor.run()
    assert found[0].value.errno == errno.ECANCELED
    assert not syncs.is_open
    assert reactor.readers == []


def test_a_signal_is_no_reason_to_give_a_sync_up(
    syncs: KernelSyncs, reactor: Readers, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed sync makes the log read-only until the next start."""
    call = syncs._call
    interrupted = 0

    def interrupting(number: Any, *args: Any) -> Any:
        nonlocal interrupted
        if number is syncs._get_events and interrupted < 2:
            interrupted += 1
            os.eventfd_write(syncs.fileno(), 1)
            ctypes.set_errno(errno.EINTR)
            return -1
        return call(number, *args)

    job = syncs.sync(file, 1)
    assert job is not None
    monkeypatch.setattr(syncs, "_call", interrupting)
    while not job.called:
        reactor.run()
    assert interrupted == 2
    assert job.result is None
    assert syncs.is_open


def test_closed_ones_take_nothing(reactor: Readers, file: int) -> None:
    syncs = KernelSyncs(reactor)
    assert syncs.sync(file, 1) is None
    syncs.open()
    jobs = [syncs.sync(file, end) for end in (1, 2)]
    syncs.close()
    syncs.close()
    assert syncs.sync(file, 3) is None
    assert not syncs.is_open
    # What was under way is known.
    assert [job.result for job in jobs if job is not None] == [None, None]
    syncs.open()
    assert syncs.sync(file, 4) is not None
    syncs.close()


def test_a_sync_whose_outcome_nobody_can_say_is_not_taken_for_done(
    reactor: Readers, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = KernelSyncs(reactor)
    syncs.open()
    job = syncs.sync(file, 1)
    assert job is not None
    found: list[Any] = []
    job.addErrback(found.append)
    monkeypatch.setattr(syncs, "_ended", lambda at_least: None)
    syncs.close()
    assert [failure.value.errno for failure in found] == [errno.ECANCELED]


@pytest.mark.parametrize("what", ["setup", "eventfd", "submit"])
def test_where_the_calls_are_not_allowed_threads_do_the_work(
    what: str, reactor: Readers, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose filter of system calls does not know them."""

    def refuse(*args: Any) -> Any:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    numbers = list(kernel_syncs._CALLS[platform.machine()])
    unknown = 100_000
    if what == "eventfd":
        monkeypatch.setattr(os, "eventfd", refuse)
    else:
        numbers[("setup", "submit").index(what) * 3] = unknown
        monkeypatch.setitem(kernel_syncs._CALLS, platform.machine(), tuple(numbers))
    syncs = KernelSyncs(reactor)
    syncs.open()
    assert syncs.is_open is (what == "submit")
    assert syncs.sync(file, 1) is None
    assert not syncs.is_open
    assert reactor.readers == []
    syncs.close()


def test_unknown_machines_have_none(reactor: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    syncs = KernelSyncs(reactor)
    syncs.open()
    assert not syncs.is_open
    assert reactor.readers == []
