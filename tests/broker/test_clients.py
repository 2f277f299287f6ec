"""Tables of clients: who is in a group, who hears of changes, who is forgotten when."""

from __future__ import annotations

from typing import Any

from fakes import FakeConnection
from twisted.internet.task import Clock

from txrocketmq.broker.clients import ChangeNotices, Consumers, Member, Producers
from txrocketmq.model.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    build_subscription,
)


class Room:
    """Consumers with a clock, and the notices that were given."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.notices: list[tuple[str, list[Any]]] = []
        self.consumers = Consumers(
            self.clock, lambda group, links: self.notices.append((group, links))
        )

    def beat(
        self,
        link: FakeConnection,
        client: str,
        topics: dict[str, int] | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        notify: bool = True,
    ) -> bool:
        now_ms = int(self.clock.seconds() * 1000)
        wanted: list[SubscriptionData] | None = None
        if topics is not None:
            wanted = [
                build_subscription(topic, "*", sub_version=version)
                for topic, version in topics.items()
            ]
        return self.consumers.register(
            "G",
            Member(link, client, 0, 493, now_ms),
            ConsumeType.CONSUME_PASSIVELY,
            model,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            wanted,
            notify,
        )


def test_join_leave_and_subscription_change_are_told_to_all_members() -> None:
    room, a, b = Room(), FakeConnection(1), FakeConnection(2)
    assert room.beat(a, "a", {"T": 1})
    assert room.beat(b, "b", {"T": 1})
    assert room.notices == [("G", [a]), ("G", [a, b])]
    assert not room.beat(a, "a", {"T": 1})
    assert len(room.notices) == 2
    assert room.beat(a, "a", {"T": 1, "U": 1})
    assert room.notices[2:] == [("G", [a, b])]
    room.consumers.unregister("G", b, True)
    assert room.notices[3:] == [("G", [a])]


def test_a_newer_version_of_a_known_topic_replaces_it_quietly() -> None:
    room, a = Room(), FakeConnection()
    room.beat(a, "a", {"T": 5})
    assert not room.beat(a, "a", {"T": 9})
    assert not room.beat(a, "a", {"T": 7})
    group = room.consumers.get("G")
    assert group is not None
    assert group.subscriptions["T"].sub_version == 9


def test_heartbeats_without_subscriptions_keep_the_known_ones() -> None:
    room, a = Room(), FakeConnection()
    room.beat(a, "a", {"T": 5})
    assert not room.beat(a, "a", None)
    group = room.consumers.get("G")
    assert group is not None
    assert list(group.subscriptions) == ["T"]


def test_broadcasting_groups_and_groups_without_notices_hear_nothing() -> None:
    room = Room()
    room.beat(FakeConnection(1), "a", {"T": 1}, MessageModel.BROADCASTING)
    room.beat(FakeConnection(2), "b", {"T": 1}, MessageModel.BROADCASTING)
    assert room.notices == []
    quiet = Room()
    quiet.beat(FakeConnection(1), "a", {"T": 1}, notify=False)
    assert quiet.notices == []


def test_a_lost_link_leaves_at_once_and_an_empty_group_is_gone() -> None:
    room, a, b = Room(), FakeConnection(1), FakeConnection(2)
    room.beat(a, "a", {"T": 1})
    room.beat(b, "b", {"T": 1})
    room.consumers.drop_connection(a)
    assert room.notices[-1] == ("G", [b])
    room.consumers.drop_connection(b)
    assert room.consumers.get("G") is None
    room.consumers.drop_connection(b)


def test_members_without_heartbeat_are_dropped_after_two_minutes_and_their_links_closed() -> None:
    room, a, b = Room(), FakeConnection(1), FakeConnection(2)
    room.beat(a, "a", {"T": 1})
    room.beat(b, "b", {"T": 1})
    room.clock.advance(60)
    room.beat(b, "b", {"T": 1})
    room.clock.advance(60)
    room.consumers.expire()
    assert a.is_open
    room.clock.advance(0.001)
    room.consumers.expire()
    assert not a.is_open
    assert b.is_open
    group = room.consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["b"]
    assert room.notices[-1] == ("G", [b])


def test_a_client_with_two_links_is_listed_once() -> None:
    room = Room()
    room.beat(FakeConnection(1), "a", {"T": 1})
    room.beat(FakeConnection(2), "b", {"T": 1})
    room.beat(FakeConnection(3), "a", {"T": 1})
    group = room.consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["a", "b"]


def test_a_link_that_changes_its_client_id_is_that_client_from_then_on() -> None:
    room, a = Room(), FakeConnection()
    room.beat(a, "a", {"T": 1})
    room.beat(a, "a2", {"T": 1})
    group = room.consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["a2"]


def test_producers_join_leave_and_expire() -> None:
    clock = Clock()
    clock.advance(1_700_000_000)
    producers = Producers(clock)
    a, b = FakeConnection(1), FakeConnection(2)

    def member(link: FakeConnection, client: str) -> Member:
        return Member(link, client, 0, 493, int(clock.seconds() * 1000))

    producers.register("P", member(a, "a"))
    producers.register("Q", member(a, "a"))
    producers.register("P", member(b, "b"))
    assert [m.client_id for m in producers.members("P")] == ["a", "b"]
    producers.drop_connection(a)
    assert producers.groups() == ["P"]
    clock.advance(121)
    producers.expire()
    assert producers.groups() == []
    assert not b.is_open
    producers.unregister("P", b)


def test_notices_can_be_gathered_or_switched_off() -> None:
    told: list[tuple[Any, str]] = []
    settings = {"at_once": False, "enabled": True}
    notices = ChangeNotices(
        lambda link, group: told.append((link, group)),
        lambda: settings["at_once"],
        lambda: settings["enabled"],
    )
    a, closed = FakeConnection(1), FakeConnection(2)
    closed.is_open = False
    notices("G", [a, closed])
    notices("G", [a, closed])
    assert told == []
    notices.flush()
    assert told == [(a, "G")]
    settings["at_once"] = True
    notices("H", [a, closed])
    assert told[1:] == [(a, "H")]
    settings["enabled"] = False
    notices("H", [a])
    notices.flush()
    assert len(told) == 2
