"""The ``twistd rocketmq-namesrv`` command: its options, and the service made of them."""

from __future__ import annotations

from typing import ClassVar

from twisted.application.service import IService

from txrocketmq.config.load import Role
from txrocketmq.service.options import RoleOptions
from txrocketmq.service.startup import stop_on_signals


class Options(RoleOptions):
    """Options of a name server."""

    command: ClassVar[str] = "rocketmq-namesrv"
    role: ClassVar[Role] = Role.NAMESRV
    longdesc = "Runs a RocketMQ name server."


def makeService(options: Options) -> IService:
    """The name server as a service. Ends the process with one line when it cannot be started."""
    from twisted.internet import reactor

    from txrocketmq.service.assembly import build_namesrv

    with options.refusing():
        service = build_namesrv(options.command, options.settings, reactor)
    stop_on_signals(reactor)
    return service
