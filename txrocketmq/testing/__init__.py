"""What do tests of applications, and our own, need in place of disks, threads, sockets and hours? See `testing.kit` and docs/test-kit.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txrocketmq.testing.kit import RocketMQ
    from txrocketmq.testing.loopback import LoopbackRocketMQ

__all__ = ["LoopbackRocketMQ", "RocketMQ"]

_HOMES = {
    "RocketMQ": "txrocketmq.testing.kit",
    "LoopbackRocketMQ": "txrocketmq.testing.loopback",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: pytest loads this package for every run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
