"""Does a real broker whose consume queues are lost take messages at once, and has it all of them afterwards?"""

from __future__ import annotations

from pathlib import Path

from real_server import RealServer

from txrocketmq.codec.record import blank_record, encode_record
from txrocketmq.model.message import MessageRecord

FILE_BYTES = 1_100_000_000
"""More than is read before the ports open. Nearly all of it is a hole."""

COLD, STORED_MS = 20_000, 1_700_000_000_000


def write_log(directory: Path) -> None:
    """Two files of a log: the first with one message of a hot topic and many of a cold one, the second with one of the hot topic."""

    def record(topic: str, number: int, offset: int) -> bytes:
        sent = MessageRecord(topic=topic, queue_id=0, body=b"%s %d" % (topic.encode(), number))
        return encode_record(sent, number, offset, STORED_MS)

    directory.mkdir(parents=True)
    data = bytearray(record("Hot", 0, 0))
    for number in range(COLD):
        data += record("Cold", number, len(data))
    data += blank_record(FILE_BYTES - len(data))
    for start, content in ((0, data), (FILE_BYTES, record("Hot", 1, FILE_BYTES))):
        with (directory / f"{start:020d}").open("wb") as file:
            file.write(content)
            file.truncate(FILE_BYTES)


def test_a_broker_without_its_queues_serves_and_has_all_messages_in_the_end(tmp_path: Path) -> None:
    write_log(tmp_path / "store" / "commitlog")
    settings = {"mappedFileSizeCommitLog": str(FILE_BYTES)}
    with RealServer("rocketmq", tmp_path, settings=settings) as server:
        server.wait_for("queues are derived from the log again")
        with server.link() as link:
            assert link.send_message("Hot", b"Hot 2").queue_offset == 2
            server.wait_for(r"\d+ queues are whole again")
            assert [m.body for m in link.pull("Hot")] == [b"Hot 0", b"Hot 1", b"Hot 2"]
            sent = link.send_message("Cold", b"Cold %d" % COLD)
            assert sent.queue_offset == COLD
            found: list[bytes] = []
            while messages := link.pull("Cold", offset=len(found)):
                found += [message.body for message in messages]
            assert found == [b"Cold %d" % number for number in range(COLD + 1)]
        server.assert_calm()
