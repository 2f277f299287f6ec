"""How does an operator change the configuration of a running server? What UPDATE_NAMESRV_CONFIG and UPDATE_BROKER_CONFIG have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.config.reload import Change, ForbiddenKeyError, RunTimeConfiguration
from txrocketmq.errors import ConfigError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

KeepChange = Callable[[Mapping[str, str]], "Deferred[None]"]
"""Writes changed keys where the next start finds them; fires when they are on disk."""


class ConfigChanges:
    """Changes keys on behalf of operators.

    :param keep: see `KeepChange`; None keeps nothing.
    """

    _log = Logger()

    def __init__(self, configuration: RunTimeConfiguration, keep: KeepChange | None) -> None:
        self._configuration = configuration
        self._keep = keep

    def update_config(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """Change all of these keys or none, now and for the next start; the remark tells what does not act now.

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
            self._follow(change)
        if not change.changed or self._keep is None:
            return Reply(remark=remark)
        return self._keep(change.changed).addCallbacks(
            lambda _: Reply(remark=remark), self._not_kept, errbackArgs=(remark,)
        )

    def _update(self, body: bytes) -> Change:
        return self._configuration.update(self._configuration.parse(body))

    def _follow(self, change: Change) -> None:
        """Do what has to follow a change at once."""

    def _not_kept(self, failure: Failure, remark: str | None) -> Reply:
        self._log.error(
            "the changed configuration could not be written: {reason}", reason=failure.value
        )
        told = f"will be lost at the next start: {failure.value}"
        return Reply(remark=f"{remark}; {told}" if remark else told)
