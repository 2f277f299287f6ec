"""Which settings does this broker have, and how are they changed while it runs?

Stands for the configuration half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.bodies import encode_body
from txrocketmq.codec.headers import GetBrokerConfigResponseHeader
from txrocketmq.config.load import check_address, split_addresses
from txrocketmq.config.reload import Change, ForbiddenKeyError, RunTimeConfiguration
from txrocketmq.errors import ConfigError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

NAME_SERVERS = "namesrvAddr"

KeepChange = Callable[[Mapping[str, str]], "Deferred[None]"]
"""Writes changed keys where the next start finds them; fires when they are on disk."""


class SettingsAdmin:
    """Serves what operators do with the broker's configuration.

    :param keep: see `KeepChange`; None keeps nothing.
    :param changed: told each change after it was made, so that what has to follow at once does.
    """

    _log = Logger()

    def __init__(
        self,
        configuration: RunTimeConfiguration,
        keep: KeepChange | None,
        changed: Callable[[Change], None],
    ) -> None:
        self._configuration = configuration
        self._keep = keep
        self._changed = changed

    def get_config(self, request: Request[None]) -> Reply:
        """GET_BROKER_CONFIG: every key with its value, one a line."""
        version = encode_body(self._configuration.data_version).decode()
        return Reply(
            header=GetBrokerConfigResponseHeader(version=version), body=self._configuration.text()
        )

    def update_config(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """UPDATE_BROKER_CONFIG: change keys now, and for the next start; the remark tells what does not act now.

        The answer comes when the change is on disk. A file that cannot be written is no reason to undo it: the remark says so.
        """
        try:
            change = self._update(request.body)
        except ForbiddenKeyError as error:
            raise ResponseError(ResponseCode.NO_PERMISSION, str(error)) from error
        except ConfigError as error:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        remark = change.remark()
        self._log.info(
            "{client} changed the configuration: {changed}{remark}",
            client=request.connection.remote_text,
            changed=", ".join(f"{name}={value}" for name, value in change.changed.items())
            or "nothing",
            remark=f" ({remark})" if remark else "",
        )
        if change.changed:
            self._changed(change)
        if not change.changed or self._keep is None:
            return Reply(remark=remark)
        return self._keep(change.changed).addCallbacks(
            lambda _: Reply(remark=remark), self._not_kept, errbackArgs=(remark,)
        )

    def _update(self, body: bytes) -> Change:
        wanted = self._configuration.parse(body)
        for address in split_addresses(wanted.get(NAME_SERVERS)):
            check_address(NAME_SERVERS, address)
        return self._configuration.update(wanted)

    def _not_kept(self, failure: Failure, remark: str | None) -> Reply:
        self._log.error(
            "the changed configuration could not be written: {reason}", reason=failure.value
        )
        told = f"will be lost at the next start: {failure.value}"
        return Reply(remark=f"{remark}; {told}" if remark else told)
