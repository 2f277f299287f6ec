"""Servers that answer with nonsense: our client and command line end with one clear error, and go on with the next server."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from txrocketmq.cli.directory import Directory
from txrocketmq.cli.send import Outgoing, send
from txrocketmq.cli.session import one_line
from txrocketmq.cli.tail import Tail
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.errors import (
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    RocketMQError,
)
from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.client import RemotingClient

Answer = Callable[[RemotingCommand], bytes | None]


class Liar(Protocol):
    """One connection: each request gets the bytes that the test chose, None closes it."""

    factory: LiarFactory

    def __init__(self) -> None:
        self._splitter = FrameSplitter()

    def dataReceived(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            self.factory.count += 1
            answer = self.factory.answer(decode_command(frame))
            if answer is None:
                self.transport.loseConnection()  # type: ignore[union-attr]
            else:
                self.transport.write(answer)  # type: ignore[union-attr]


class LiarFactory(Factory):
    noisy = False
    protocol = Liar

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.count = 0


class Scene:
    """A lying server, a client of ours, and an end to both."""

    def __init__(self, answer: Answer) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.factory = LiarFactory(answer)
        self._port = self.reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.address = f"127.0.0.1:{self._port.getHost().port}"
        self.client = RemotingClient(reactor)
        self.directory = Directory(self.client, [self.address])

    async def __aenter__(self) -> Scene:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.client.stop()
        await self._port.stopListening()

    def ask(self, timeout_ms: int = 300) -> Deferred[RemotingCommand]:
        return self.client.request(
            self.address, int(RequestCode.GET_BROKER_CLUSTER_INFO), None, b"", timeout_ms
        )


def reply(request: RemotingCommand, code: int = 0, **options: Any) -> bytes:
    return RemotingCommand.create_response(request, code, **options).encode()


def raw(head: bytes, *, kind: int = 0, length: int | None = None) -> bytes:
    """A frame with any header, whose length may lie."""
    word = kind << 24 | (len(head) if length is None else length)
    return struct.pack(">iI", 4 + len(head), word) + head


NONSENSE: dict[str, tuple[bytes | None, type[RemotingError], str]] = {
    "nothing but a close": (None, RemotingSendError, "closed by the peer"),
    "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", RemotingSendError, "this is HTTP"),
    "an impossible length": (b"\x7f\xff\xff\xff", RemotingSendError, "exceeds the limit"),
    "a negative length": (b"\xff\xff\xff\xff", RemotingSendError, "is too small"),
    "no JSON": (raw(b"{code"), RemotingSendError, "is not JSON"),
    "deep nesting": (raw(b'{"code":0,"x":' + b"[" * 100_000), RemotingSendError, "nested too dee"),
    "a header longer than its frame": (raw(b"{}", length=9999), RemotingSendError, "length 9999"),
    "an unknown serialization": (raw(b"{}", kind=7), RemotingSendError, "serialize type 7"),
    "an opaque past an int": (
        raw(b'{"code":0,"flag":1,"opaque":2147483648}'),
        RemotingSendError,
        "opaque is unreadable",
    ),
    "a binary header cut short": (raw(b"12345", kind=1), RemotingSendError, "bytes missing"),
    "TLS": (b"\x16\x03\x01\0\xc2\x01\0\0\xbe\x03\x03" + bytes(200), RemotingSendError, "is a TLS"),
    "half a frame": (struct.pack(">i", 1000) + b"half", RemotingTimeoutError, "no answer within"),
    "silence": (b"", RemotingTimeoutError, "no answer within"),
}


@pytest.mark.parametrize("name", NONSENSE)
@pytest_twisted.ensureDeferred
async def test_nonsense_is_an_error_of_that_request_alone(name: str) -> None:
    data, error, words = NONSENSE[name]
    async with Scene(lambda request: data) as scene:
        with pytest.raises(error, match=words) as caught:
            await scene.ask()
        assert str(caught.value).startswith(scene.address)
        scene.client.close_address(scene.address)
        scene.factory.answer = reply
        assert (await scene.ask(3000)).code == 0


@pytest_twisted.ensureDeferred
async def test_text_that_is_no_utf_8_is_read_as_java_reads_it() -> None:
    def answer(request: RemotingCommand) -> bytes:
        return raw(b'{"code":1,"flag":1,"opaque":%d,"remark":"a\xff\xfeb"}' % request.opaque)

    async with Scene(answer) as scene:
        found = await scene.ask(3000)
        assert (found.code, found.remark) == (1, "a\ufffd\ufffdb")


@pytest_twisted.ensureDeferred
async def test_answers_to_others_and_answers_twice_are_dropped() -> None:
    def answer(request: RemotingCommand) -> bytes:
        right = reply(request)
        request.opaque += 1_000_000
        return reply(request) * 1000 + right * 2

    async with Scene(answer) as scene:
        for _ in range(3):
            assert (await scene.ask(3000)).code == 0


@pytest_twisted.ensureDeferred
async def test_a_server_that_asks_without_end_is_told_so_and_not_believed() -> None:
    question = RemotingCommand.create_request(40, body=b"x" * 100, opaque=5).encode()

    async with Scene(lambda request: question * 5000 + reply(request)) as scene:
        told: list[RemotingCommand] = []
        answer = scene.factory.answer

        def remember(command: RemotingCommand) -> bytes | None:
            if command.is_response:
                told.append(command)
                return b""
            return answer(command)

        scene.factory.answer = remember
        assert (await scene.ask(10_000)).code == 0
        while len(told) < 5000:
            await deferLater(scene.reactor, 0.01)
        assert {command.code for command in told} == {3}


# --------------------------------------------------------------------------- the command line


def route(address: str, queue: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """A route of topic T to one broker."""
    data = {
        "brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": address}}],
        "queueDatas": [
            {
                "brokerName": "b",
                "perm": 6,
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "topicSysFlag": 0,
                **(queue or {}),
            }
        ],
        "filterServerTable": {},
        **changes,
    }
    return json.dumps(data).encode()


ROUTES: dict[str, tuple[Callable[[str], bytes], str]] = {
    "no JSON": (lambda address: b"garbage", "TopicRouteData: not JSON"),
    "nothing": (lambda address: b"", "TopicRouteData: not JSON"),
    "a list": (lambda address: b"[]", "TopicRouteData: "),
    "text for a number": (lambda address: route(address, {"perm": "x"}), "TopicRouteData: "),
    "nulls": (lambda address: b'{"brokerDatas":null,"queueDatas":null}', "topic T must not be"),
    "billions of queues": (
        lambda address: route(address, {"writeQueueNums": 2**31 - 1}),
        "2147483647 queues at broker b",
    ),
    "fewer than no queues": (lambda address: route(address, {"writeQueueNums": -5}), "b allows RW"),
    "an address of words": (lambda address: route("nonsense"), "'nonsense' is not host:port"),
    "a port of 99999": (lambda address: route("127.0.0.1:99999"), "outside 1 to 65535"),
    "no broker": (lambda address: route(address, brokerDatas=[]), "has no master"),
}


@pytest.mark.parametrize("name", ROUTES)
@pytest_twisted.ensureDeferred
async def test_a_route_that_cannot_be_right_is_one_clear_error(name: str) -> None:
    make, words = ROUTES[name]
    async with Scene(lambda request: b"") as scene:
        body = make(scene.address)
        scene.factory.answer = lambda request: reply(request, body=body)
        with pytest.raises(RocketMQError) as caught:
            await send(scene.reactor, scene.client, scene.directory, Outgoing("T", b"x"))
        assert words in str(caught.value)


SENDS: dict[str, tuple[dict[str, Any], str]] = {
    "no fields": ({}, "header field 'msgId': is missing"),
    "a word for a number": (
        {"ext_fields": {"msgId": "x", "queueId": "z", "queueOffset": "1"}},
        "header field 'queueId': 'z' is not a whole number",
    ),
    "a code of its own": ({"code": 99, "remark": "no \x1b[31m way"}, "CODE: 99 DESC: no "),
}


@pytest.mark.parametrize("name", SENDS)
@pytest_twisted.ensureDeferred
async def test_a_broker_that_answers_a_send_with_nonsense(name: str) -> None:
    options, words = SENDS[name]
    async with Scene(lambda request: b"") as scene:
        body = route(scene.address)
        scene.factory.answer = lambda request: (
            reply(request, body=body) if request.code == 105 else reply(request, **options)
        )
        with pytest.raises(RocketMQError) as caught:
            await send(scene.reactor, scene.client, scene.directory, Outgoing("T", b"x"))
        assert words in str(caught.value)


def tail_of(scene: Scene) -> Tail:
    return Tail(
        scene.reactor,
        scene.client,
        scene.directory,
        "T",
        show=lambda line: None,
        note=lambda line: None,
        from_start=True,
    )


HEADER = {
    "suggestWhichBrokerId": "0",
    "nextBeginOffset": "0",
    "minOffset": "0",
    "maxOffset": "1",
}
PULLS: dict[str, tuple[dict[str, Any], str]] = {
    "records that are none": ({"body": bytes(100), "ext_fields": HEADER}, "no valid record at"),
    "half a record": ({"body": b"\0\0\1\0", "ext_fields": HEADER}, "no valid record at"),
    "no fields": ({}, "header field 'suggestWhichBrokerId': is missing"),
    "a code of its own": ({"code": 99, "remark": "no"}, "CODE: 99 DESC: no BROKER: b"),
}


def serve_pulls(scene: Scene, **options: Any) -> None:
    """A route, offset 0, and the same answer to every pull."""
    body = route(scene.address)

    def answer(request: RemotingCommand) -> bytes:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(request, body=body)
        if request.code == RequestCode.GET_MIN_OFFSET:
            return reply(request, ext_fields={"offset": "0"})
        return reply(request, **options)

    scene.factory.answer = answer


@pytest.mark.parametrize("name", PULLS)
@pytest_twisted.ensureDeferred
async def test_a_broker_that_answers_a_pull_with_nonsense(name: str) -> None:
    options, words = PULLS[name]
    async with Scene(lambda request: b"") as scene:
        serve_pulls(scene, **options)
        with pytest.raises(RocketMQError) as caught:
            await tail_of(scene).run()
        assert words in str(caught.value)


@pytest.mark.parametrize("code", [0, 19, 20, 21])
@pytest_twisted.ensureDeferred
async def test_a_broker_that_brings_nothing_is_not_asked_without_end(code: int) -> None:
    async with Scene(lambda request: b"") as scene:
        serve_pulls(scene, code=code, ext_fields=HEADER)
        following = Deferred.fromCoroutine(tail_of(scene).run())
        following.addErrback(lambda failure: None)
        await deferLater(scene.reactor, 0.7)
        following.cancel()
        await following
        assert 3 <= scene.factory.count <= 6


def test_what_others_say_cannot_steer_a_terminal() -> None:
    assert one_line("no\n\x1b[31m way\x9b2J \u202e") == "no \\x1b[31m way\\x9b2J \\u202e"
