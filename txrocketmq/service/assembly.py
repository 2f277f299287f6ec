"""Which parts make a process? The one place where roles are put together.

Everything that may be wrong on this machine (ports in use, a store in use or not writable, a name that does not resolve) is looked
at here, before ``twistd`` goes to the background. Modules of a role are imported only when the role is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from txrocketmq.config.load import Settings, split_addresses
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig, NettyServerConfig
from txrocketmq.remoting.budget import Room
from txrocketmq.service.addresses import LOOPBACK, WILDCARDS, in_brackets
from txrocketmq.service.descriptors import connection_room, raise_descriptor_limit
from txrocketmq.service.ports import (
    ClaimedPort,
    claim_broker_ports,
    claim_port,
    refuse_same,
    release_all,
)
from txrocketmq.service.process import ProcessService, RoleRunner

if TYPE_CHECKING:
    from txrocketmq.service.broker_role import BrokerRole


_NO_PORTS: Mapping[str, ClaimedPort] = {}


def build_namesrv(command: str, settings: Settings, reactor: Any) -> IService:
    """A name server.

    :raises StartupError: its port cannot be had.
    """
    from txrocketmq.service.namesrv_role import NameServerRole

    network = settings.section(NettyServerConfig)
    port = claim_port(network.bind_address, network.listen_port)
    room = connection_room(raise_descriptor_limit())
    role = NameServerRole(settings, reactor, port, room)
    return ProcessService(command, reactor, [role], settings.warnings)


def build_broker(command: str, settings: Settings, reactor: Any) -> IService:
    """A broker.

    :raises StartupError: a port cannot be had.
    :raises StoreError: the store cannot be used.
    :raises ConfigError: the role is not served, or the advertised address cannot be resolved.
    """
    room = connection_room(raise_descriptor_limit())
    role = _broker_role(settings, reactor, room)
    return ProcessService(command, reactor, [role], settings.warnings)


def build_all_in_one(command: str, settings: Settings, reactor: Any, namesrv_port: int) -> IService:
    """A name server, and a broker that registers with it and with those that the configuration names.

    Raises as `build_namesrv` and `build_broker`.
    """
    from txrocketmq.service.namesrv_role import NameServerRole

    network = settings.section(NettyServerConfig)
    port = claim_port(network.bind_address, namesrv_port)
    room = connection_room(raise_descriptor_limit())
    try:
        config = settings.section(BrokerConfig)
        host = LOOPBACK if network.bind_address in WILDCARDS else network.bind_address
        own = f"{in_brackets(host)}:{port.port}"
        config.namesrv_addr = ";".join(dict.fromkeys([own, *split_addresses(config.namesrv_addr)]))
        roles: list[RoleRunner] = [
            NameServerRole(settings, reactor, port, room),
            _broker_role(settings, reactor, room, {"--namesrv-port": port}),
        ]
    except BaseException:
        port.release()
        raise
    return ProcessService(command, reactor, roles, settings.warnings)


def _broker_role(
    settings: Settings, reactor: Any, room: Room, others: Mapping[str, ClaimedPort] = _NO_PORTS
) -> BrokerRole:
    from txrocketmq.service.broker_role import (
        BrokerRole,
        check_store,
        claim_replica_port,
        prepare_addresses,
    )

    network = settings.section(NettyServerConfig)
    ports: tuple[ClaimedPort, ...] = ()
    try:
        main, fast = ports = claim_broker_ports(network.bind_address, network.listen_port)
        replicas = claim_replica_port(settings, main)
        ports = (main, fast, replicas)
        refuse_same(
            {
                **others,
                "listenPort": main,
                "the fast port, two below it,": fast,
                "haListenPort": replicas,
            }
        )
        prepare_addresses(settings, main.port, replicas.port)
        check_store(settings.section(MessageStoreConfig))
        return BrokerRole(settings, reactor, main, fast, replicas, room)
    except BaseException:
        release_all(ports)
        raise
