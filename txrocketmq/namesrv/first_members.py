"""Who tells brokers that another member of their group is the first one now? NOTIFY_MIN_BROKER_ID_CHANGE, once to each that stays.

Stands for ``notifyMinBrokerIdChanged`` of ``RouteInfoManager``. A broker that cannot be reached is left alone: it asks by itself, and
the next change is told anew.
"""

from __future__ import annotations

from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.headers import NotifyMinBrokerIdChangeRequestHeader
from txrocketmq.config.schema import NamesrvConfig
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode
from txrocketmq.namesrv.members import FirstMember

#: Milliseconds for the connection to a broker.
NOTICE_TIMEOUT_MS = 300


class FirstMemberNotices:
    """Sends the notices, if ``notifyMinBrokerIdChanged`` asks for them.

    :param client: reaches brokers at the addresses that they advertise; None in a name server that asks nobody.
    """

    _log = Logger()

    def __init__(self, config: NamesrvConfig, client: IRemotingClient | None) -> None:
        self._config = config
        self._client = client

    def send(self, change: FirstMember) -> None:
        """Tell all that should hear of it."""
        client = self._client
        if client is None or not self._config.notify_min_broker_id_changed:
            return
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.broker_id,
            min_broker_addr=change.address,
            offline_broker_addr=change.gone,
            ha_broker_addr=change.ha_address,
        )
        self._log.info(
            "{address} has the smallest id {id} of its group now, {others} hear of it",
            address=change.address,
            id=change.broker_id,
            others=", ".join(change.to_tell),
        )
        for address in change.to_tell:
            client.oneway(
                address,
                int(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE),
                header,
                b"",
                NOTICE_TIMEOUT_MS,
            ).addErrback(self._not_told, address)

    def _not_told(self, failure: Failure, address: str) -> None:
        self._log.warn(
            "{address} does not hear of its group's first member: {reason}",
            address=address,
            reason=failure.getErrorMessage(),
        )
