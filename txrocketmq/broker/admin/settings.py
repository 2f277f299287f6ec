"""Which settings does this broker have, and how are they changed while it runs?

Stands for the configuration half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.codec.bodies import encode_body
from txrocketmq.codec.headers import GetBrokerConfigResponseHeader
from txrocketmq.config.load import check_address, split_addresses
from txrocketmq.config.reload import Change, RunTimeConfiguration
from txrocketmq.remoting.config_changes import ConfigChanges, KeepChange
from txrocketmq.remoting.dispatch import Reply, Request

NAME_SERVERS = "namesrvAddr"


class SettingsAdmin(ConfigChanges):
    """Serves what operators do with the broker's configuration; UPDATE_BROKER_CONFIG is `update_config`.

    :param changed: told each change after it was made, so that what has to follow at once does.
    """

    def __init__(
        self,
        configuration: RunTimeConfiguration,
        keep: KeepChange | None,
        changed: Callable[[Change], None],
    ) -> None:
        super().__init__(configuration, keep)
        self._changed = changed

    def get_config(self, request: Request[None]) -> Reply:
        """GET_BROKER_CONFIG: every key with its value, one a line."""
        version = encode_body(self._configuration.data_version).decode()
        return Reply(
            header=GetBrokerConfigResponseHeader(version=version), body=self._configuration.text()
        )

    def _update(self, body: bytes) -> Change:
        wanted = self._configuration.parse(body)
        for address in split_addresses(wanted.get(NAME_SERVERS)):
            check_address(NAME_SERVERS, address)
        return self._configuration.update(wanted)

    def _follow(self, change: Change) -> None:
        self._changed(change)
