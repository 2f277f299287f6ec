"""How does a name server run in a process? Port, files and pool around `NameServer`."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.config.load import Settings
from txrocketmq.config.schema import NamesrvConfig, NettyClientConfig, NettyServerConfig
from txrocketmq.config.write_back import write_back
from txrocketmq.namesrv.server import NameServer
from txrocketmq.remoting.budget import Room
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.service.pools import BlockingPool
from txrocketmq.service.ports import ClaimedPort
from txrocketmq.store.disk import RealDisk


class NameServerRole:
    """A name server as a role of a process.

    :param port: claimed already.
    :param room: how many connections all roles of the process may have.
    """

    def __init__(self, settings: Settings, reactor: Any, port: ClaimedPort, room: Room) -> None:
        self._config = settings.section(NamesrvConfig)
        self._network = settings.section(NettyServerConfig)
        self._unknown = settings.unknown
        self._reactor = reactor
        self._claimed = port
        self._room = room
        self._client = RemotingClient(
            reactor, limits=RemotingLimits.for_client(settings.section(NettyClientConfig))
        )
        self._kv_path = os.path.abspath(self._config.kv_config_path)
        self._pool: BlockingPool | None = None
        self._server: NameServer | None = None
        self._factory: RemotingServerFactory | None = None
        self._listening: IListeningPort | None = None

    async def start(self) -> str:
        """Read the key-value table, listen."""
        directory, file_name = os.path.split(self._kv_path)
        disk = RealDisk()
        pool = self._pool = BlockingPool(self._reactor, "namesrv-files", 1)
        config_path = os.path.abspath(self._config.config_store_path)
        self._server = NameServer(
            self._config,
            self._reactor,
            ConfigFiles(disk, pool, directory),
            file_name,
            client=self._client,
            sections=(self._config, self._network),
            unknown=self._unknown,
            keep=lambda changes: pool.submit(write_back, disk, config_path, dict(changes)),
        )
        self._server.start()
        self._factory = RemotingServerFactory(
            self._server.dispatcher,
            self._reactor,
            self._server,
            RemotingLimits.for_server(self._network),
            self._room,
        )
        self._listening = self._claimed.open(
            self._reactor, self._factory, self._network.server_socket_backlog
        )
        return f"name server listens on {self._claimed.text}"

    async def stop(self) -> None:
        """Close the port and the connections, finish what is being saved."""
        if self._listening is not None:
            await maybeDeferred(self._listening.stopListening)
        else:
            self._claimed.release()
        if self._factory is not None:
            await self._factory.close_all("the name server stops")
        if self._server is not None:
            self._server.stop()
        await self._client.stop()
        if self._pool is not None:
            await self._pool.stop()
