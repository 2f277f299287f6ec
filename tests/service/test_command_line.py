"""The newcomer's first minute: send, tail, and errors that tell the causes apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import (
    AllInOne,
    Process,
    command_line,
    environment,
    free_ports,
    plain_twistd,
    run,
)

from txrocketmq.codec.command import RemotingCommand

Start = Callable[..., Process]


def test_a_sent_message_is_shown_by_tail(all_in_one: AllInOne, tmp_path: Path) -> None:
    asked = ("-n", all_in_one.namesrv)
    following = Process(command_line("tail", "T1", "--count", "1", *asked), tmp_path)
    try:
        following.wait_for("waiting for topic T1 to be made")
        sent = run(
            command_line("send", "T1", "häll 你好", "--tag", "a", "--key", "k1", *asked), tmp_path
        )
        assert (sent.returncode, sent.stderr) == (0, "")
        assert sent.stdout.startswith("SEND_OK topic=T1 queue=broker-a/")
        assert following.wait() == 0
    finally:
        following.kill()
    line = following.output.splitlines()[-1]
    assert "broker-a/" in line
    assert line.endswith("tag=a keys=k1 häll 你好")


def test_tail_begins_with_what_comes_or_with_the_start(
    all_in_one: AllInOne, tmp_path: Path
) -> None:
    asked = ("-n", all_in_one.namesrv)
    for text in ("one", "two"):
        assert run(command_line("send", "T2", text, *asked), tmp_path).returncode == 0
    whole = run(command_line("tail", "T2", "--from-start", "--count", "2", *asked), tmp_path)
    assert whole.returncode == 0
    assert sorted(line.split()[-1] for line in whole.stdout.splitlines()) == ["one", "two"]


def test_operators_type_what_they_know(all_in_one: AllInOne, tmp_path: Path) -> None:
    asked = ("-n", all_in_one.namesrv)
    words = ("updateTopic", "-c", "DefaultCluster", "-t", "Typed", "-r", "2", "-w", "2", "-p", "4")
    made = run(command_line("admin", *words, *asked), tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert len(json.loads(made.stdout)) == 1
    route = run(command_line("admin", "topicRoute", "-t", "Typed", *asked), tmp_path)
    [data] = json.loads(route.stdout)["queue_datas"]
    assert (data["read_queue_nums"], data["perm"]) == (2, 4)
    failed = run(command_line("admin", "topicRoute", "-t", "NoSuchTopic", *asked), tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.startswith("txrocketmq: ")
    assert failed.stderr.count("\n") == 1
    for_nobody = run(command_line("admin", "updateTopic", "-t", "Typed", *asked), tmp_path)
    assert (for_nobody.returncode, for_nobody.stderr) == (
        1,
        "txrocketmq: say for whom: either a broker's host:port (broker, -b) or a cluster's name (cluster, -c)\n",
    )


def test_what_comes_one_after_the_other_is_a_line_each(
    all_in_one: AllInOne, tmp_path: Path
) -> None:
    asked = ("-n", all_in_one.namesrv)
    sent = [
        json.loads(
            run(
                command_line(
                    "admin", "sendMessage", "-t", "Lines", "-p", body, "-m", "true", *asked
                ),
                tmp_path,
            ).stdout
        )
        for body in ("one", "two")
    ]
    printed = run(command_line("admin", "printMsg", "-t", "Lines", *asked), tmp_path)
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert sorted(line["body"] for line in lines) == ["one", "two"]
    # Traces were written before the tool ended.
    words = ("queryMsgTraceById", "-i", sent[0]["msg_id"])
    [trace] = json.loads(run(command_line("admin", *words, *asked), tmp_path).stdout)
    assert (trace["type"], trace["beans"][0]["topic"]) == ("Pub", "Lines")
    again = Process(command_line("admin", "clusterList", "-i", "1", *asked), tmp_path)
    try:
        again.wait_for(r"(?s)broker_name.*broker_name")
        again.end(signal.SIGINT)
    finally:
        again.kill()
    assert "Traceback" not in again.output


@pytest.mark.parametrize(
    "words", [("tail", "Piped", "--from-start"), ("admin", "printMsg", "-t", "Piped")]
)
def test_a_reader_that_has_enough_ends_it_quietly(
    all_in_one: AllInOne, tmp_path: Path, words: tuple[str, ...]
) -> None:
    asked = ("-n", all_in_one.namesrv)
    run(command_line("send", "Piped", "one", *asked), tmp_path)
    check_head_is_enough(command_line(*words, *asked), tmp_path)


@pytest.mark.parametrize("option", ["-p", "-m"])
def test_settings_may_be_read_in_part(tmp_path: Path, option: str) -> None:
    check_head_is_enough(plain_twistd("rocketmq-broker", option), tmp_path)


def check_head_is_enough(command: list[str], directory: Path) -> None:
    """Nobody reads what the command prints, as after ``| head`` has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as out:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment(),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_ctrl_c_ends_tail_quietly(all_in_one: AllInOne, tmp_path: Path) -> None:
    following = Process(command_line("tail", "NotThere", "-n", all_in_one.namesrv), tmp_path)
    try:
        following.wait_for("waiting for topic")
        assert following.end(signal.SIGINT) == 0
    finally:
        following.kill()
    assert "Traceback" not in following.output


def test_the_address_may_come_from_the_environment(all_in_one: AllInOne, tmp_path: Path) -> None:
    sent = run(command_line("send", "T3", "x"), tmp_path, NAMESRV_ADDR=all_in_one.namesrv)
    assert sent.returncode == 0


def test_a_dead_name_server_in_the_list_does_no_harm(all_in_one: AllInOne, tmp_path: Path) -> None:
    servers = f"127.0.0.1:1; {all_in_one.namesrv}"
    assert run(command_line("send", "T3", "x", "-n", servers), tmp_path).returncode == 0


def test_separators_in_a_tag_are_refused(all_in_one: AllInOne, tmp_path: Path) -> None:
    sent = run(
        command_line("send", "T3", "x", "--tag", "a\x01b", "-n", all_in_one.namesrv), tmp_path
    )
    assert sent.returncode == 1
    assert "TAGS" in sent.stderr
    assert len(sent.stderr.splitlines()) == 1


# ---------------------------------------------- S12: why there is no route


def failure(directory: Path, *arguments: str) -> str:
    result = run(command_line(*arguments), directory)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("txrocketmq: ")
    return line


@pytest.mark.parametrize("command", [("send", "T9", "x"), ("tail", "T9")])
def test_no_name_server(tmp_path: Path, command: tuple[str, ...]) -> None:
    line = failure(tmp_path, *command, "-n", "127.0.0.1:1;127.0.0.1:2")
    assert "no name server answers, so topic T9 cannot be found: 127.0.0.1:1: " in line
    assert "127.0.0.1:2: " in line


@pytest.mark.parametrize("command", [("send", "T9", "x"), ("tail", "T9")])
def test_no_broker(start: Start, tmp_path: Path, command: tuple[str, ...]) -> None:
    namesrv = start("rocketmq-namesrv", "--set=listenPort=0")
    address = "127.0.0.1:" + namesrv.wait_for(r"listens on 0\.0\.0\.0:(\d+)").group(1)
    line = failure(tmp_path, *command, "-n", address)
    assert f"no broker is registered at name server {address}, so topic T9" in line


def all_in_one_with(start: Start, setting: str) -> str:
    """Start a name server and a broker that is set so; the name server's address."""
    port, address = free_ports(), f"127.0.0.1:{free_ports()}"
    server = start(
        "rocketmq", f"--namesrv-port={address.rpartition(':')[2]}", f"--set=listenPort={port}",
        "--set=bindAddress=127.0.0.1", f"--set={setting}",
    )  # fmt: skip
    server.wait_for("registered at name server")
    return address


def test_no_automatic_creation(start: Start, tmp_path: Path) -> None:
    address = all_in_one_with(start, "autoCreateTopicEnable=false")
    line = failure(tmp_path, "send", "T9", "x", "-n", address)
    assert f"name server {address} knows no topic T9" in line
    assert "autoCreateTopicEnable" in line


def test_no_permission(start: Start, tmp_path: Path) -> None:
    address = all_in_one_with(start, "brokerPermission=4")
    line = failure(tmp_path, "send", "T9", "x", "-n", address)
    assert "no permission" in line
    assert "T9" in line
    assert address in line


def test_a_bad_address_is_named(tmp_path: Path) -> None:
    assert "-n=nowhere: host:port is needed" in failure(tmp_path, "send", "T", "x", "-n", "nowhere")
    assert "no name server is given" in failure(tmp_path, "send", "T", "x", "-n", " ; ")
    for address in ("a:1,b:2", "http://a:1"):
        line = failure(tmp_path, "send", "T", "x", "-n", address)
        assert f"-n={address}: host:port is needed, several with ; between" in line


def test_the_module_is_the_command(tmp_path: Path) -> None:
    asked = run([sys.executable, "-m", "txrocketmq", "--help"], tmp_path)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == run(command_line("--help"), tmp_path).stdout
    assert asked.stdout.startswith("Usage: txrocketmq ")


def test_a_name_that_no_topic_may_have(all_in_one: AllInOne, tmp_path: Path) -> None:
    for command in (("send", "no topic", "x"), ("tail", "no topic")):
        line = failure(tmp_path, *command, "-n", all_in_one.namesrv)
        assert "The specified topic: no topic, contains illegal characters" in line


def test_a_broker_asked_as_a_name_server(all_in_one: AllInOne, tmp_path: Path) -> None:
    address = f"127.0.0.1:{all_in_one.port}"
    for command in (("send", "T10", "x"), ("tail", "T10")):
        line = failure(tmp_path, *command, "-n", address)
        assert f"{address} answers, but is no name server" in line


def test_a_broker_that_goes_and_comes_back_is_told_once(start: Start, tmp_path: Path) -> None:
    namesrv = start("rocketmq-namesrv", "--set=listenPort=0", folder="namesrv")
    address = "127.0.0.1:" + namesrv.wait_for(r"listens on 0\.0\.0\.0:(\d+)").group(1)
    broker = (
        "rocketmq-broker", "-n", address, f"--set=listenPort={free_ports()}",
        "--set=bindAddress=127.0.0.1", "--set=brokerName=broker-a", "--set=storePathRootDir=store",
    )  # fmt: skip
    running = start(*broker, folder="broker")
    namesrv.wait_for("broker-a .* registered")
    assert run(command_line("send", "T11", "first", "-n", address), tmp_path).returncode == 0
    following = Process(command_line("tail", "T11", "--from-start", "-n", address), tmp_path)
    try:
        following.wait_for("first")
        assert running.end() == 0
        following.wait_for("cannot be read for now")
        start(*broker, folder="broker")
        following.wait_for("is read again")
        assert following.end(signal.SIGINT) == 0
    finally:
        following.kill()
    notes = [line for line in following.output.splitlines() if line.startswith("broker broker-a")]
    assert [line.partition(" for now")[0] for line in notes] == [
        "broker broker-a cannot be read",
        "broker broker-a is read again",
    ]


# ---------------------------------------------- S08: IPv6 everywhere


def test_ipv6_all_the_way(start: Start, tmp_path: Path) -> None:
    port, address = free_ports(), f"[::1]:{free_ports()}"
    arguments = (
        "rocketmq", f"--namesrv-port={address.rpartition(':')[2]}", f"--set=listenPort={port}",
        "--set=bindAddress=::1",
    )  # fmt: skip
    server = start(*arguments)
    server.wait_for("registered at name server")
    sent = run(command_line("send", "T6", "first", "-n", address), tmp_path)
    assert sent.returncode == 0
    offset_id = sent.stdout.strip().rpartition("offsetMsgId=")[2]
    assert len(offset_id) == 56
    assert server.end() == 0
    again = start(*arguments)
    again.wait_for("registered at name server")
    seen = run(command_line("tail", "T6", "--from-start", "--count", "1", "-n", address), tmp_path)
    assert seen.stdout.endswith(" first\n")
    assert again.end() == 0


# ---------------------------------------------- explain


def test_captured_bytes_are_explained(tmp_path: Path) -> None:
    frame = RemotingCommand.create_request(105, ext_fields={"topic": "T"}, opaque=3).encode()
    by_hex = run(command_line("explain", frame.hex()), tmp_path)
    assert "code 105 GET_ROUTEINFO_BY_TOPIC" in by_hex.stdout
    (tmp_path / "capture").write_bytes(frame + frame)
    by_file = run(command_line("explain", "capture"), tmp_path)
    assert by_file.stdout.count("GET_ROUTEINFO_BY_TOPIC") == 2
    assert "neither a file nor hex digits" in failure(tmp_path, "explain", "xyz")
