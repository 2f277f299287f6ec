"""A plug-in that does nothing, to be derived from."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin
from zope.interface import implementer

from txrocketmq.broker.interfaces import IBrokerPlugin
from txrocketmq.broker.plugins.views import PulledView, PullView, SendView


@implementer(IPlugin, IBrokerPlugin)
class BrokerPlugin:
    """See `IBrokerPlugin`; say what is done otherwise.

    :param name: what `brokerPlugins` calls it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, broker_name: str) -> None:
        """See `IBrokerPlugin`."""

    def stop(self) -> None:
        """See `IBrokerPlugin`."""

    def leads_changed(self, leads: bool) -> None:
        """See `IBrokerPlugin`."""

    def before_send(self, send: SendView) -> Deferred[None] | None:
        """See `IBrokerPlugin`."""
        return None

    def after_send(self, send: SendView, code: int, remark: str | None) -> None:
        """See `IBrokerPlugin`."""

    def before_pull(self, pull: PullView) -> None:
        """See `IBrokerPlugin`."""

    def pulled(self, pull: PulledView) -> None:
        """See `IBrokerPlugin`."""

    def figures(self) -> Mapping[str, str]:
        """See `IBrokerPlugin`."""
        return {}
