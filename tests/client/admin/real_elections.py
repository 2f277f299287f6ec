"""An operator of ours who talks to a controller, in a process of its own: does one thing and prints one JSON value.

    python real_elections.py CONTROLLER CLUSTER BROKER elect ID | replicas | forget ID | leader | config KEY | change KEY VALUE

What the controller refuses is printed as ``{"refused": code, "remark": text}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocketmq.client.admin.admin import Admin
from txrocketmq.errors import BrokerError


async def do(admin: Admin, words: list[str]) -> Any:
    """What came of it."""
    controller, cluster, broker, command, *rest = words
    a = admin.controllers
    match command:
        case "elect":
            found = await a.elect_master(controller, cluster, broker, int(rest[0]))
            return [
                found.result.master_address,
                found.result.master_epoch,
                found.members.broker_addrs,
            ]
        case "replicas":
            state = (await a.sync_state(controller, [broker])).replicas_info_table[broker]
            return [
                state.master_broker_id,
                sorted(one.broker_id for one in state.in_sync_replicas),
                sorted(one.broker_id for one in state.not_in_sync_replicas),
            ]
        case "forget":
            ids = list(map(int, rest))
            return await a.clean_broker_data(controller, broker, cluster=cluster, broker_ids=ids)
        case "leader":
            return (await a.metadata(controller)).controller_leader_address
        case "config":
            return (await a.config(controller))[rest[0]]
        case "change":
            return await a.update_config([controller], {rest[0]: rest[1]})
    raise ValueError(command)


async def run(reactor: Any, words: list[str]) -> None:
    """Do it and print what came of it."""
    # No name server is asked by any of these.
    async with Admin(reactor, namesrv_addr="127.0.0.1:9") as admin:
        try:
            told = await do(admin, words)
        except BrokerError as error:
            told = {"refused": error.code, "remark": error.remark}
    print(json.dumps(told))


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(run(reactor, sys.argv[1:])))
