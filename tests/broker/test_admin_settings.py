"""The configuration of a running broker: shown, changed, refused; what has to follow a change at once."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Asked
from operators import refused, tell, told
from small_broker import Peer, SmallBroker
from twisted.internet.defer import fail

from txrocketmq.codec.bodies import decode_register_broker
from txrocketmq.codec.headers import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader
from txrocketmq.errors import StoreError
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode, ResponseCode

R = RequestCode
A, B, C = (f"192.0.2.{number}:9876" for number in (5, 6, 7))


def change(peer: Peer, text: str) -> Any:
    return tell(peer, R.UPDATE_BROKER_CONFIG, text.encode())


def shown(peer: Peer) -> dict[str, str]:
    answer = tell(peer, R.GET_BROKER_CONFIG)
    assert answer.code == 0
    lines = answer.body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


# ----------------------------------------------------------------- BR-70


def test_every_key_is_shown_and_a_change_acts_at_once(broker: SmallBroker, peer: Peer) -> None:
    before = shown(peer)
    assert before["brokerName"] == "broker-a"
    assert before["maxMessageSize"] == "4194304"
    assert list(before) == sorted(before)
    version = (tell(peer, R.GET_BROKER_CONFIG).ext_fields or {})["version"]
    answer = change(peer, "maxMessageSize=5\nlongPollingEnable=false\n")
    assert (answer.code, answer.remark) == (0, None)
    assert shown(peer) == {**before, "maxMessageSize": "5", "longPollingEnable": "false"}
    assert (tell(peer, R.GET_BROKER_CONFIG).ext_fields or {})["version"] != version
    with pytest.raises(AssertionError, match="13:"):
        peer.send(body=b"too long")
    assert broker.kept == {"maxMessageSize": "5", "longPollingEnable": "false"}


def test_the_remark_tells_what_does_not_act_now(broker: SmallBroker, peer: Peer) -> None:
    answer = change(
        peer,
        "brokerName=other\nregionId=R\nmappedFileSizeCommitLog=4096\naclEnable=true\nnoSuchKey=1\n",
    )
    assert (answer.code, answer.remark) == (
        0,
        "act after a restart: brokerName, mappedFileSizeCommitLog; have no effect here: aclEnable; "
        "are unknown and ignored: noSuchKey",
    )
    assert "noSuchKey" not in broker.kept
    assert broker.kept["brokerName"] == "other"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("rocketmqHome=/", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("brokerConfigPath=/", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("configBlackList=", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("maxMessageSize=5\nmaxMessageSize=many", ResponseCode.INVALID_PARAMETER, "many"),
        ("maxMessageSize=5\nflushDiskType=NEVER", ResponseCode.INVALID_PARAMETER, "flushDiskType"),
        ("maxMessageSize=5\nnamesrvAddr=nowhere", ResponseCode.INVALID_PARAMETER, "nowhere"),
        ("namesrvAddr=192.0.2.5:99999", ResponseCode.INVALID_PARAMETER, "99999"),
    ],
)
def test_one_key_that_must_not_be_changed_and_nothing_is(
    broker: SmallBroker, peer: Peer, text: str, code: int, words: str
) -> None:
    before = shown(peer)
    got, remark = refused(peer, R.UPDATE_BROKER_CONFIG, text.encode())
    assert got == code
    assert words in remark
    assert shown(peer) == before
    assert broker.kept == {}


def test_keys_can_be_put_on_the_black_list() -> None:
    broker = SmallBroker(config_black_list="configBlackList;regionId")
    peer = broker.connect()
    assert refused(peer, R.UPDATE_BROKER_CONFIG, b"regionId=R")[0] == ResponseCode.NO_PERMISSION
    assert change(peer, "traceOn=false").code == 0
    broker.stop()


def test_a_file_that_cannot_be_written_is_told_and_the_change_stays(
    broker: SmallBroker, peer: Peer
) -> None:
    settings: Any = broker.core.handlers()["settings"]
    settings._keep = lambda changes: fail(StoreError("no space left on device"))
    answer = change(peer, "maxMessageSize=5")
    assert answer.code == 0
    assert answer.remark == "will be lost at the next start: no space left on device"
    assert shown(peer)["maxMessageSize"] == "5"


# ----------------------------------------------------------------- what follows at once


class NameServers:
    """Name servers that agree to everything, and what they heard."""

    def __init__(self, broker: SmallBroker) -> None:
        self.heard: list[tuple[str, int]] = []
        self.registered: dict[str, Asked] = {}
        for asked in broker.client.asked:
            self._answer(asked)
        for address in (A, B, C):
            broker.client.behaviour[address] = self._answer

    def _answer(self, asked: Asked) -> None:
        code = asked.command.code
        self.heard.append((asked.address, code))
        if code == R.REGISTER_BROKER:
            self.registered[asked.address] = asked
        asked.answer(header=RegisterBrokerResponseHeader())

    def permissions(self, address: str) -> set[int]:
        """The permissions of ordinary topics as a name server learnt them last."""
        command = self.registered[address].command
        header = command.decode_header(RegisterBrokerRequestHeader)
        body = decode_register_broker(
            command.body, compressed=header.compressed, version=CURRENT_VERSION
        )
        table = body.topic_config_serialize_wrapper.topic_config_table
        return {table["TopicA"].perm}


def test_a_changed_broker_permission_is_announced_at_once() -> None:
    broker = SmallBroker(namesrv_addr=f"{A};{B}")
    servers, peer = NameServers(broker), broker.connect()
    peer.send()
    broker.clock.advance(10)
    assert servers.permissions(A) == {6}
    version = broker.core.topics.data_version.counter
    servers.heard.clear()
    change(peer, "brokerPermission=4")
    assert sorted(servers.heard) == [(A, R.REGISTER_BROKER), (B, R.REGISTER_BROKER)]
    assert servers.permissions(A) == servers.permissions(B) == {4}
    assert broker.core.topics.data_version.counter > version
    broker.stop()


def test_a_changed_list_of_name_servers_is_followed_at_once_and_kept() -> None:
    broker = SmallBroker(namesrv_addr=f"{A};{B}")
    servers, peer = NameServers(broker), broker.connect()
    broker.clock.advance(10)
    assert {address for address, _ in servers.heard} == {A, B}
    servers.heard.clear()
    answer = change(peer, f"namesrvAddr={B};{C}")
    assert (answer.code, answer.remark) == (0, None)
    broker.clock.advance(1)
    assert (C, R.REGISTER_BROKER) in servers.heard
    assert (A, R.UNREGISTER_BROKER) in servers.heard
    assert broker.kept == {"namesrvAddr": f"{B};{C}"}
    servers.heard.clear()
    broker.clock.advance(60)
    assert {address for address, _ in servers.heard} == {B, C}
    broker.stop()


def test_the_answer_waits_for_the_disk(broker: SmallBroker, peer: Peer) -> None:
    assert told(peer, R.UPDATE_BROKER_CONFIG, b"traceOn=false") is None
    assert broker.kept == {"traceOn": "false"}
