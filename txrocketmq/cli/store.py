"""``txrocketmq store``: look into the directory of a stopped broker, check it, repair it.

The work is done by `txrocketmq.store.inspect`, `txrocketmq.store.verify` and `txrocketmq.store.rebuild`; here are options and words.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from txrocketmq.errors import RocketMQError

if TYPE_CHECKING:
    from txrocketmq.store.inspect import LogRecord, StoreDirectory

_DIRECTORY = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


class _LogPaths(click.ParamType):  # type: ignore[type-arg]
    """Directories with commas between them, all of which are there."""

    name = "directories"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        for part in str(value).split(","):
            if not Path(part.strip()).is_dir():
                self.fail(f"{part.strip()!r} is no directory", param, ctx)
        return Path(value)


_LOG = click.option(
    "--commitlog",
    type=_LogPaths(),
    help="Where the commit log is, when not in DIRECTORY/commitlog (storePathCommitLog); several "
    "directories with commas between them.",
)


class _Time(click.ParamType):  # type: ignore[type-arg]
    """Milliseconds since 1970, or an ISO date or time (local, unless it names a zone)."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except ValueError:
            return self.fail(f"{value!r} is neither milliseconds nor an ISO time", param, ctx)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What chooses messages: for `dump` and `export`."""
    for option in (
        click.option("--topic", help="Only messages of this topic."),
        click.option("--queue", type=int, help="Only messages of queues with this number."),
        click.option(
            "--from",
            "from_ms",
            type=_Time(),
            help="Only messages stored then or later: ms since 1970, or as 2026-11-30T18:00.",
        ),
        click.option(
            "--to", "to_ms", type=_Time(), help="Only messages stored then or earlier; as --from."
        ),
        click.option("--key", help="Only messages with this key or unique key."),
    ):
        function = option(function)
    return function


def _said(error: OSError | RocketMQError) -> str:
    """An error in words, one of the system without its number."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return where + error.strerror.lower()
    return str(error)


class _Plainly(click.Group):
    """What goes wrong is one line, not a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (OSError, RocketMQError) as error:
            raise click.ClickException(_said(error)) from error


@click.group(cls=_Plainly)
def store() -> None:
    """Look into a store DIRECTORY (storePathRootDir), also one of the Java broker."""


def _open(directory: Path, commitlog: Path | None) -> StoreDirectory:
    from txrocketmq.store.inspect import StoreDirectory

    try:
        return StoreDirectory(directory, commitlog)
    except (OSError, RocketMQError) as error:
        raise click.ClickException(_said(error)) from error


def _time(ms: int) -> str:
    if not ms:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} (no time)"


# --------------------------------------------------------------------------- info and ls


@store.command()
@_DIRECTORY
@_LOG
def info(directory: Path, commitlog: Path | None) -> None:
    """Say what the directory holds."""
    from txrocketmq.store.inspect import LogRecord

    found = _open(directory, commitlog)
    queues = list(found.queues())
    checkpoint = found.checkpoint()
    first = found.find_record(found.min_offset)
    click.echo(f"commit log    {len(found.files)} files of {found.file_bytes} bytes")
    click.echo(f"offsets       {found.min_offset} to at most {found.files_end}")
    newest = 0
    for file in reversed(found.files):
        for item in found.walk(file.base_offset, check_crc=False):
            if isinstance(item, LogRecord):
                newest = item.head.store_timestamp
        if newest:
            break
    click.echo(
        f"stored        {_time(first.head.store_timestamp if first else 0)} to {_time(newest)}"
    )
    topics = {queue.topic for queue in queues}
    batch = sum(queue.is_batch for queue in queues)
    click.echo(f"queues        {len(queues)} of {len(topics)} topics, {batch} of them batch queues")
    click.echo(f"index         {len(found.index_paths())} files")
    if checkpoint is None:
        click.echo("checkpoint    none")
    for name, value in (checkpoint or {}).items():
        shown = _time(value) if name.endswith("Timestamp") else value
        click.echo(f"checkpoint    {name} {shown}")
    is_locked = found.is_locked()
    abort = "none"
    if (directory / "abort").exists():
        abort = f"there: {'a broker runs' if is_locked else 'the last stop was not orderly'}"
    click.echo(f"abort file    {abort}")
    click.echo(f"lock          {'held by a running broker' if is_locked else 'free'}")


@store.command()
@_DIRECTORY
@_LOG
def ls(directory: Path, commitlog: Path | None) -> None:
    """List topics and queues with their smallest and next offset."""
    found = _open(directory, commitlog)
    click.echo("QUEUE         MIN         MAX  TOPIC")
    for queue in found.queues():
        low, high = queue.bounds(found.min_offset)
        click.echo(f"{queue.queue_id:>5} {low:>11} {high:>11}  {queue.topic}")


# --------------------------------------------------------------------------- dump


def _chosen(
    found: StoreDirectory,
    topic: str | None,
    queue: int | None,
    from_ms: int | None,
    to_ms: int | None,
    key: str | None,
) -> Iterator[LogRecord]:
    from txrocketmq.model import properties as props
    from txrocketmq.model.properties import parse_properties
    from txrocketmq.store import rebuild
    from txrocketmq.store.inspect import LogFault

    progress, said = _share(found.min_offset, found.files_end), found.min_offset
    for item in found.walk():
        offset = item.start if isinstance(item, LogFault) else item.offset
        if offset - said >= rebuild.PROGRESS_BYTES:
            said = offset
            progress(said)
        if isinstance(item, LogFault):
            click.echo(f"no valid record at {item.start}: {item.reason}", err=True)
            continue
        head = item.head
        if (
            (topic is not None and head.topic != topic)
            or (queue is not None and head.queue_id != queue)
            or (from_ms is not None and head.store_timestamp < from_ms)
            or (to_ms is not None and head.store_timestamp > to_ms)
        ):
            continue
        if key is not None:
            found_keys = parse_properties(head.properties)
            keys = found_keys.get(props.KEYS, "").split(" ")
            if key not in keys and key != found_keys.get(props.UNIQ_KEY):
                continue
        yield item


def _share(begin: int, end: int) -> Callable[[int], None]:
    """What says on standard error how far something is."""
    whole = max(end - begin, 1)
    return lambda at: click.echo(f"{(at - begin) * 100 // whole} % ({at})", err=True)


def _described(record: LogRecord) -> dict[str, Any]:
    from txrocketmq.codec.record import decode_record

    message, _ = decode_record(record.data, check_crc=False)
    described: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "msgId": message.msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": "{}:{}".format(*message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": "{}:{}".format(*message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
    }
    try:
        described["body"] = message.body.decode()
    except UnicodeDecodeError:
        described["bodyBase64"] = base64.b64encode(message.body).decode()
    return described


@store.command()
@_DIRECTORY
@_LOG
@_options
def dump(directory: Path, commitlog: Path | None, **choice: Any) -> None:
    """Print messages as JSON, one a line, in the order of the log."""
    for record in _chosen(_open(directory, commitlog), **choice):
        click.echo(json.dumps(_described(record), ensure_ascii=False))


# --------------------------------------------------------------------------- verify


@store.command()
@_DIRECTORY
@_LOG
@click.option("--no-index", is_flag=True, help="Leave the index out (messageIndexEnable=false).")
def verify(directory: Path, commitlog: Path | None, no_index: bool) -> None:
    """Check every record, queue unit and index entry against the others. Exit code 1 when a fault was found."""
    from txrocketmq.store.verify import Verifier

    found = _open(directory, commitlog)
    if found.is_locked():
        click.echo(
            "a broker runs on this directory: what it writes meanwhile looks like faults", err=True
        )
    progress = _share(found.min_offset, found.files_end)
    verifier = Verifier(found, click.echo, progress, with_index=not no_index)
    faults = verifier.run()
    click.echo(
        f"{verifier.records} records, {verifier.units} queue units, {verifier.entries} index entries; "
        f"the log ends at {verifier.end_offset}; faults: {faults}"
    )
    sys.exit(1 if faults else 0)


# --------------------------------------------------------------------------- repair


@store.command()
@_DIRECTORY
@_LOG
@click.option("--apply", is_flag=True, help="Do it; without this only say what would be done.")
@click.option("--cut", "how", flag_value="cut", help="Damage in the middle: drop all behind it.")
@click.option("--skip", "how", flag_value="skip", help="Damage in the middle: lose only that.")
@click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False),
    help="The broker's configuration: its delay levels, and sizes of files that are gone.",
)
def repair(
    directory: Path, commitlog: Path | None, apply: bool, how: str | None, config_file: str | None
) -> None:
    """Derive queues and index from the log anew, and deal with damage in the log."""
    from txrocketmq.config.load import Role, load_settings
    from txrocketmq.config.schema import MessageStoreConfig
    from txrocketmq.store import rebuild

    found = _open(directory, commitlog)
    base = None
    if config_file is not None:
        try:
            settings = load_settings(Role.BROKER, config_file=config_file)
        except RocketMQError as error:
            raise click.ClickException(str(error)) from error
        base = settings.section(MessageStoreConfig)

    progress = _share(found.min_offset, found.files_end)
    state = rebuild.read_log(found, progress)
    for fault in state.faults:
        behind = "the log ends there" if fault.end is None else f"the next one is at {fault.end}"
        click.echo(f"no valid record at {fault.start} ({fault.reason}); {behind}")
    click.echo(f"{state.records} records from which queues and index are derived")
    if state.damage and how is None:
        first = state.damage[0].start
        click.echo(
            f"say --cut to drop everything from {first} on, or --skip to lose only what is damaged"
        )
        sys.exit(1)
    if not apply:
        click.echo("nothing was changed: say --apply to do it")
        return
    try:
        aside = rebuild.repair(found, click.echo, progress, how=how, base=base)
    except (OSError, RocketMQError) as error:
        raise click.ClickException(_said(error)) from error
    click.echo(f"the old files are in {aside}; delete them when all is well")


# --------------------------------------------------------------------------- export and import


@store.command()
@_DIRECTORY
@click.argument("output", type=click.File("wb"))
@_LOG
@_options
def export(directory: Path, output: IO[bytes], commitlog: Path | None, **choice: Any) -> None:
    """Write messages to the file OUTPUT as raw records, for `import`."""
    from txrocketmq.store.rebuild import export_messages

    count = export_messages(_chosen(_open(directory, commitlog), **choice), output.write)
    click.echo(f"{count} messages", err=True)


@store.command("import")
@_DIRECTORY
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_LOG
def import_(directory: Path, source: Path, commitlog: Path | None) -> None:
    """Append the messages of the file SOURCE, made by `export`, to the store; an empty DIRECTORY becomes one."""
    import mmap

    from txrocketmq.config.schema import MessageStoreConfig
    from txrocketmq.store.rebuild import import_messages

    is_store = commitlog is not None or (directory / "commitlog").is_dir()
    config = (
        _open(directory, commitlog).config()
        if is_store
        else MessageStoreConfig(store_path_root_dir=str(directory))
    )
    if source.stat().st_size == 0:
        click.echo("0 messages")
        return
    try:
        with source.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        taken, refused = import_messages(config, memoryview(data), click.echo, _share(0, len(data)))
    except (OSError, RocketMQError) as error:
        raise click.ClickException(_said(error)) from error
    click.echo(f"{taken} messages, {refused} not taken")
    sys.exit(1 if refused else 0)
