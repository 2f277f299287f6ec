"""Real servers for the situations from the field; each test drives them from outside over loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_server import RawLink, RealServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """An all-in-one with default settings, for tests that leave it as it is."""
    with RealServer("rocketmq", tmp_path_factory.mktemp("server")) as started:
        yield started
        assert started.end() == 0
        started.assert_calm()


@pytest.fixture
def link(server: RealServer) -> Iterator[RawLink]:
    """A client's link to its broker."""
    with server.link() as made:
        yield made
