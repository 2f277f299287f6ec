"""Which schedules are run? ``pytest tests/sim --seed N`` replays one, ``--seeds COUNT`` runs so many from there."""

from __future__ import annotations

import pytest

#: Without options: what fits into a minute of CPU with room to spare. A module that takes longer says so itself.
SEEDS = 1500
BLOCK = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="replay the schedule of this seed")
    group.addoption("--seeds", type=int, default=None, help="how many seeds to run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" not in metafunc.fixturenames:
        return
    # Tests of the whole tree do not know the options: they are declared too late then.
    first = metafunc.config.getoption("seed", default=None)
    count = metafunc.config.getoption("seeds", default=None)
    if count is None:
        count = getattr(metafunc.module, "SEEDS", SEEDS) if first is None else 1
    first = first or 0
    blocks = [
        range(start, min(start + BLOCK, first + count))
        for start in range(first, first + count, BLOCK)
    ]
    metafunc.parametrize("seeds", blocks, ids=[f"{block[0]}-{block[-1]}" for block in blocks])
