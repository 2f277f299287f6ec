"""Which parts make a process? The one place where roles are put together.

Everything that may be wrong on this machine (ports in use, a store in use or not writable) is looked at here, before ``twistd``
goes to the background.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService

from txrocketmq.config.load import Settings
from txrocketmq.config.schema import NettyServerConfig
from txrocketmq.service.ports import claim_port
from txrocketmq.service.process import ProcessService


def build_namesrv(command: str, settings: Settings, reactor: Any) -> IService:
    """A name server.

    :raises StartupError: its port cannot be had.
    """
    from txrocketmq.service.namesrv_role import NameServerRole

    network = settings.section(NettyServerConfig)
    port = claim_port(network.bind_address, network.listen_port)
    return ProcessService(
        command, reactor, [NameServerRole(settings, reactor, port)], settings.warnings
    )
