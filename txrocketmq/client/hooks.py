"""What do hooks see? The contexts of sends and of consumption, and how hooks are called.

Stands for ``SendMessageContext``, ``ConsumeMessageContext``, ``CheckForbiddenContext`` and the loops around the hooks. A hook that fails is
logged; the message goes its way. Only a forbidden hook may refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from twisted.logger import Logger

from txrocketmq.client.results import SendResult
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    calculate_signature,
    signed_content,
)
from txrocketmq.model.message import Message, MessageExt, MessageQueue

log = Logger()


@attrs.define
class SendContext:
    """One attempt to send.

    :ivar kind: ``normal``, ``batch``, ``half``, ``delay``, ``reply``.
    :ivar mode: ``SYNC``, ``ASYNC`` or ``ONEWAY``.
    :ivar result: set afterwards, or ``error``.
    :ivar trace: the trace hook's own.
    """

    producer_group: str
    message: Message
    queue: MessageQueue
    broker_address: str
    born_host: str
    kind: str = "normal"
    mode: str = "SYNC"
    namespace: str = ""
    result: SendResult | None = None
    error: BaseException | None = None
    trace: Any = None


@attrs.define
class ConsumeContext:
    """One call of a handler.

    :ivar success: set afterwards.
    :ivar status: the handler's verdict as text.
    :ivar return_type: ``SUCCESS``, ``TIME_OUT``, ``EXCEPTION``, ``RETURNNULL`` or ``FAILED``, as traces say.
    :ivar trace: the trace hook's own.
    """

    consumer_group: str
    messages: list[MessageExt]
    queue: MessageQueue
    namespace: str = ""
    success: bool = False
    status: str = ""
    return_type: str = ""
    access_channel: str = "LOCAL"
    trace: Any = None


ForbiddenHook = Callable[[SendContext], None]
"""May raise `MQClientError` to keep a message from being sent."""


def call_hooks(hooks: Iterable[Any], method: str, context: SendContext | ConsumeContext) -> None:
    """Call one method of all hooks; failures go to the log."""
    for hook in hooks:
        try:
            getattr(hook, method)(context)
        except Exception:
            # One without a name, against its interface, must harm no message either.
            name = getattr(hook, "name", type(hook).__name__)
            log.failure("hook {name} failed in {method}", name=name, method=method)


class ExtraFields:
    """Puts the same fields into every request (official ``NamespaceRpcHook``, ``StreamTypeRPCHook``); a `RequestHook`."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = dict(fields)

    def before_request(self, address: str, command: RemotingCommand) -> None:
        """Add them behind the request's own."""
        command.ext_fields = {**(command.ext_fields or {}), **self._fields}

    def after_response(self, address: str, command: RemotingCommand, answer: object) -> None:
        """Nothing to see."""


class AclHook:
    """Signs every request (official ``AclClientRPCHook``); a `RequestHook`. Give it as the last of the hooks: it signs what is there.

    :param security_token: of temporary credentials.
    """

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        self._fields = {ACCESS_KEY: access_key}
        if security_token:
            self._fields[SECURITY_TOKEN] = security_token
        self._secret_key = secret_key

    def before_request(self, address: str, command: RemotingCommand) -> None:
        """Add key and signature."""
        fields = {**(command.ext_fields or {}), **self._fields}
        content = signed_content(fields, command.body)
        fields[SIGNATURE] = calculate_signature(content, self._secret_key)
        command.ext_fields = fields

    def after_response(self, address: str, command: RemotingCommand, answer: object) -> None:
        """Nothing to see."""
