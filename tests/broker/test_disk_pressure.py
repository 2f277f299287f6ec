"""What producers, consumers and operators hear of a disk that is nearly full or falls behind."""

from __future__ import annotations

import pytest
from operators import told
from small_broker import Peer, SmallBroker, send_header

from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode as C
from txrocketmq.testing.pools import ManualPool

OFFICIAL = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk "
    "is full, messages are put to the slave, message store has been shut down, etc."
)


@pytest.fixture
def broker() -> SmallBroker:
    return SmallBroker()


@pytest.fixture
def peer(broker: SmallBroker) -> Peer:
    return broker.connect()


def figures(peer: Peer) -> dict[str, str]:
    table: dict[str, str] = told(peer, R.GET_BROKER_RUNTIME_INFO)["table"]
    return table


# ----------------------------------------------------------------- ST-18


def test_a_full_disk_is_told_with_ratio_and_path_and_ends_by_itself(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [900]
    monkeypatch.setattr(broker.disk, "usage", lambda path: (used[0] << 30, 1000 << 30))
    broker.core.upkeep.start()
    peer.send("T")
    used[0] = 901
    broker.clock.advance(2)
    answer = peer.ask(R.SEND_MESSAGE_V2, send_header("T"), b"x")
    assert answer.code == C.SERVICE_NOT_AVAILABLE
    reason = (
        "the disk of /store/commitlog is 91% used, messages are taken up to 90% "
        "(diskSpaceWarningLevelRatio)"
    )
    assert answer.remark == f"{OFFICIAL} Reason: {reason}"
    assert figures(peer)["messagesRefused"] == reason
    assert figures(peer)["commitLogDiskRatio"] == "0.91"
    assert peer.pull("T").bodies == [b"hello"]
    used[0] = 899
    broker.clock.advance(2)
    peer.send("T")
    assert "messagesRefused" not in figures(peer)
    broker.core.upkeep.stop()
    broker.stop()


# ----------------------------------------------------------------- ST-04


def test_how_long_the_device_is_behind_is_shown(
    broker: SmallBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert figures(peer)["pageCacheLockTimeMills"] == "0"
    pool = ManualPool()
    queue = broker.store.commit_log.queue
    monkeypatch.setattr(queue, "_pool", pool)
    body = bytes(100_000)
    while (answer := peer.ask(R.SEND_MESSAGE_V2, send_header("T"), body)).code == 0:
        pass
    assert answer.code == C.SYSTEM_BUSY
    assert answer.remark == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    broker.clock.advance(0.7)
    assert figures(peer)["pageCacheLockTimeMills"] == "700"
    assert figures(peer)["sendsAnsweredBusy_PC_SYNCHRONIZED"] == "1"
    pool.run()
    assert figures(peer)["pageCacheLockTimeMills"] == "0"
    assert peer.ask(R.SEND_MESSAGE_V2, send_header("T"), body).code == 0
    pool.run()


def test_what_waits_for_the_device_and_for_its_queues_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SmallBroker(flush_disk_type="SYNC_FLUSH")
    peer = broker.connect()
    pool = ManualPool()
    monkeypatch.setattr(broker.store.flusher, "_pool", pool)
    begin = broker.store.max_physical_offset()
    opaques = [peer.tell(R.SEND_MESSAGE_V2, send_header("T"), bytes(300)) for _ in range(2)]
    broker.clock.advance(0)
    behind = broker.store.max_physical_offset() - begin
    assert 2 * 300 < behind < 1024
    shown = figures(peer)
    assert shown["dispatchBehindBytes"] == str(behind)
    assert shown["remainHowManyDataToFlush"] == f"{behind} B"
    assert [peer.answer(opaque) for opaque in opaques] == [None, None]
    assert peer.pull("T").bodies == []
    while pool.pending:
        pool.run()
        broker.clock.advance(0)
    shown = figures(peer)
    assert shown["dispatchBehindBytes"] == "0"
    assert shown["remainHowManyDataToFlush"] == "0 B"
    answers = [peer.answer(opaque) for opaque in opaques]
    assert [answer is not None and answer.code for answer in answers] == [0, 0]
    assert len(peer.pull("T").bodies) == 2
