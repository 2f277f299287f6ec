"""A real all-in-one for the tests of a module; whatever they did to it, it must have said nothing that nobody foresaw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_server import RawLink, RealServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Name server and broker in one process."""
    with RealServer("rocketmq", tmp_path_factory.mktemp("server")) as started:
        yield started
        assert started.end() == 0
        started.assert_calm()


@pytest.fixture
def good(server: RealServer) -> Iterator[RawLink]:
    """A well-behaved client of the broker that is served before the test and after it."""
    with server.link() as link:
        link.send_message("Good")
        yield link
        link.send_message("Good")
