"""The table of operations, the role, start and stop."""

from __future__ import annotations

import pytest
from small_broker import Peer, SmallBroker
from zope.interface.verify import verifyObject

from txrocketmq.broker.addresses import host_port, numeric_host
from txrocketmq.broker.core import BrokerCore
from txrocketmq.broker.not_served import NOT_SERVED
from txrocketmq.broker.operations import OPERATIONS
from txrocketmq.errors import ConfigError
from txrocketmq.interfaces import IConfigFiles, IConnectionListener
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.remoting.dispatch import Lane


def test_every_request_code_is_served_or_refused_with_a_reason() -> None:
    served = [operation.code for operation in OPERATIONS]
    assert len(served) == len(set(served))
    # Some codes do not fit a binary header: they are served under what is left of them there, too.
    shortened = {
        operation.code - 3 * 0x10000
        for operation in OPERATIONS
        if operation.code > 0x7FFF and operation.lane is not Lane.ADMIN
    }
    assert set(served) | set(NOT_SERVED) == {int(code) for code in RequestCode} | shortened
    assert not set(served) & set(NOT_SERVED)


def test_pulls_are_not_for_the_second_listener() -> None:
    known = {*RequestCode}
    codes = {operation.code for operation in OPERATIONS if not operation.vip}
    assert codes & known == {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
    # The same as binary headers carry them.
    assert codes - known == {3442, 3444, 3446, 3447}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, "a request for name servers"),
        (99_999, " request type 99999 not supported"),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(peer: Peer, code: int, words: str) -> None:
    answer = peer.ask(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert words in (answer.remark or "")


def test_a_master_is_number_zero() -> None:
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        broker = SmallBroker(broker_role=role, broker_id=7)
        assert broker.config.broker_id == 0
        broker.stop()


@pytest.mark.parametrize(
    ("role", "words"),
    [("SLAVE", "needs a number above 0"), ("KING", "expected one of ASYNC_MASTER")],
)
def test_other_roles_are_refused(role: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SmallBroker(broker_role=role)


def test_addresses() -> None:
    assert host_port("192.0.2.1", 1) == "192.0.2.1:1"
    assert host_port("::1", 1) == "[::1]:1"
    assert host_port("[::1]", 1) == "[::1]:1"
    assert numeric_host("[::1]", 1) == ("::1", 1)
    with pytest.raises(ConfigError, match="a name that was not resolved"):
        numeric_host("broker.example", 1)


def test_a_stop_leaves_no_timer_and_everything_on_disk() -> None:
    broker = SmallBroker()
    peer = broker.connect()
    peer.send("Made")
    broker.core.groups.find("G")
    broker.core.offsets.commit("G", "Made", 0, 1, "test")
    peer.close()
    broker.stop()
    assert broker.clock.getDelayedCalls() == []
    again = SmallBroker(broker.disk, broker.clock)
    assert "Made" in again.core.topics
    assert "G" in again.core.groups
    assert again.core.offsets.query("G", "Made", 0) == 1
    assert again.connect().pull("Made").bodies == [b"hello"]
    again.stop()


def test_a_crash_loses_no_topic_that_was_written_to(broker: SmallBroker, peer: Peer) -> None:
    peer.send("Made")
    broker.disk.crash()
    again = SmallBroker(broker.disk, broker.clock)
    assert "Made" in again.core.topics
    again.stop()


def test_interfaces_are_kept(broker: SmallBroker) -> None:
    core: BrokerCore = broker.core
    assert verifyObject(IConnectionListener, core.connection_listener)
    assert verifyObject(IConfigFiles, core.topics.file._files)
