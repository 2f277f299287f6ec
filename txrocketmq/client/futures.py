"""How does asyncio code await what the client returns? As futures.

Code that Twisted runs awaits Deferreds as they are. A coroutine that asyncio runs (a web handler, say) can await only asyncio's own; with the
asyncio reactor installed both live in one loop, and `as_future` is the bridge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred

T = TypeVar("T")


def as_future(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """A Deferred, or a coroutine that awaits Deferreds, as a future of the running loop; cancelling the future cancels it.

    :raises RuntimeError: no asyncio loop runs here.
    """
    loop = asyncio.get_running_loop()
    deferred: Deferred[Any] = (
        awaitable
        if isinstance(awaitable, Deferred)
        else Deferred.fromCoroutine(cast("Any", awaitable))
    )
    return deferred.asFuture(loop)
