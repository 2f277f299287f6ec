"""What may others plug into a broker? Found as twisted plug-ins, chosen by the key `brokerPlugins`.

Stands for ``SendMessageHook``, ``ConsumeMessageHook`` and ``BrokerAttachedPlugin``. All of it is called in the reactor's thread: who has to
wait for something returns a Deferred from ``before_send``, or does it elsewhere. `txrocketmq.broker.plugins.base.BrokerPlugin` does
nothing, and is there to be derived from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from txrocketmq.broker.plugins.views import PulledView, PullView, SendView


class IBrokerPlugin(Interface):
    """One plug-in. A hook may refuse what a client asks, by a `ResponseError` whose code and remark the client gets. It may change
    nothing. Any other error is logged, and everything goes on as if there were no plug-in."""

    name = Attribute("What `brokerPlugins` calls it.")

    def start(broker_name: str) -> None:
        """The broker begins to serve. An error here keeps it from starting."""

    def stop() -> None:
        """The broker stops."""

    def leads_changed(leads: bool) -> None:
        """The broker is a master from now on (or acts as one), or it is not any more."""

    def before_send(send: SendView) -> Deferred[None] | None:
        """Somebody sends. With a Deferred the send waits for it, three seconds at most; then it is refused with SYSTEM_BUSY."""

    def after_send(send: SendView, code: int, remark: str | None) -> None:
        """The send was answered so."""

    def before_pull(pull: PullView) -> None:
        """Somebody pulls, also when the pull will be held."""

    def pulled(pull: PulledView) -> None:
        """A pull is answered with messages."""

    def figures() -> Mapping[str, str]:
        """What the run-time info says besides, by key."""
