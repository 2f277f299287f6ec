"""Where does a role's blocking work go? The pools of `txrocketmq.remoting.pools`, which clients use, too."""

from __future__ import annotations

from txrocketmq.remoting.pools import BlockingPool

__all__ = ["BlockingPool"]
