"""Official servers as they were recorded beside mqadmin: each request gets the answer that the official one like it got."""

from __future__ import annotations

from functools import cache

import attrs
import msgspec
from fakes import Asked, FakeRemoting
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from tests.golden import wire_frames
from txrocketmq.client.admin.admin import Admin
from txrocketmq.client.config import ClientConfig
from txrocketmq.client.instance import ClientInstance
from txrocketmq.codec import fastjson
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.errors import RemotingConnectError
from txrocketmq.model.codes import RequestCode

BROKER, NAME_SERVER = "127.0.0.2:20911", "127.0.0.2:20876"
#: Not what is said, but who says it.
OF_THE_CALLER = ("AccessKey", "Signature", "SecurityToken", "ReqT")


@attrs.frozen
class Exchange:
    """A request and its answer."""

    conversation: str
    code: int
    fields: dict[str, str]
    body: bytes
    answer: RemotingCommand


@cache
def exchanges(tag: str) -> tuple[Exchange, ...]:
    """All that was recorded under a tag, in order."""
    frames = {
        (frame["conversation"], frame["seq"]): frame
        for frame in wire_frames()
        if frame["kind"] == "remoting" and frame["conversation"].startswith(f"{tag}.")
    }
    found = []
    for (conversation, _), frame in frames.items():
        asked = frames.get((conversation, frame["reply_to_seq"]))
        if asked is None:
            continue
        request, answer = (
            decode_command(bytes.fromhex(item["frame_hex"])[4:]) for item in (asked, frame)
        )
        fields = {k: v for k, v in (request.ext_fields or {}).items() if k not in OF_THE_CALLER}
        name = conversation.split(".", 1)[1]
        found.append(Exchange(name, request.code, fields, request.body, answer))
    return tuple(found)


class GoldenServers(FakeRemoting):
    """Answers from a record.

    :param conversation: exchanges of this one are preferred.
    :ivar asked: code, fields and body of each request of ours.
    """

    def __init__(self, tag: str, conversation: str) -> None:
        self._exchanges = exchanges(tag)
        self._conversation = conversation
        self.asked: list[tuple[int, dict[str, str], bytes, object]] = []

    def ask(self, asked: Asked) -> Deferred[RemotingCommand]:
        command = asked.command
        fields, code = command.ext_fields or {}, command.code
        self.asked.append((code, fields, command.body, asked.header))
        like = [item for item in self._exchanges if item.code == code]
        if not like:
            fault = f"no such request was recorded: {code}"
            return fail(RemotingConnectError(asked.address, fault))
        best = max(like, key=lambda item: self._likeness(item, fields))
        return succeed(best.answer)

    def _likeness(self, item: Exchange, fields: dict[str, str]) -> tuple[int, bool]:
        same = sum(item.fields.get(name) == text for name, text in fields.items())
        return same, item.conversation == self._conversation

    def connection(self, address: str) -> None:
        return None


def golden_admin(tag: str, conversation: str) -> tuple[Admin, GoldenServers]:
    """An admin client whose servers are the record."""
    servers = GoldenServers(tag, conversation)
    instance = ClientInstance(Clock(), ClientConfig(namesrv_addr=NAME_SERVER))
    for owner in (instance, instance.api):
        owner.remoting = servers  # type: ignore[assignment]
    instance.name_servers._remoting = servers
    return Admin(Clock(), instance=instance), servers


def official_request(tag: str, conversation: str, code: RequestCode) -> Exchange:
    """What mqadmin asked in a conversation."""
    return next(
        item
        for item in exchanges(tag)
        if (item.conversation, item.code) == (conversation, int(code))
    )


def comparable(body: bytes) -> object:
    """A body whose order of members does not matter."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        try:
            return fastjson.loads(body)
        except Exception:
            return body
