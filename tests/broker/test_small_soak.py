"""The soak's rules on a broker in memory: two minutes of its time with an orderly restart and a kill."""

from __future__ import annotations

from pops import PopConsumer, make_topic
from small_broker import SmallBroker, properties, send_header
from timers import delivered
from transactions import killed

from bench.soak_ledger import Ledger, Seen, Sent
from txrocketmq.model.codes import RequestCode

WAYS = {
    "plain": (0.0, {}),
    "level": (1.0, {"DELAY": "1"}),
    "timed": (2.5, {"TIMER_DELAY_MS": "2500"}),
}


class SmallSoak:
    """One broker after the other on the same disk, and who sends to it and pops from it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.broker = SmallBroker()
        self._greet()
        make_topic(self.broker)

    def _greet(self) -> None:
        self.consumer = PopConsumer(self.broker)
        self.peer = self.broker.connect(42_100)

    def fall(self, kind: str) -> None:
        """The broker ends and begins again."""
        self.ledger.event(kind, self.broker.clock.seconds())
        self.broker = self.broker.restarted() if kind == "stopped" else killed(self.broker)
        self._greet()

    def send(self, number: int) -> None:
        """A message of each kind."""
        now_s = self.broker.clock.seconds()
        for kind, (after_s, found) in WAYS.items():
            sent = Sent(f"{kind}-{number}", ("G",), now_s, now_s + after_s)
            self.ledger.sent[sent.key] = sent
            text = properties(UNIQ_KEY=sent.key, **found)
            asked = self.peer.tell(
                RequestCode.SEND_MESSAGE_V2, send_header(properties=text), sent.key.encode()
            )
            self.broker.clock.advance(0.01)
            answer = self.peer.answer(asked)
            sent.ended_s = self.broker.clock.seconds()
            sent.is_acknowledged = answer is not None and answer.code == 0

    def pop(self, *, forgets: bool) -> None:
        """Take what there is; who forgets does not acknowledge it."""
        popped = self.consumer.pop()
        for message in popped.messages:
            place = (message.topic, message.queue_id, message.queue_offset)
            key, tries = message.body.decode(), message.reconsume_times
            now_s = self.broker.clock.seconds()
            self.ledger.seen.append(Seen(now_s, "G", key, place, tries, not forgets))
            if not forgets:
                assert self.consumer.ack(popped, message).code == 0


def test_nothing_is_lost_early_or_twice_without_a_reason() -> None:
    soak = SmallSoak()
    for second in range(120):
        if second == 30:
            soak.fall("stopped")
        if second == 60:
            soak.fall("killed")
        if second < 80:
            soak.send(second)
        for _ in range(10):
            soak.broker.clock.advance(0.1)
        soak.pop(forgets=second % 20 == 19)
    verdict = soak.ledger.verdict()
    assert verdict.faults == []
    assert all(row.acknowledged == row.sent == 80 for row in verdict.rows.values())
    assert verdict.rows["timed"].latest_s < 40
    assert len(delivered(soak.broker)) >= 240
    soak.broker.stop()
