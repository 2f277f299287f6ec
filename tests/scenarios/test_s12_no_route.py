"""S12: a send to an absent topic, with automatic creation and in the four situations where it fails: each says which one it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import free_ports
from real_server import RealServer
from scenario import txrocketmq

from txrocketmq.codec.bodies import decode_body
from txrocketmq.codec.headers import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.route import TopicRouteData


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Servers that create no topic by themselves, with one that must not be written."""
    settings = {"autoCreateTopicEnable": "false"}
    home = tmp_path_factory.mktemp("strict")
    with RealServer("rocketmq", home, settings=settings) as server:
        with server.link() as link:
            header = CreateTopicRequestHeader(
                topic="S12_readonly",
                default_topic="TBW102",
                read_queue_nums=4,
                write_queue_nums=4,
                perm=4,
                topic_filter_type="SINGLE_TAG",
                order=False,
            )
            assert link.ask(R.UPDATE_AND_CREATE_TOPIC, header).code == 0
        yield server


def failed(directory: Path, topic: str, namesrv: str) -> str:
    """The one line that a send ends with."""
    result = txrocketmq(directory, "send", topic, "x", "-n", namesrv)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("txrocketmq: ").strip()


def test_with_automatic_creation_the_topic_is_made_with_four_queues(
    server: RealServer, tmp_path: Path
) -> None:
    result = txrocketmq(tmp_path, "send", "S12_new", "x", "-n", server.namesrv)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.match(r"SEND_OK topic=S12_new queue=broker-a/[0-3] offset=0 ", result.stdout)
    with server.link(server.namesrv_port) as link:
        answer = link.ask(R.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="S12_new"))
    (queues,) = decode_body(TopicRouteData, answer.body).queue_datas
    assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (4, 4, 6)


def test_each_of_the_four_causes_has_its_own_words(strict: RealServer, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_ports()}"
    with RealServer("rocketmq-namesrv", tmp_path / "lonely") as lonely:
        no_broker = failed(tmp_path, "S12_absent", lonely.namesrv)
        address_of_lonely = lonely.namesrv
    no_creation = failed(tmp_path, "S12_absent", strict.namesrv)
    no_permission = failed(tmp_path, "S12_readonly", strict.namesrv)
    no_server = failed(tmp_path, "S12_absent", nobody)
    assert no_creation == (
        f"name server {strict.namesrv} knows no topic S12_absent and no broker makes new topics by "
        "itself (autoCreateTopicEnable)"
    )
    assert no_broker == (
        f"no broker is registered at name server {address_of_lonely}, so topic S12_absent cannot be "
        "found"
    )
    assert no_permission == (
        "topic S12_readonly must not be written, there is no permission: broker-a allows R-- "
        f"(name server {strict.namesrv})"
    )
    assert no_server.startswith(
        f"no name server answers, so topic S12_absent cannot be found: {nobody}: "
    )
    assert "refused" in no_server


def test_a_raw_send_to_an_absent_topic_is_refused_by_the_broker(strict: RealServer) -> None:
    from real_server import send_header

    with strict.link() as link:
        answer = link.ask(R.SEND_MESSAGE_V2, send_header("S12_absent"), body=b"x")
    assert answer.code == 17
    assert "topic[S12_absent] not exist" in (answer.remark or "")
