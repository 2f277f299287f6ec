"""S20: a broadcasting consumer whose offset file is cut, cannot be written, or names an offset that is gone; a broker that is away for a minute."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consumer_world import ConsumerWorld, Diary, queue
from log_watch import is_warning, logged
from small_world import start_broker, stop_broker

from txrocketmq.client.consumer.offsets import decode_offsets, encode_offsets
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.store.disk import RealDisk

NAME_SERVER = "192.0.2.1:9876"


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    with logged(is_warning) as found:
        yield found


def consumer(world: ConsumerWorld, diary: Diary, start: bool = True) -> Any:
    return world.consumer(
        diary,
        start=start,
        message_model=MessageModel.BROADCASTING,
        client={"client_ip": "192.0.2.200"},
        offset_store_dir=str(world.directory),  # type: ignore[attr-defined]
    )


@pytest.fixture
def world(tmp_path: Path) -> ConsumerWorld:
    made = ConsumerWorld(queues=1)
    made.disk = RealDisk()  # type: ignore[assignment]
    made.directory = tmp_path  # type: ignore[attr-defined]
    return made


def offset_file(world: ConsumerWorld) -> Path:
    directory: Path = world.directory  # type: ignore[attr-defined]
    return directory / "192.0.2.200@DEFAULT" / "CG" / "offsets.json"


def consumed_once(world: ConsumerWorld, count: int = 6) -> None:
    """Some messages are consumed, and offsets saved, twice."""
    diary = Diary()
    first = consumer(world, diary)
    for number in range(count):
        world.put(b"%d" % number)
        if number == count // 2:
            world.network.skip(12)
    world.until(lambda: len(diary.seen) == count)
    world.wait(first.stop())
    assert decode_offsets(offset_file(world).read_bytes()) == {queue(0): count}


def test_a_file_cut_at_half_leaves_the_backup(world: ConsumerWorld, warnings: list[str]) -> None:
    consumed_once(world)
    whole = offset_file(world).read_bytes()
    offset_file(world).write_bytes(whole[: len(whole) // 2])
    before = decode_offsets(Path(f"{offset_file(world)}.bak").read_bytes())[queue(0)]
    del warnings[:]
    world.put(b"new")
    diary = Diary()
    again = consumer(world, diary)
    world.until(lambda: b"new" in diary.bodies)
    assert 0 < before < 6
    assert diary.bodies == [b"%d" % n for n in range(before, 6)] + [b"new"]
    assert len([line for line in warnings if "offsets" in line]) == 1
    world.wait(again.stop())
    assert decode_offsets(offset_file(world).read_bytes()) == {queue(0): 7}


def test_nothing_that_can_be_read_means_to_begin_anew(
    world: ConsumerWorld, warnings: list[str]
) -> None:
    consumed_once(world)
    offset_file(world).write_bytes(b"")
    Path(f"{offset_file(world)}.bak").write_bytes(b'{"offsetTable":{{')
    del warnings[:]
    diary = Diary()
    consumer(world, diary)
    world.until(lambda: len(diary.seen) == 6)  # first offset, as configured
    assert len([line for line in warnings if "offsets" in line]) == 1


def test_a_directory_that_cannot_be_written_costs_one_warning(
    world: ConsumerWorld, warnings: list[str]
) -> None:
    consumed_once(world)

    class ReadOnly(RealDisk):
        def replace_file(self, path: str, data: bytes, keep_backup: bool) -> None:
            raise OSError(errno.EROFS, "Read-only file system", path)

    world.disk = ReadOnly()  # type: ignore[assignment]
    del warnings[:]
    diary = Diary()
    used = consumer(world, diary)
    for number in range(5):
        world.put(b"new-%d" % number)
        world.network.skip(12)
    assert len(diary.seen) == 5
    assert used.offsets.noted(queue(0)) == 11
    assert len([line for line in warnings if "cannot be written" in line]) == 1
    world.wait(used.stop())


@pytest.mark.parametrize("wrong", [1, 9_999])
def test_an_offset_that_is_gone_is_corrected_without_a_loop(
    tmp_path: Path, warnings: list[str], wrong: int
) -> None:
    world = ConsumerWorld(queues=1, mapped_file_size_commit_log=64 * 1024, file_reserved_time=1)
    world.disk = RealDisk()  # type: ignore[assignment]
    world.directory = tmp_path  # type: ignore[attr-defined]
    for number in range(40):
        world.put(b"%08000d" % number)
    world.clock.advance(4 * 3600)
    broker = world.brokers[2]
    assert world.ask(2, RequestCode.DELETE_EXPIRED_COMMITLOG, None).code == 0
    world.until(lambda: broker.store.min_offset("TopicTest", 0) > 1)
    world.network.run(2)
    first = broker.store.min_offset("TopicTest", 0)
    assert first > 1
    offset_file(world).parent.mkdir(parents=True)
    offset_file(world).write_bytes(encode_offsets({queue(0): wrong}))
    world.network.run(1)
    pulls: list[Any] = []
    diary = Diary()
    used = consumer(world, diary, start=False)
    pull = used.instance.api.pull_message

    def counted(*arguments: Any, **more: Any) -> Any:
        pulls.append(arguments)
        return pull(*arguments, **more)

    used.instance.api.pull_message = counted
    del warnings[:]
    world.wait(used.start())
    world.network.run(3)
    world.put(b"new")
    world.until(lambda: b"new" in diary.bodies)
    offsets = [message.queue_offset for message in diary.seen]
    assert offsets == (list(range(first, 41)) if wrong == 1 else [40])
    world.network.skip(20)
    assert len(pulls) < 20
    assert len([line for line in warnings if "going on at" in line]) == 1
    world.wait(used.stop())
    assert decode_offsets(offset_file(world).read_bytes()) == {queue(0): 41}


def test_what_is_sent_while_a_broker_is_away_is_delivered_after_it(world: ConsumerWorld) -> None:
    consumed_once(world)
    diary = Diary()
    consumer(world, diary)
    world.network.run(1)
    old = world.brokers[2]
    stop_broker(world.network, old)
    world.network.skip(60)
    world.brokers[2] = start_broker(world.network, 2, old.disk, namesrv_addr=NAME_SERVER)
    # Before the consumer has found it again.
    for number in range(5):
        world.put(b"gap-%d" % number)
    world.until(lambda: len(diary.seen) == 5, 60)
    assert diary.bodies == [b"gap-%d" % number for number in range(5)]
