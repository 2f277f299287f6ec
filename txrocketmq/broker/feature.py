"""What is a feature of a broker to the broker? One more kind of message, or one more service, with a life of its own."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from zope.interface import implementer

from txrocketmq.interfaces import IBrokerFeature, IConnection
from txrocketmq.remoting.dispatch import Lane


@implementer(IBrokerFeature)
class Feature:
    """A feature that does nothing; the real ones say what they do otherwise."""

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {}

    def lane_limits(self) -> Mapping[Lane, int]:
        """See `IBrokerFeature`."""
        return {}

    def load(self) -> None:
        """See `IBrokerFeature`."""

    def start(self) -> None:
        """See `IBrokerFeature`."""

    def stop(self) -> None:
        """See `IBrokerFeature`."""

    def role_changed(self) -> None:
        """See `IBrokerFeature`."""

    def save_changes(self) -> None:
        """See `IBrokerFeature`."""

    def save(self) -> Deferred[None] | None:
        """See `IBrokerFeature`."""
        return None

    def topic_deleted(self, topic: str) -> None:
        """See `IBrokerFeature`."""

    def group_deleted(self, group: str) -> None:
        """See `IBrokerFeature`."""

    def disconnected(self, connection: IConnection) -> None:
        """See `IBrokerFeature`."""

    def figures(self) -> Mapping[str, str]:
        """See `IBrokerFeature`."""
        return {}
