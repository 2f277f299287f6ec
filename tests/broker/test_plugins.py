"""Plug-ins around sends and pulls: what they see, what they may refuse, and that their faults are no one else's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from small_broker import Peer, SmallBroker, properties, pull_header, send_header
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

import twisted.plugins
from txrocketmq.broker.interfaces import IBrokerPlugin
from txrocketmq.broker.plugins import service
from txrocketmq.broker.plugins.base import BrokerPlugin
from txrocketmq.broker.plugins.views import PulledView, PullView, SendView
from txrocketmq.errors import ConfigError, ResponseError
from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode


class Recorder(BrokerPlugin):
    """Writes down what it hears; does what the test wants."""

    def __init__(self, name: str = "recorder") -> None:
        super().__init__(name)
        self.heard: list[Any] = []
        self.on_send: Any = None
        self.on_pull: Any = None

    def start(self, broker_name: str) -> None:
        self.heard.append(f"start {broker_name}")

    def stop(self) -> None:
        self.heard.append("stop")

    def leads_changed(self, leads: bool) -> None:
        self.heard.append(f"leads {leads}")

    def before_send(self, send: SendView) -> Deferred[None] | None:
        self.heard.append(send)
        found: Deferred[None] | None = self.on_send and self.on_send()
        return found

    def after_send(self, send: SendView, code: int, remark: str | None) -> None:
        self.heard.append((send.body, code, remark))

    def before_pull(self, pull: PullView) -> None:
        self.heard.append(pull)
        if self.on_pull:
            self.on_pull()

    def pulled(self, pull: PulledView) -> None:
        self.heard.append(pull)

    def figures(self) -> Mapping[str, str]:
        return {"recorded": str(len(self.heard))}


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorder = Recorder()
        self.other = Recorder("other")
        monkeypatch.setattr(service, "getPlugins", lambda interface: [self.other, self.recorder])
        self.broker = SmallBroker(broker_plugins="recorder")
        self.peer: Peer = self.broker.connect(41_234)
        self.recorder.heard.clear()

    def told(self) -> list[Any]:
        heard, self.recorder.heard = self.recorder.heard, []
        return heard

    def send(self, body: bytes = b"hello") -> tuple[int, str | None]:
        answer = self.peer.ask(R.SEND_MESSAGE_V2, send_header("T"), body)
        return answer.code, answer.remark


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.broker.stop()


def refuse() -> None:
    raise ResponseError(ResponseCode.NO_PERMISSION, "not today")


def fail() -> None:
    raise KeyError("a bug")


def test_the_plugin_of_the_tests_is_one() -> None:
    assert verifyObject(IBrokerPlugin, Recorder())


def test_it_hears_of_sends_and_pulls(world: World) -> None:
    world.peer.send("T", b"one", properties=properties(KEYS="k"))
    before, after = world.told()
    assert (before.topic, before.group, before.queue_id) == ("T", "P", 0)
    assert before.body == b"one"
    assert before.client == world.peer.protocol.remote_text
    assert "KEYS\x01k" in before.properties
    assert before.fields["b"] == "T"
    assert after == (b"one", 0, None)
    assert len(world.peer.pull("T").messages) == 1
    asked, got = world.told()
    assert asked[:4] == ("T", "G", 0, 0)
    assert got == PulledView("T", "G", 0, 1, world.broker.store.max_physical_offset(), 1)
    # Nothing there: nothing got.
    world.peer.pull("T", offset=1)
    assert [type(item) for item in world.told()] == [PullView]


def test_a_pull_that_waits_is_told_when_it_is_answered(world: World) -> None:
    world.peer.send("T")
    world.told()
    number = world.peer.tell(
        R.PULL_MESSAGE,
        pull_header("T", offset=1, sys_flag=4 | 2, suspend_timeout_millis=20_000),
    )
    assert world.peer.answer(number) is None
    world.told()
    world.broker.connect(41_235).send("T", b"new")
    world.broker.clock.advance(0.1)
    assert world.peer.answer(number) is not None
    (got,) = (item for item in world.told() if isinstance(item, PulledView))
    assert got.messages == 1


def test_it_may_refuse(world: World) -> None:
    world.recorder.on_send = refuse
    assert world.send() == (ResponseCode.NO_PERMISSION, "not today")
    assert world.broker.store.max_physical_offset() == 0
    assert world.told()[-1] == (b"hello", ResponseCode.NO_PERMISSION, "not today")
    world.recorder.on_send = None
    assert world.send()[0] == 0
    world.recorder.on_pull = refuse
    pulled = world.peer.ask(R.PULL_MESSAGE, pull_header("T"))
    assert (pulled.code, pulled.remark) == (ResponseCode.NO_PERMISSION, "not today")


def test_its_faults_are_counted_and_nothing_else(world: World) -> None:
    world.recorder.on_send = world.recorder.on_pull = fail
    assert world.send()[0] == 0
    assert len(world.peer.pull("T").messages) == 1
    table = json.loads(world.peer.ask(R.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert table["brokerPluginFaults"] == "2"
    assert int(table["recorded"]) > 0


@pytest.mark.parametrize("figures", [5, {"a": object()}, {3: "x"}, ["abc"], "refuses"])
def test_figures_that_are_none_leave_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, figures: Any
) -> None:
    def tell() -> Any:
        if figures == "refuses":
            refuse()
        return figures

    monkeypatch.setattr(world.recorder, "figures", tell)
    answer = world.peer.ask(R.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0, answer.remark
    table = json.loads(answer.body)["table"]
    assert table["brokerPluginFaults"] == "1"
    assert "bootTimestamp" in table


def test_a_plugin_that_refuses_to_stop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    monkeypatch.setattr(world.recorder, "stop", refuse)
    world.broker.stop()


def test_a_send_waits_for_it_and_not_for_ever(world: World) -> None:
    waiting: list[Deferred[None]] = []

    def wait() -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    world.recorder.on_send = wait
    numbers = [world.peer.tell(R.SEND_MESSAGE_V2, send_header("T"), b"%d" % n) for n in range(4)]
    assert world.broker.store.max_physical_offset() == 0
    waiting[1].callback(None)
    answer = world.peer.answer(numbers[1])
    assert answer is not None
    assert answer.code == 0
    waiting[2].errback(ResponseError(ResponseCode.NO_PERMISSION, "no"))
    answer = world.peer.answer(numbers[2])
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "no")
    waiting[3].errback(KeyError("a bug"))
    answer = world.peer.answer(numbers[3])
    assert answer is not None
    assert answer.code == 0
    world.broker.clock.advance(2.9)
    assert world.peer.answer(numbers[0]) is None
    world.broker.clock.advance(0.2)
    answer = world.peer.answer(numbers[0])
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, service.TOO_LATE)
    assert [message.body for message in world.peer.pull("T").messages] == [b"1", b"3"]


def test_a_coroutine_is_waited_for_and_may_refuse(world: World) -> None:
    free: Deferred[None] = Deferred()

    async def think() -> None:
        await free
        refuse()

    world.recorder.on_send = think
    number = world.peer.tell(R.SEND_MESSAGE_V2, send_header("T"), b"one")
    assert world.peer.answer(number) is None
    free.callback(None)
    answer = world.peer.answer(number)
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not today")
    assert world.broker.store.max_physical_offset() == 0


def test_only_those_that_are_chosen_are_called_from_start_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.broker.stop()
    assert world.recorder.heard == ["stop"]
    assert world.other.heard == []
    broker = SmallBroker(broker_plugins="other; recorder")
    assert world.other.heard == ["start broker-a", "leads True"]
    broker.stop()


def test_an_unknown_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "getPlugins", lambda interface: [Recorder("one")])
    with pytest.raises(ConfigError, match="no plug-in 'none'; there are one "):
        service.chosen_plugins("none")
    with pytest.raises(ConfigError, match=r"no plug-in 'none'; none was found .*PYTHONPATH"):
        service.chosen_plugins("none", there=[])


def test_without_any_nothing_stands_before_the_handlers(broker: SmallBroker) -> None:
    for name in ("send", "pull"):
        assert "plugins" not in type(broker.core.handlers()[name]).__module__


def test_they_are_found_as_twisted_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_brokers.py").write_text(
        "from txrocketmq.broker.plugins.base import BrokerPlugin\nfound = BrokerPlugin('mine')\n"
    )
    monkeypatch.setattr(twisted.plugins, "__path__", [str(tmp_path)])
    (mine,) = service.chosen_plugins("mine")
    assert isinstance(mine, BrokerPlugin)
