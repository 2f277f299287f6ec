"""A new slave of a master whose log is longer than one file: the latest messages of a compacted topic that are older than the slave's log.

The requests are made here, byte by byte. A master and a slave of two makes; official both is the control.
"""

from __future__ import annotations

import pytest

from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots
from interop.harness.replicas import ReplicaGroup, log_files
from interop.harness.waiting import wait_until
from tests.interop.test_java_compaction import SETTINGS, TOPIC, held
from tests.interop.test_java_kinds_of_queues import Link, text

pytestmark = pytest.mark.java

OURS, J5 = "ours", "official-5.4.0"
FILE_BYTES = 1024 * 1024
SIZE = 40_000
FIRST_KEYS = 20
#: Two and a half files of the commit log.
COUNT = 65


@pytest.mark.parametrize(
    ("master", "slave"),
    by_tier([(J5, OURS)], [(OURS, J5), (J5, J5), (OURS, OURS)]),
)
def test_a_new_slave_has_what_is_older_than_its_log(
    master: str, slave: str, jvm_slots: JvmSlots
) -> None:
    settings = {
        **SETTINGS,
        "compactionMappedFileSize": str(4 * FILE_BYTES),
        "mappedFileSizeCommitLog": str(FILE_BYTES),
    }
    group = ReplicaGroup(jvm_slots, master, slave, settings)
    try:
        group.start_name_server()
        group.master.start_broker()
        with Link(group.master.broker_address) as link:
            link.create_topic(TOPIC, "+cleanup.policy=COMPACTION")
            for number in range(COUNT):
                key = f"early-{number}" if number < FIRST_KEYS else f"k{number % 3}"
                properties = text(KEYS=key, UNIQ_KEY=f"id-{number}", WAIT="true")
                assert link.send(TOPIC, b"%d" % number * (SIZE // 2), properties) == number
            wait_until(lambda: held(link)[-1].queue_offset == COUNT - 1, "the master has copies")
            wanted = {(m.queue_offset, m.keys) for m in held(link) if m.queue_offset < FIRST_KEYS}
        assert len(wanted) == FIRST_KEYS
        group.slave.start_broker()

        def has_all() -> bool:
            with Link(group.slave.broker_address) as link:
                found = {(m.queue_offset, m.keys) for m in held(link)}
            return wanted <= found and max(found)[0] == COUNT - 1

        wait_until(has_all, "the slave has all", 150.0)
        assert int(min(log_files(group.slave.store))) >= FILE_BYTES
        with Link(group.slave.broker_address) as link:
            messages = held(link)
        offsets = [m.queue_offset for m in messages]
        assert offsets == sorted(set(offsets))
        assert all(m.body == b"%d" % m.queue_offset * (SIZE // 2) for m in messages)
    except BaseException as failure:
        failure.add_note(group.logs())
        raise
    finally:
        group.close()
