"""All addresses of a host name, by the reactor's own look-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
)
from zope.interface import implementer

Resolver = Callable[[str], Deferred[list[str]]]
"""A host name to its numeric addresses; none where it is not known."""


@implementer(IResolutionReceiver)
class _Receiver:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.done: Deferred[list[str]] = Deferred()

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing to do yet."""

    def addressResolved(self, address: Any) -> None:
        """One address; of each family and protocol once."""
        if address.host not in self.found:
            self.found.append(address.host)

    def resolutionComplete(self) -> None:
        """All are known."""
        self.done.callback(self.found)


def resolver_of(reactor: Any) -> Resolver | None:
    """Look-ups with a reactor's name resolver; None when it has none."""
    if not IReactorPluggableNameResolver.providedBy(reactor):
        return None

    def resolve(name: str) -> Deferred[list[str]]:
        receiver = _Receiver()
        reactor.nameResolver.resolveHostName(receiver, name)
        return receiver.done

    return resolve
