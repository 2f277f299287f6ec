"""S14: bodies around the limit of 4 MiB, and the largest of them sent back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import pytest_twisted
from real_server import RawLink, RealServer, send_header
from twisted.internet import reactor

from txrocketmq.cli.directory import Directory
from txrocketmq.cli.send import Outgoing, send
from txrocketmq.codec.record import encode_batch
from txrocketmq.errors import BrokerError, MQClientError
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.remoting.client import RemotingClient

LIMIT = 4 * 1024 * 1024


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_up_to_the_limit_a_body_is_stored_whole(link: RawLink, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    sent = link.send_message("S14", body)
    (message,) = link.pull("S14", sent.queue_id, sent.queue_offset)
    assert message.body == body


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT])
def test_beyond_it_the_broker_says_how_large_it_was_and_may_be(link: RawLink, size: int) -> None:
    for code, body in ((R.SEND_MESSAGE_V2, bytes(size)), (R.SEND_BATCH_MESSAGE, batch(size))):
        answer = link.ask(code, send_header("S14"), body=body)
        assert answer.code == 13
        assert f"maxMessageSize[{LIMIT}]" in (answer.remark or "") or f"{LIMIT}B" in (
            answer.remark or ""
        )
        assert f"body of {len(body)}B" in (answer.remark or "")
    assert link.send_message("S14", b"the link goes on").queue_offset >= 0


def batch(size: int) -> bytes:
    """A batch of two messages with so many bytes in all."""
    half = size // 2
    return encode_batch([(0, bytes(half), b""), (0, bytes(size - half), b"")])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A broker whose limit is lower."""
    settings = {"maxMessageSize": "1000"}
    with RealServer("rocketmq", tmp_path_factory.mktemp("small"), settings=settings) as server:
        yield server


async def send_with(server: RealServer, size: int, client_limit: int) -> str:
    client = RemotingClient(reactor)
    try:
        directory = Directory(client, [server.namesrv])
        message = Outgoing("S14", bytes(size))
        return await send(reactor, client, directory, message, max_body_bytes=client_limit)
    finally:
        await client.stop()


@pytest_twisted.ensureDeferred
async def test_a_client_with_a_higher_limit_hears_from_the_broker(small: RealServer) -> None:
    assert (await send_with(small, 1000, LIMIT)).startswith("SEND_OK")
    with pytest.raises(BrokerError) as caught:
        await send_with(small, 1001, LIMIT)
    assert caught.value.code == 13
    assert "1000B" in caught.value.remark
    assert "body of 1001B" in caught.value.remark


@pytest_twisted.ensureDeferred
async def test_a_client_with_a_lower_limit_asks_nobody(small: RealServer) -> None:
    with pytest.raises(MQClientError) as caught:
        await send_with(small, 501, 500)
    assert str(caught.value) == (
        "the message for topic S14 has a body of 501 bytes, the limit of this client is 500"
    )


@pytest_twisted.ensureDeferred
async def test_the_clients_own_limit_is_the_official_one(server: RealServer) -> None:
    assert (await send_with(server, LIMIT, LIMIT)).startswith("SEND_OK")
    client = RemotingClient(reactor)
    try:
        directory = Directory(client, [server.namesrv])
        with pytest.raises(MQClientError, match=r"body of 4194305 bytes, the limit .* is 4194304"):
            await send(reactor, client, directory, Outgoing("S14", bytes(LIMIT + 1)))
    finally:
        await client.stop()


def test_the_largest_message_is_sent_back_three_times(link: RawLink) -> None:
    # Its copy for the retry has more properties than it had itself.
    link.send_message("S14Large", b"y" * LIMIT)
    (message,) = link.pull("S14Large")
    for delay_level in (3, 4, 5):
        fields = {
            "offset": str(message.physical_offset),
            "group": "S14Group",
            "delayLevel": str(delay_level),
            "originTopic": "S14Large",
            "maxReconsumeTimes": "16",
        }
        answer = link.ask(R.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        assert answer.code == 0, answer.remark
