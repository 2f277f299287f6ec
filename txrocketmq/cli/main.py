"""The ``txrocketmq`` command: first steps for a newcomer, and a look into captured bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import txrocketmq
from txrocketmq import native
from txrocketmq.cli.admin import admin
from txrocketmq.cli.store import store

_LONGEST_PATH = 255
_LONGEST_SHOWN = 60

_NAMESRV = click.option(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT;...",
    help="Name servers to ask (also from NAMESRV_ADDR).",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    txrocketmq.__version__,
    prog_name="txrocketmq",
    message=f"%(prog)s, version %(version)s\ncompiled functions {native.description}",
)
def main() -> None:
    """Speak to a RocketMQ cluster. The servers themselves are started with twistd."""


@main.command()
@click.argument("topic")
@click.argument("text")
@_NAMESRV
@click.option("--tag", help="Tag that consumers can select by.")
@click.option("--key", "keys", multiple=True, help="Key to find the message by; may be repeated.")
def send(topic: str, text: str, namesrv: str, tag: str | None, keys: tuple[str, ...]) -> None:
    """Send TEXT to TOPIC and say where it is stored."""
    from txrocketmq.cli import session
    from txrocketmq.cli.send import Outgoing
    from txrocketmq.cli.send import send as send_message

    message = Outgoing(topic, text.encode("utf-8", "surrogateescape"), tag, " ".join(keys) or None)

    async def work(reactor: Any, client: Any, directory: Any) -> int:
        click.echo(session.one_line(await send_message(reactor, client, directory, message)))
        return 0

    sys.exit(session.run(namesrv, work))


@main.command()
@click.argument("topic")
@_NAMESRV
@click.option(
    "--from-start", is_flag=True, help="Begin with the oldest message, not with the next."
)
@click.option("--count", type=click.IntRange(1), help="End after this many messages.")
def tail(topic: str, namesrv: str, from_start: bool, count: int | None) -> None:
    """Show the messages of TOPIC as they arrive; Ctrl-C ends."""
    from txrocketmq.cli import session
    from txrocketmq.cli.tail import Tail

    async def work(reactor: Any, client: Any, directory: Any) -> int:
        following = Tail(
            reactor,
            client,
            directory,
            topic,
            show=click.echo,
            note=lambda line: click.echo(session.one_line(line), err=True),
            from_start=from_start,
            count=count,
        )
        await following.run()
        return 0

    sys.exit(session.run(namesrv, work, when_interrupted=0))


@main.command()
@click.argument("source", metavar="FILE|HEX")
def explain(source: str) -> None:
    """Say in words what captured remoting frames hold: a file of raw bytes, or the bytes as hex digits."""
    from txrocketmq.cli import session
    from txrocketmq.codec.explain import explain_stream

    # Hex digits may well be too many for a file name.
    is_file = len(source) <= _LONGEST_PATH and Path(source).exists()
    try:
        data = Path(source).read_bytes() if is_file else bytes.fromhex(source)
    except OSError as error:
        sys.exit(session.complain(f"cannot read {source}: {(error.strerror or '').lower()}"))
    except ValueError:
        shown = source if len(source) <= _LONGEST_SHOWN else f"{source[:_LONGEST_SHOWN]}..."
        sys.exit(session.complain(f"{shown!r} is neither a file nor hex digits"))
    click.echo(explain_stream(data))


@main.command("message-id")
@click.argument("message_id", metavar="ID")
def message_id_command(message_id: str) -> None:
    """Say what a message id tells: as a broker's id, and as the id that a client made. Nobody is asked."""
    from txrocketmq.cli import session
    from txrocketmq.cli.message_id import readings
    from txrocketmq.errors import RocketMQError

    try:
        for line in readings(message_id.strip()):
            click.echo(line)
    except RocketMQError as error:
        sys.exit(session.complain(error))


main.add_command(admin)
main.add_command(store)

if __name__ == "__main__":
    main(prog_name="txrocketmq")
