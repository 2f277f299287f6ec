"""Are the commands of operators those of mqadmin, and does each reach its operation?"""

from __future__ import annotations

import inspect
import json
from typing import Any

import click
import pytest
from admin_world import CLUSTER, AdminWorld, address
from click.testing import CliRunner
from golden import protocol_table
from twisted.internet.task import Clock

from txrocketmq.cli.admin import arguments_of, named_operation, operation_of, plain
from txrocketmq.cli.admin_commands import (
    COMMANDS,
    INTERVAL,
    NO_EFFECT,
    NO_LETTER,
    TRACED,
    Command,
    read_value,
)
from txrocketmq.cli.main import main
from txrocketmq.client.admin.admin import Admin
from txrocketmq.model.heartbeat import MessageRequestMode
from txrocketmq.model.message import Message, MessageQueue

BY_NAME = {command.name: command for command in COMMANDS}
OFFICIAL = {command["name"]: command for command in protocol_table("admin_commands")}


#: What mqadmin has and this tool has not: it reads a RocksDB that no broker has open.
LEFT_OUT = {"exportMetadataInRocksDB"}


#: Options that this tool has not: what a message that is sent again would be marked with, and an embedded RocksDB.
OPTIONS_LEFT_OUT = {
    "queryMsgById": {"u"},
    "rocksDBConfigToJson": {"p", "e", "j"},
}


def test_every_command_of_mqadmin_is_there() -> None:
    assert set(BY_NAME) == set(OFFICIAL) - LEFT_OUT
    assert len(BY_NAME) == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_of_mqadmin_is_there(command: Command) -> None:
    """Besides ``-n``, which all commands have."""
    typed = {"null" if one.letter == NO_LETTER else one.letter for one in command.options} | {"n"}
    official = {option["short"] for option in OFFICIAL[command.name]["options"]}
    assert official - typed == OPTIONS_LEFT_OUT.get(command.name, set())


def _typed_name(official: str) -> str:
    """A long name without the blanks that some have in mqadmin, where nobody can type them."""
    first, *more = official.split()
    return first + "".join(word.capitalize() for word in more)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_names_and_options_are_the_official_ones(command: Command) -> None:
    official = {
        (option["short"], _typed_name(option["long"])): option
        for option in OFFICIAL[command.name]["options"]
    }
    for option in command.options:
        letter = "null" if option.letter == NO_LETTER else option.letter
        told = official[letter, option.name]
        assert told["has_arg"] == (option.kind != "flag")
        if told["required"] is True:
            # What mqadmin wants is wanted here, unless the other meaning of the command does without it.
            assert option.is_required or len(command.operations) > 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_option_is_for_a_parameter(command: Command) -> None:
    admin = Admin(Clock(), namesrv_addr="192.0.2.1:9876")
    taken: set[str] = set()
    for path in command.operations:
        parameters = dict(inspect.signature(named_operation(path, admin)).parameters)
        if parameters.pop("settings", None) or parameters.pop("choice", None):
            # The rest is the first operation's.
            assert path != command.operations[0]
        taken |= set(parameters)
        # And all that it cannot do without can be given.
        needed = {
            name for name, one in parameters.items() if one.default is inspect.Parameter.empty
        }
        given = {option.parameter for option in command.options}
        assert needed - {"changes"} <= given
    for option in command.options:
        wanted = "changes" if option.parameter.startswith("change_") else option.parameter
        assert wanted in taken | {INTERVAL, TRACED, NO_EFFECT}


def test_values() -> None:
    assert read_value("pairs", "+message.type=FIFO, -cleanup.policy", 0) == {
        "+message.type": "FIFO",
        "-cleanup.policy": "",
    }
    assert read_value("list", "a, b,", 0) == ["a", "b"]
    assert read_value("numbers", "1; 2;", 0) == [1, 2]
    assert read_value("mode", "pop", 0) is MessageRequestMode.POP
    assert read_value("time", "now", 17) == 17
    assert read_value("time", "1700000000000", 0) == 1_700_000_000_000
    written = read_value("time", "2026-01-02#03:04:05:678", 0)
    assert written - read_value("time", "2026-01-02#03:04:04:000", 0) == 1678
    for kind, text, says in (
        ("int", "x", "'x' is no whole number"),
        ("numbers", "1;x", "'x' is no whole number"),
        ("bool", "yes", "'yes' is neither true nor false"),
        (
            "time",
            "yesterday",
            "'yesterday' is no time: ms since 1970, now, or yyyy-MM-dd#HH:mm:ss:SSS",
        ),
        ("mode", "push", "'push' is none of PULL, POP"),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            read_value(kind, text, 0)


def test_results_are_plain() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=1)
    found = plain({queue: [b"x\xff", {3, 1}, MessageRequestMode.POP, queue, None]})
    assert json.loads(json.dumps(found)) == {
        "b/T/1": ["x\\xff", [1, 3], "POP", {"broker_name": "b", "queue_id": 1, "topic": "T"}, None]
    }


def typed(world: AdminWorld, name: str, **options: Any) -> Any:
    """What a command finds."""
    command = BY_NAME[name]
    parameters = {option.name: option.argument for option in command.options}
    given = {parameters[option]: value for option, value in options.items()}
    arguments = arguments_of(command, given, 0)
    found = operation_of(command, world.admin, arguments)()
    return plain(world.collect(found) if hasattr(found, "__aiter__") else world.wait(found))


def test_an_operators_day() -> None:
    world = AdminWorld()
    made = typed(
        world,
        "updateTopic",
        topic="Orders",
        clusterName=CLUSTER,
        readQueueNums="2",
        writeQueueNums="2",
    )
    assert made == [address(2)]
    assert "Orders" in typed(world, "topicList")
    [data] = typed(world, "topicRoute", topic="Orders")["queue_datas"]
    assert (data["broker_name"], data["write_queue_nums"]) == ("broker-2", 2)
    producer = world.producer()
    sent = world.wait(producer.send(Message("Orders", "häll".encode(), 0, {"KEYS": "k1"})))
    found = typed(
        world,
        "queryMsgByOffset",
        topic="Orders",
        brokerName="broker-2",
        queueId=str(sent.queue.queue_id),
        offset="0",
    )
    assert (found["body"], found["properties"]["KEYS"]) == ("häll", "k1")
    assert found["msg_id"] == sent.offset_msg_id
    assert typed(world, "brokerStatus", brokerAddr=address(2))["msgPutTotalTodayNow"] == "1"
    assert list(typed(world, "brokerStatus", clusterName=CLUSTER)) == [address(2)]
    changed = {"key": "flushDelayOffsetInterval", "value": "9000"}
    typed(world, "updateBrokerConfig", brokerAddr=address(2), **changed)
    config = typed(world, "getBrokerConfig", brokerAddr=address(2))
    assert config["flushDelayOffsetInterval"] == "9000"


def test_slips_are_told_before_anybody_is_asked() -> None:
    def said(*words: str) -> str:
        outcome = CliRunner().invoke(main, ["admin", *words])
        assert outcome.exit_code != 0
        return outcome.output

    assert "Missing option '-t'" in said("topicRoute")
    assert "brokerStatus needs -b/--brokerAddr or -c/--clusterName\n" in said("brokerStatus")
    assert "needs -b/--broker and -o/--offset\n" in said(
        "resetOffsetByTime", "-g", "g", "-t", "t", "-q", "1"
    )
    both = said("brokerStatus", "-b", "192.0.2.1:10911", "-c", "c")
    assert "does not take these options together" in both
    # Neither at the end, nor before another option, may a value be left out.
    assert "Option '-r' requires an argument" in said("updateTopic", "-c", "c", "-t", "t", "-r")
    assert "-r, --readQueueNums" in said("updateTopic", "-c", "c", "-t", "t", "-r", "many")
    assert "No such command" in said("topicRoutes")


def test_two_meanings_are_told_apart() -> None:
    admin = Admin(Clock(), namesrv_addr="192.0.2.1:9876")
    with pytest.raises(click.UsageError, match="together"):
        operation_of(BY_NAME["brokerStatus"], admin, {"broker": "b", "cluster": "c"})
    assert callable(operation_of(BY_NAME["consumerProgress"], admin, {}))


class TestHelp:
    def test_a_command_says_what_it_does_in_each_of_its_forms(self) -> None:
        shown = CliRunner().invoke(main, ["admin", "consumerProgress", "-h"])
        assert "Where a group stands, queue by queue.\n\n" in shown.output
        assert "Or: All groups that ever ran, by their retry topics, sorted.\n" in shown.output

    def test_the_list_says_what_each_command_does(self) -> None:
        shown = CliRunner().invoke(main, ["admin", "-h"])
        assert "topicRoute                      Where a topic is.\n" in shown.output
        commands = shown.output.partition("Commands:\n")[2]
        assert not [line for line in commands.splitlines() if line.endswith("  ")]
        assert "`" not in commands
        assert "None" not in commands

    def test_an_option_says_how_its_value_is_typed(self) -> None:
        shown = CliRunner().invoke(main, ["admin", "printMsg", "-h"], terminal_width=200)
        assert "ms since 1970, now, or yyyy-MM-dd#HH:mm:ss:SSS in local time.\n" in shown.output
        shown = CliRunner().invoke(main, ["admin", "haStatus", "-h"], terminal_width=200)
        assert "-b, --brokerAddr HOST:PORT\n" in shown.output
        assert "Do it again and again, so many seconds between.\n" in shown.output
