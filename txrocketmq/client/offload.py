"""Is there a thread for what takes long? The reactor's own pool, where the reactor has threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads
from twisted.internet.threads import deferToThreadPool

LARGE_BODY_BYTES = 256 * 1024
"""Bodies of at least this length are compressed in a thread, where there are threads."""


def threads_of(reactor: Any) -> Callable[..., Deferred[Any]] | None:
    """What calls a function in a thread, and gives a Deferred of its result; None where the reactor has no threads."""
    if not IReactorThreads.providedBy(reactor):
        return None

    def offload(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    return offload
