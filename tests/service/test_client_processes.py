"""Our producer in a process of its own, our servers in another, on each kind of reactor."""

from __future__ import annotations

import pytest
from child_producer import produce
from launch import AllInOne

COUNT = 200


@pytest.mark.parametrize(
    ("reactor", "name"),
    [("", "EPollReactor"), ("select", "SelectReactor"), ("asyncio", "AsyncioSelectorReactor")],
)
def test_messages_are_stored_on_every_reactor(
    all_in_one: AllInOne, reactor: str, name: str
) -> None:
    seed = f"s{reactor}"
    found = produce(
        all_in_one.namesrv, f"Topic-{seed}", seed, COUNT, "async", CLIENT_REACTOR=reactor
    )
    assert found["client"] == name
    assert {place[1] for place in found["sent"]} == {"SEND_OK"}
    places = {tuple(place[2:5]) for place in found["sent"]}
    assert len(places) == COUNT
    assert {place[2] for place in found["sent"]} == {"broker-a"}


def test_a_batch(all_in_one: AllInOne) -> None:
    batch = produce(all_in_one.namesrv, "Batch", "b", COUNT, "batch")
    assert sum(batch["sent"]) == COUNT
