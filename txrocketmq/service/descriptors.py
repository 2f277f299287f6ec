"""How many connections may this process have, so that its store never lacks a file descriptor?

The official start scripts raise the limit with ``ulimit -n``; here the process does it, as far as it may.
"""

from __future__ import annotations

import resource

from txrocketmq.remoting.budget import Room

RESERVED = 1024
"""Descriptors kept for files, for connections to other servers and for the process itself; where the limit is small, half of it."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open files to the hard one; the limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connection_room(descriptors: int) -> Room:
    """Room for the connections of all ports of this process.

    :param descriptors: the limit on open files.
    """
    return Room(max(descriptors - RESERVED, descriptors // 2))
