"""A controller and the brokers of one group in memory: what they ask of each other goes through the requests' own bytes."""

from __future__ import annotations

from typing import Any

from fakes import Asked, FakeClient
from ha_network import Network
from small_broker import Peer, SmallBroker
from twisted.internet.task import Clock

from txrocketmq.codec import headers as h
from txrocketmq.codec.bodies import ElectMasterResponseBody, SyncStateSet, decode_body, encode_body
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode as Code
from txrocketmq.testing.disk import MemoryDisk

CONTROLLERS = ("192.0.2.90:9878", "192.0.2.91:9878")
NAMES = "192.0.2.100:9876"


class Controller:
    """What an official controller decides, as far as brokers ask."""

    def __init__(self) -> None:
        self.leader = CONTROLLERS[0]
        self.is_up = True
        self.ids: dict[int, str] = {}
        self.places: dict[int, str] = {}
        self.master: int | None = None
        self.epoch = 0
        self.members: set[int] = set()
        self.change = 0
        self.asked: list[R] = []

    def set(self) -> bytes:
        return encode_body(
            SyncStateSet(sync_state_set=set(self.members), sync_state_set_epoch=self.change)
        )

    def notice(self) -> h.NotifyBrokerRoleChangedRequestHeader:
        """What brokers are told of their roles."""
        return h.NotifyBrokerRoleChangedRequestHeader(
            master_address=self.places[self.master or 0],
            master_epoch=self.epoch,
            sync_state_set_epoch=self.change,
            master_broker_id=self.master,
        )

    def answer(self, asked: Asked) -> None:
        code = R(asked.command.code)
        if not self.is_up:
            asked.fail()
            return
        self.asked.append(code)
        if code is R.CONTROLLER_GET_METADATA_INFO:
            found = h.GetMetaDataResponseHeader(controller_leader_address=self.leader)
            asked.answer(0, found)
        elif asked.address != self.leader:
            asked.answer(Code.CONTROLLER_NOT_LEADER.value)
        else:
            getattr(self, code.name.lower())(asked)

    def controller_get_next_broker_id(self, asked: Asked) -> None:
        asked.answer(0, h.GetNextBrokerIdResponseHeader(next_broker_id=len(self.ids) + 1))

    def controller_apply_broker_id(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.ApplyBrokerIdRequestHeader)
        wanted, code = header.applied_broker_id or 0, header.register_check_code or ""
        if self.ids.setdefault(wanted, code) != code:
            asked.answer(Code.CONTROLLER_BROKER_ID_INVALID.value)
        else:
            asked.answer(0, h.ApplyBrokerIdResponseHeader())

    def controller_register_broker(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.RegisterBrokerToControllerRequestHeader)
        if header.broker_id not in self.ids:
            asked.answer(Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED.value)
            return
        self.places[header.broker_id or 0] = header.broker_address or ""
        place = None if self.master is None else self.places[self.master]
        found = h.RegisterBrokerToControllerResponseHeader(
            master_broker_id=self.master,
            master_address=place,
            master_epoch=self.epoch,
            sync_state_set_epoch=self.change,
        )
        asked.answer(0, found, self.set())

    def elect(self, winner: int) -> None:
        self.master, self.members = winner, {winner}
        self.epoch += 1
        self.change += 1

    def controller_elect_master(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.ElectMasterRequestHeader)
        if self.master is None:
            self.elect(header.broker_id)
        self._answer_election(asked, 0)

    def _answer_election(self, asked: Asked, code: int) -> None:
        assert self.master is not None
        found = h.ElectMasterResponseHeader(
            master_broker_id=self.master,
            master_address=self.places[self.master],
            master_epoch=self.epoch,
            sync_state_set_epoch=self.change,
        )
        body = ElectMasterResponseBody(sync_state_set=set(self.members))
        asked.answer(code, found, encode_body(body))

    def controller_get_replica_info(self, asked: Asked) -> None:
        if not self.places:
            asked.answer(Code.CONTROLLER_BROKER_METADATA_NOT_EXIST.value)
            return
        found = h.GetReplicaInfoResponseHeader(
            master_broker_id=self.master,
            master_address=self.places.get(self.master or 0),
            master_epoch=self.epoch,
        )
        asked.answer(0, found, self.set())

    def controller_alter_sync_state_set(self, asked: Asked) -> None:
        header = asked.command.decode_header(h.AlterSyncStateSetRequestHeader)
        wanted = decode_body(SyncStateSet, asked.command.body)
        if header.master_epoch != self.epoch:
            asked.answer(Code.CONTROLLER_FENCED_MASTER_EPOCH.value)
        elif wanted.sync_state_set_epoch != self.change:
            asked.answer(Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH.value)
        else:
            self.members, self.change = set(wanted.sync_state_set), self.change + 1
            header = h.AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=self.change)
            asked.answer(0, header, self.set())


class Group:
    """Brokers under one controller."""

    def __init__(self) -> None:
        self.network = Network()
        self.controller = Controller()
        self.client = FakeClient()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.registrations: list[tuple[str, int, int]] = []
        self.brokers: dict[str, SmallBroker] = {}
        self.peers: dict[str, Peer] = {}
        self.client.behaviour = {NAMES: self.registered}
        for address in CONTROLLERS:
            self.client.behaviour[address] = self.controller.answer

    def registered(self, asked: Asked) -> None:
        if asked.command.code == R.REGISTER_BROKER:
            header = asked.command.decode_header(h.RegisterBrokerRequestHeader)
            self.registrations.append((header.broker_addr, header.broker_id, self.controller.epoch))
            asked.answer(0, h.RegisterBrokerResponseHeader())
        else:
            asked.answer()

    def start(self, number: int, disk: MemoryDisk | None = None, **settings: Any) -> SmallBroker:
        host = f"192.0.2.{number}"
        usual: dict[str, Any] = {
            "enable_controller_mode": True,
            "controller_addr": ";".join(CONTROLLERS),
            "broker_ip1": host,
            "broker_ip2": host,
            "namesrv_addr": NAMES,
        }
        broker = SmallBroker(
            disk or MemoryDisk(),
            self.clock,
            client=self.client,
            dial=self.network.dial,
            **{**usual, **settings},
        )
        self.brokers[host] = broker
        self.peers[host] = broker.connect(41_000 + number)
        self.network.listening[(host, 10912)] = broker.core.replication.ha.factory
        self.client.behaviour[f"{host}:10911"] = lambda asked: self.pass_on(host, asked)
        self.settle()
        return broker

    def pass_on(self, host: str, asked: Asked) -> None:
        if host not in self.brokers:
            asked.fail()
            return
        command = asked.command
        answer = self.peers[host].ask(
            command.code, None, command.body, ext_fields=command.ext_fields
        )
        answer.opaque = command.opaque
        asked.deferred.callback(answer)

    def kill(self, number: int) -> None:
        """Without a word; its disk stays."""
        host = f"192.0.2.{number}"
        self.network.listening.pop((host, 10912))
        broker = self.brokers.pop(host)
        self.client.behaviour[f"{host}:10911"] = Asked.fail
        for wire in list(self.network.wires):
            wire.cut()
        broker.core.replication.stop()
        broker.core.registration.stop()
        for call in broker.clock.getDelayedCalls():
            if getattr(call.func, "__self__", None) in (broker.store.flusher, broker.store):
                call.cancel()
        broker.store._serving = False
        broker.disk.locked.clear()

    def notify(self, number: int) -> None:
        """The controller tells a broker who is master."""
        answer = self.peers[f"192.0.2.{number}"].ask(
            R.NOTIFY_BROKER_ROLE_CHANGED, self.controller.notice(), self.controller.set()
        )
        assert answer.code == 0

    def settle(self, seconds: float = 2.0) -> None:
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)
            self.network.carry_all()
