"""Our consumers in processes of their own, our servers in another: real sockets, reactors and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from child_consumer import OurConsumer
from child_producer import produce
from launch import AllInOne

COUNT = 120


@pytest.mark.parametrize(
    ("kind", "environment", "settings"),
    [
        ("push", {}, {"consume_message_batch_max_size": 8}),
        ("orderly", {"CLIENT_REACTOR": "asyncio"}, {}),
        ("threads", {}, {"in_thread": True}),
        ("iterate", {"CLIENT_REACTOR": "asyncio"}, {}),
    ],
)
def test_everything_is_consumed_once_and_a_restart_goes_on(
    all_in_one: AllInOne, kind: str, environment: dict[str, str], settings: dict[str, Any]
) -> None:
    seed = topic = group = f"consumed-{kind}"
    told = {"environment": environment, "settings": settings}
    produce(all_in_one.namesrv, topic, seed, COUNT, "async")
    with OurConsumer(all_in_one.namesrv, group, topic, kind, **told) as consumer:
        rows = consumer.wait(COUNT)
    assert sorted(row.seq for row in rows) == list(range(COUNT))
    produce(all_in_one.namesrv, topic, seed, COUNT // 2, "async")
    with OurConsumer(all_in_one.namesrv, group, topic, kind, **told) as consumer:
        again = consumer.wait(COUNT // 2)
    # What an iterator yielded last was not counted, as nobody asked for the next.
    assert len(again) - COUNT // 2 <= (4 if kind == "iterate" else 0)


def test_broadcasting_keeps_its_file(all_in_one: AllInOne, tmp_path: Path) -> None:
    settings = {"message_model": "BROADCASTING", "offset_store_dir": str(tmp_path)}
    produce(all_in_one.namesrv, "Everyone", "e", COUNT, "async")
    with OurConsumer(all_in_one.namesrv, "all", "Everyone", settings=settings) as consumer:
        consumer.wait(COUNT)
    assert list(tmp_path.glob("*@DEFAULT/all/offsets.json"))
    with OurConsumer(all_in_one.namesrv, "all", "Everyone", settings=settings) as consumer:
        produce(all_in_one.namesrv, "Everyone", "e", 10, "async")
        assert len(consumer.wait(10)) == 10
