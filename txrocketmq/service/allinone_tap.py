"""The ``twistd rocketmq`` command: name server and broker in one process."""

from __future__ import annotations

from typing import Any, ClassVar

from twisted.application.service import IService
from twisted.python import usage

from txrocketmq.config.load import NAMESRV_PORT, Role
from txrocketmq.service.options import RoleOptions
from txrocketmq.service.startup import stop_on_signals


def _port(text: str) -> int:
    # Like the check of the configuration, which takes no sign, blank or underscore either.
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    # A ValueError would be told as a failed "type enforcement" of no option in particular.
    raise usage.UsageError(f"--namesrv-port={text}: a whole number from 0 to 65535 is needed")


_port.coerceDoc = "A port number; 0 lets the system choose."  # type: ignore[attr-defined]


class Options(RoleOptions):
    """Options of the all-in-one."""

    command: ClassVar[str] = "rocketmq"
    role: ClassVar[Role] = Role.ALL_IN_ONE
    longdesc = (
        "Runs a RocketMQ name server and a broker in one process, with everything below ./store. "
        "The broker registers with this name server, and with those that -n names."
    )
    optParameters: ClassVar[list[list[Any]]] = [
        ["namesrv-port", None, NAMESRV_PORT, "Port of the name server.", _port],
    ]


def makeService(options: Options) -> IService:
    """Both roles as a service. Ends the process with one line when they cannot be started."""
    from twisted.internet import reactor

    from txrocketmq.service.assembly import build_all_in_one

    with options.refusing():
        service = build_all_in_one(
            options.command, options.settings, reactor, options["namesrv-port"]
        )
    stop_on_signals(reactor)
    return service
