"""What is said about replication: the states of a link, and what became of a message that replicas were waited for."""

from __future__ import annotations

from enum import Enum


class LinkState(Enum):
    """Where a replication link stands (official ``HAConnectionState``)."""

    READY = "READY"
    """A slave without a connection."""
    HANDSHAKE = "HANDSHAKE"
    """Both sides compare terms of mastership (auto-switch only)."""
    TRANSFER = "TRANSFER"
    """The log flows."""
    SUSPEND = "SUSPEND"
    """A slave that must not follow for now."""
    SHUTDOWN = "SHUTDOWN"
    """Over."""


class Replicated(Enum):
    """Does a message have the replicas that its sender was promised?"""

    YES = "yes"
    TIMED_OUT = "not within slaveTimeout"
    NO_SLAVE = "no slave follows closely enough"
