"""``txrocketmq admin``: the commands of ``mqadmin``, made of one table; what they find is written as JSON."""

from __future__ import annotations

import enum
import inspect
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import attrs
import click
import msgspec
from twisted.internet.task import Clock

from txrocketmq.cli.admin_commands import COMMANDS, Command, read_value
from txrocketmq.errors import RocketMQError
from txrocketmq.model.message import MessageExt, MessageQueue


def plain(value: Any) -> Any:
    """A result as JSON has it: names of fields as they are in Python, queues as ``broker/topic/number`` where they are keys."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, MessageExt):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        del fields["properties_text"]
        shown = {name: item for name, item in fields.items() if not name.startswith("_")}
        return plain({**shown, "msg_id": value.msg_id, "properties": value.properties})
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if attrs.has(type(value)):
        fields = attrs.asdict(value, recurse=False)
        return {name: plain(item) for name, item in fields.items()}
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, MessageQueue):
        return f"{key.broker_name}/{key.topic}/{key.queue_id}"
    return str(plain(key))


def arguments_of(command: Command, given: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Parameters from what was typed.

    :raises click.UsageError: a value is not of its option's kind.
    """
    found: dict[str, Any] = {}
    for option in command.options:
        text = given.get(option.parameter)
        if text is None or text is False:
            continue
        try:
            found[option.parameter] = (
                True if option.kind == "flag" else read_value(option.kind, text, now_ms)
            )
        except ValueError as error:
            raise click.UsageError(f"-{option.letter}, --{option.name}: {error}") from None
    if "change_key" in found:
        found["changes"] = {found.pop("change_key"): found.pop("change_value")}
    return found


def operation_of(command: Command, admin: Any, arguments: Mapping[str, Any]) -> Any:
    """The operation that takes these parameters, bound to them.

    :raises click.UsageError: there is none.
    """
    for path in command.operations:
        subject, _, name = path.partition(".")
        operation = getattr(getattr(admin, subject), name)
        try:
            inspect.signature(operation).bind(**arguments)
        except TypeError:
            continue
        return lambda operation=operation: operation(**arguments)
    raise click.UsageError(
        f"{command.name} does not take these options together; see txrocketmq admin {command.name} -h"
    )


def _run(command: Command, namesrv: str, given: Mapping[str, Any]) -> None:
    from txrocketmq.cli import session
    from txrocketmq.client.admin.admin import Admin

    arguments = arguments_of(command, given, int(time.time() * 1000))
    try:
        # Said before anybody is asked: what cannot be bound is a slip of who typed it.
        operation_of(command, Admin(Clock(), namesrv_addr=namesrv), arguments)
    except RocketMQError as error:
        sys.exit(session.complain(error))

    async def work(reactor: Any, client: Any, directory: Any) -> int:
        async with Admin(reactor, namesrv_addr=namesrv) as admin:
            found = await operation_of(command, admin, arguments)()
        click.echo(json.dumps(plain(found), indent=2, ensure_ascii=False))
        return 0

    sys.exit(session.run(namesrv, work))


def _click_command(command: Command) -> click.Command:
    parameters: list[click.Parameter] = [
        click.Option(
            ["-n", "--namesrvAddr", "namesrv"],
            envvar="NAMESRV_ADDR",
            default="127.0.0.1:9876",
            show_default=True,
            metavar="HOST:PORT;...",
            help="Name servers to ask (also from NAMESRV_ADDR).",
        )
    ]
    for option in command.options:
        is_flag = option.kind == "flag"
        parameters.append(
            click.Option(
                [f"-{option.letter}", f"--{option.name}", option.parameter],
                required=option.is_required,
                is_flag=is_flag,
                metavar=None if is_flag else option.kind.upper(),
            )
        )

    def call(namesrv: str, **given: Any) -> None:
        _run(command, namesrv, given)

    return click.Command(
        command.name,
        params=parameters,
        callback=call,
        help=f"See {' and '.join(command.operations)}.",
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def admin() -> None:
    """What mqadmin does: its commands and options, with results as JSON."""


for _command in COMMANDS:
    admin.add_command(_click_command(_command))
