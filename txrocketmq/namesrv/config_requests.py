"""How do operators read and change a running name server's configuration? GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG.

Stands for ``getConfig`` and ``updateConfig`` of ``DefaultRequestProcessor``.
"""

from __future__ import annotations

from txrocketmq.remoting.config_changes import ConfigChanges
from txrocketmq.remoting.dispatch import Reply, Request

#: Keys that must never be changed by command, whatever ``configBlackList`` says.
FROZEN = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


class ConfigRequests(ConfigChanges):
    """The configuration, on behalf of operators; UPDATE_NAMESRV_CONFIG is `update_config`."""

    def get_config(self, request: Request[None]) -> Reply:
        """GET_NAMESRV_CONFIG: all keys as ``key=value`` lines."""
        return Reply(body=self._configuration.text())
