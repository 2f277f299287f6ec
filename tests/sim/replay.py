"""How is one schedule run so that a failure can be understood? With its seed and what happened at its end."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.sim.world import FIRST_ACTIONS, World
from txrocketmq.testing.simdisk import Faults

LINES = 40


def replay(
    seed: int, actions: Mapping[str, int] = FIRST_ACTIONS, kind: type[World] = World
) -> None:
    """Run the schedule of a seed; a failure says how to see it again.

    :param actions: the table that the seed belongs to.
    :param kind: what kind of schedule.
    """
    world = kind(seed, actions=actions)
    try:
        world.run()
    except Exception as error:
        story = "\n".join(world.history[-LINES:])
        pytest.fail(
            f"seed {seed}: {error}\nreplay it with: pytest tests/sim --seed {seed}\n{story}",
            pytrace=not isinstance(error, AssertionError),
        )


def fails(
    seed: int, faults: Faults | None = None, kind: type[World] = World, **keys: object
) -> bool:
    """Whether the schedule of a seed breaks a promise."""
    try:
        kind(seed, faults, **keys).run()
    except Exception:
        return True
    return False
