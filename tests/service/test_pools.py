"""Do blocking pools keep their bound and end their threads?"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer
from zope.interface.verify import verifyObject

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IBlockingPool
from txrocketmq.service.pools import BlockingPool
from txrocketmq.testing.pools import ImmediatePool, ManualPool


@implementer(IReactorFromThreads)
class CallQueue:
    """The one thing of a reactor that a pool needs: calls from threads, run when the test says so."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._arrived = threading.Condition()

    def callFromThread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        with self._arrived:
            self._calls.append(lambda: function(*args, **kwargs))
            self._arrived.notify()

    def run_all(self) -> None:
        """Run what is there, and wait for nothing."""
        while self._calls:
            self._calls.popleft()()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._calls, timeout=30)
                call = self._calls.popleft()
            call()


@pytest.fixture
def reactor() -> CallQueue:
    return CallQueue()


@pytest.fixture
def make_pool(reactor: CallQueue) -> Iterator[Callable[..., BlockingPool]]:
    """Makes pools that end with the test, however it ends: a thread that is left keeps the process from ending."""
    pools: list[BlockingPool] = []

    def make(name: str, threads: int, **options: int) -> BlockingPool:
        pools.append(BlockingPool(reactor, name, threads, **options))
        return pools[-1]

    yield make
    for pool in pools:
        stopped: list[object] = []
        pool.stop().addCallback(stopped.append)
        reactor.run_until(lambda stopped=stopped: bool(stopped))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Jobs wait for it; opened at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("make", [lambda: ImmediatePool(), lambda: ManualPool()])
def test_stand_ins_provide_the_interface(make: Callable[[], object]) -> None:
    verifyObject(IBlockingPool, make())


def test_work_runs_in_a_named_thread_and_its_result_comes_back(reactor: CallQueue) -> None:
    pool = BlockingPool(reactor, "flush", 1)
    verifyObject(IBlockingPool, pool)
    names: list[str] = []
    pool.submit(lambda suffix: threading.current_thread().name + suffix, "!").addCallback(
        names.append
    )
    reactor.run_until(lambda: bool(names))
    assert "flush" in names[0]
    assert names[0].endswith("!")
    pool.stop()


def test_an_error_comes_back_as_a_failure(reactor: CallQueue) -> None:
    pool = BlockingPool(reactor, "files", 1)
    failures: list[Any] = []

    def fail() -> None:
        raise OSError(5, "Input/output error")

    pool.submit(fail).addErrback(failures.append)
    reactor.run_until(lambda: bool(failures))
    assert failures[0].value.errno == 5
    assert pool.jobs == 0
    pool.stop()


def test_more_than_the_bound_is_refused(
    reactor: CallQueue, make_pool: Callable[..., BlockingPool], gate: threading.Event
) -> None:
    pool = make_pool("read", 1, limit=2)
    done: list[object] = []
    for number in range(2):
        pool.submit(gate.wait, 30).addCallback(lambda _, number=number: done.append(number))
    refused: list[Any] = []
    pool.submit(int).addErrback(refused.append)
    assert refused[0].check(StoreError)
    assert "read is full" in refused[0].getErrorMessage()
    gate.set()
    reactor.run_until(lambda: len(done) == 2)
    pool.submit(int).addCallback(done.append)
    reactor.run_until(lambda: len(done) == 3)


def test_stop_waits_for_accepted_work_and_ends_the_threads(reactor: CallQueue) -> None:
    before = threading.active_count()
    pool = BlockingPool(reactor, "files", 3)
    gate = threading.Event()
    done: list[object] = []
    for _ in range(5):
        pool.submit(gate.wait, 30).addCallback(done.append)
    stopped: list[int] = []
    pool.stop().addCallback(lambda _: stopped.append(len(done)))
    pool.stop().addCallback(lambda _: stopped.append(len(done)))
    refused: list[Any] = []
    pool.submit(int).addErrback(refused.append)
    assert refused[0].check(StoreError)
    assert stopped == []
    gate.set()
    reactor.run_until(lambda: len(stopped) == 2)
    assert stopped == [5, 5]
    assert threading.active_count() == before


def test_the_end_of_one_job_does_not_end_a_pool_that_stops(
    reactor: CallQueue, make_pool: Callable[..., BlockingPool], gate: threading.Event
) -> None:
    pool = make_pool("files", 2)
    done: list[object] = []
    pool.submit(gate.wait, 5).addCallback(done.append)
    pool.submit(int).addCallback(done.append)
    stopped: list[object] = []
    pool.stop().addCallback(stopped.append)
    reactor.run_until(lambda: done == [0])
    reactor.run_all()
    assert stopped == []
    gate.set()
    reactor.run_until(lambda: bool(stopped))
    assert done == [0, True]


def test_stopping_an_idle_pool_is_done_at_once(reactor: CallQueue) -> None:
    pool = BlockingPool(reactor, "files", 3)
    stopped: list[object] = []
    pool.stop().addCallback(stopped.append)
    pool.stop().addCallback(stopped.append)
    assert stopped == [None, None]
