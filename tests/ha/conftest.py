"""A network and its clock for each test."""

from __future__ import annotations

import pytest
from ha_network import Pair


@pytest.fixture
def pair() -> Pair:
    """See `Pair`."""
    return Pair()
