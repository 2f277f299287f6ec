"""How do operators read and change a running name server's configuration? GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG.

Stands for ``getConfig`` and ``updateConfig`` of ``DefaultRequestProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.config.reload import ForbiddenKeyError, RunTimeConfiguration
from txrocketmq.errors import ConfigError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

#: Keys that must never be changed by command, whatever ``configBlackList`` says.
FROZEN = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")

#: Writes changed entries to the configuration file; fires when they are there.
Keep = Callable[[Mapping[str, str]], "Deferred[None]"]


class ConfigRequests:
    """The configuration, on behalf of operators.

    :param keep: None where there is no file to keep changes in.
    """

    _log = Logger()

    def __init__(self, configuration: RunTimeConfiguration, keep: Keep | None) -> None:
        self._configuration = configuration
        self._keep = keep

    def get_config(self, request: Request[None]) -> Reply:
        """GET_NAMESRV_CONFIG: all keys as ``key=value`` lines."""
        return Reply(body=self._configuration.text())

    def update_config(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """UPDATE_NAMESRV_CONFIG: all of the entries or none; answered when the file has them.

        The remark of a success names entries that have to wait for a restart, have no effect or could not be written.
        """
        try:
            wanted = self._configuration.parse(request.body)
            change = self._configuration.update(wanted)
        except ForbiddenKeyError as error:
            raise ResponseError(ResponseCode.NO_PERMISSION, str(error)) from error
        except ConfigError as error:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        remark = change.remark()
        self._log.info(
            "{peer} changed the configuration: {changed}{remark}",
            peer=request.connection.remote_text,
            changed=", ".join(f"{name}={value}" for name, value in change.changed.items())
            or "nothing",
            remark=f" ({remark})" if remark else "",
        )
        if self._keep is None or not change.changed:
            return Reply(remark=remark)
        return self._keep(change.changed).addCallbacks(
            lambda _: Reply(remark=remark), self._not_kept, errbackArgs=(remark,)
        )

    def _not_kept(self, failure: Failure, remark: str | None) -> Reply:
        self._log.error(
            "the changed configuration could not be written: {reason}", reason=failure.value
        )
        told = f"will be lost at the next start: {failure.value}"
        return Reply(remark=f"{remark}; {told}" if remark else told)
