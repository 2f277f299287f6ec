"""Fixtures of the broker tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from small_broker import Peer, SmallBroker


@pytest.fixture
def broker() -> Iterator[SmallBroker]:
    """A broker with default settings that must stop in order."""
    made = SmallBroker()
    yield made
    made.stop()


@pytest.fixture
def peer(broker: SmallBroker) -> Peer:
    """A client's link to it."""
    return broker.connect()
