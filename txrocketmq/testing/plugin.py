"""Which fixtures does pytest get from an installed txrocketmq? ``rocketmq`` and ``rocketmq_loopback``; nothing is imported until a test asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from txrocketmq.testing.kit import RocketMQ
    from txrocketmq.testing.loopback import LoopbackRocketMQ


@pytest.fixture
def rocketmq() -> Iterator[RocketMQ]:
    """A name server and a broker in memory, and a virtual clock: see `txrocketmq.testing.kit.RocketMQ`."""
    from txrocketmq.testing.kit import RocketMQ

    with RocketMQ() as started:
        yield started


@pytest.fixture
def rocketmq_loopback() -> Iterator[LoopbackRocketMQ]:
    """A name server and a broker on ports of this machine: see `txrocketmq.testing.loopback.LoopbackRocketMQ`."""
    from txrocketmq.testing.loopback import LoopbackRocketMQ

    with LoopbackRocketMQ() as started:
        yield started
