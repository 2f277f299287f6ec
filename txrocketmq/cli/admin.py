"""``txrocketmq admin``: the commands of ``mqadmin``, made of one table; what they find is written as JSON."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import click
from twisted.internet.task import Clock, deferLater

from txrocketmq.cli.admin_commands import (
    COMMANDS,
    INTERVAL,
    KINDS,
    NO_EFFECT,
    TRACED,
    Command,
    Option,
    read_value,
)
from txrocketmq.cli.plain import plain
from txrocketmq.errors import RocketMQError

_ADDRESSES = {"broker", "controller", "container", "fromBroker", "toBroker"}
"""Parameters and options that are an address."""
_FOR_CALLERS = re.compile(r" \([^()]*``[^()]*\)| Errors as [^.]*\.")
"""What docstrings say to programmers: the official command that an operation stands for, and what it raises."""


def arguments_of(command: Command, given: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Parameters from what was typed.

    :raises click.UsageError: a value is not of its option's kind.
    """
    found: dict[str, Any] = {}
    for option in command.options:
        text = given.get(option.argument)
        if text is None or text is False or option.parameter == NO_EFFECT:
            continue
        try:
            found[option.parameter] = (
                True if option.kind == "flag" else read_value(option.kind, text, now_ms)
            )
        except ValueError as error:
            raise click.UsageError(f"{', '.join(option.flags)}: {error}") from None
    if "change_key" in found:
        found["changes"] = {found.pop("change_key"): found.pop("change_value")}
    return found


def named_operation(path: str, admin: Any) -> Any:
    """The operation of a path ``subject.method``: of the admin client, or of this tool, for those of several operations and of files."""
    from txrocketmq.cli.admin_files import FileSteps
    from txrocketmq.cli.admin_monitor import Monitor
    from txrocketmq.cli.admin_steps import EachBroker, Steps

    own: dict[str, Any] = {
        "steps": Steps,
        "files": FileSteps,
        "each": EachBroker,
        "monitor": Monitor,
    }
    subject, _, name = path.partition(".")
    return getattr(own[subject](admin) if subject in own else getattr(admin, subject), name)


def operation_of(command: Command, admin: Any, arguments: Mapping[str, Any]) -> Any:
    """The operation that takes these parameters, bound to them.

    :raises click.UsageError: there is none.
    """
    lacking = []
    for path in command.operations:
        operation = named_operation(path, admin)
        signature = inspect.signature(operation)
        try:
            signature.bind(**arguments)
        except TypeError:
            lacking.append(_lacking(command, signature, arguments))
            continue
        return lambda operation=operation: operation(**arguments)
    if needed := " or ".join(dict.fromkeys(filter(None, lacking))):
        raise click.UsageError(f"{command.name} needs {needed}")
    raise click.UsageError(
        f"{command.name} does not take these options together; see txrocketmq admin {command.name} -h"
    )


def _lacking(command: Command, signature: inspect.Signature, arguments: Mapping[str, Any]) -> str:
    """The options that an operation needs besides those given; empty where it does not take these."""
    try:
        signature.bind_partial(**arguments)
    except TypeError:
        return ""
    flags = {option.parameter: "/".join(option.flags) for option in command.options}
    return " and ".join(
        flags[name]
        for name, one in signature.parameters.items()
        if one.default is inspect.Parameter.empty and name in flags and name not in arguments
    )


def _run(command: Command, namesrv: str, given: Mapping[str, Any]) -> None:
    from txrocketmq.cli import session
    from txrocketmq.client.admin.admin import Admin
    from txrocketmq.client.config import ClientConfig

    arguments = arguments_of(command, given, int(time.time() * 1000))
    every_s = arguments.pop(INTERVAL, None)
    config = ClientConfig(namesrv_addr=namesrv, enable_trace=arguments.pop(TRACED, False))
    try:
        # Said before anybody is asked: what cannot be bound is a slip of who typed it.
        operation_of(command, Admin(Clock(), config), arguments)
    except RocketMQError as error:
        sys.exit(session.complain(error))

    async def work(reactor: Any, client: Any, directory: Any) -> int:
        async with Admin(reactor, config) as admin:
            while True:
                await _show(operation_of(command, admin, arguments)())
                if every_s is None:
                    return 0
                await deferLater(reactor, every_s)

    sys.exit(session.run(namesrv, work))


async def _show(found: Any) -> None:
    """Print a result as JSON; of what comes one after the other, one a line."""
    if hasattr(found, "__aiter__"):
        async for item in found:
            click.echo(json.dumps(plain(item), ensure_ascii=False))
    else:
        click.echo(json.dumps(plain(await found), indent=2, ensure_ascii=False))


class _AdminCommand(click.Command):
    """A command whose help is what its operations say of themselves; they are imported only when somebody wants to read it."""

    def __init__(self, command: Command, **settings: Any) -> None:
        super().__init__(command.name, **settings)
        self._command = command

    def _summaries(self) -> list[str]:
        from txrocketmq.client.admin.admin import Admin
        from txrocketmq.client.config import ClientConfig

        admin = Admin(Clock(), ClientConfig())
        docs = [inspect.getdoc(named_operation(path, admin)) for path in self._command.operations]
        return [summary_of(doc or "") for doc in docs]

    def get_short_help_str(self, limit: int = 45) -> str:
        """In the list of commands."""
        self.short_help = self._summaries()[0]
        return super().get_short_help_str(limit)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """On the command's own page."""
        self.help = "\n\nOr: ".join(self._summaries())
        super().format_help_text(ctx, formatter)


def summary_of(doc: str) -> str:
    """The first paragraph of a docstring, for who types commands: without marks and what is for programmers, and None as JSON has it."""
    first = " ".join(doc.split("\n\n")[0].split())
    return _FOR_CALLERS.sub("", first).replace("`", "").replace("None", "null")


def _metavar(option: Option) -> str:
    is_address = option.parameter in _ADDRESSES or option.name in _ADDRESSES
    return "HOST:PORT" if is_address else option.kind.upper()


def _help(option: Option) -> str | None:
    if option.parameter == INTERVAL:
        return "Do it again and again, so many seconds between."
    if option.parameter == NO_EFFECT:
        return "No effect here."
    return KINDS.get(option.kind)


def _click_command(command: Command) -> click.Command:
    parameters: list[click.Parameter] = [
        click.Option(
            ["-n", "--namesrvAddr", "--nameserverAddr", "namesrv"],
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
                [*option.flags, option.argument],
                required=option.is_required,
                # Said of an option with a value, False would let the value be left out.
                is_flag=is_flag or None,
                metavar=None if is_flag else _metavar(option),
                help=_help(option),
            )
        )

    def call(namesrv: str, **given: Any) -> None:
        _run(command, namesrv, given)

    return _AdminCommand(command, params=parameters, callback=call)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def admin() -> None:
    """What mqadmin does: its commands and options, with results as JSON."""


for _command in COMMANDS:
    admin.add_command(_click_command(_command))
