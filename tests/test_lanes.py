"""Do the workers of a parallel run get the files that `lanes` means for them, and every test once?"""

from __future__ import annotations

from typing import Any

from lanes import TwoLanes

CELLS = [
    *("tests/interop/test_a.py::one", "tests/interop/test_a.py::two"),
    *("tests/interop/test_b.py::one", "tests/interop/test_c.py::one"),
]
OTHERS = ["tests/store/test_d.py::one", "tests/codec/test_e.py::one"]


class Worker:
    """Notes what it was told to run."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway = type("Gateway", (), {"id": name})
        self.shutting_down = False
        self.told: list[str] = []
        self._tests = tests

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += [self._tests[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def begin(tests: list[str]) -> tuple[Any, Worker, Worker]:
    """Two workers, at the start of a run."""
    config: Any = type("Config", (), {})()
    config.option = type("Option", (), {"loadscopereorder": True})
    config.getvalue = {"tx": ["popen", "popen"]}.get
    lanes: Any = TwoLanes(config)
    first, second = workers = Worker("gw0", tests), Worker("gw1", tests)
    for worker in workers:
        lanes.add_node(worker)
    for worker in workers:
        lanes.add_node_collection(worker, tests)
    lanes.schedule()
    return lanes, first, second


def test_cells_are_for_the_first_worker_and_the_rest_for_the_others() -> None:
    _, first, second = begin([*CELLS[:3], *OTHERS])
    assert first.told == CELLS[:3]
    assert second.told == OTHERS


def test_who_has_none_left_helps_with_the_rest() -> None:
    tests = [*CELLS, *OTHERS]
    lanes, first, second = begin(tests)
    lanes.mark_test_complete(second, tests.index(OTHERS[0]))
    assert sorted([*first.told, *second.told]) == sorted(tests)
    assert second.told == [*OTHERS, CELLS[3]]
