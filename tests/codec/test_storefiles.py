"""Are the quick forms of store file pieces the layouts that are declared?"""

from __future__ import annotations

from struct import Struct

import construct
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec import layouts, storefiles

PAIRS = [
    (layouts.CONSUME_QUEUE_UNIT, storefiles.CQ_UNIT),
    (layouts.BATCH_CONSUME_QUEUE_UNIT, storefiles.BATCH_UNIT),
    (layouts.INDEX_HEADER, storefiles.INDEX_HEADER),
    (layouts.INDEX_SLOT, storefiles.INDEX_SLOT),
    (layouts.INDEX_ENTRY, storefiles.INDEX_ENTRY),
    (layouts.STORE_CHECKPOINT, storefiles.CHECKPOINT),
    (layouts.TIMER_LOG_UNIT, storefiles.TIMER_UNIT),
    (layouts.TIMER_LOG_END, storefiles.TIMER_END),
    (layouts.TIMER_SLOT, storefiles.TIMER_SLOT),
    (layouts.TIMER_CHECKPOINT, storefiles.TIMER_CHECKPOINT),
    (layouts.TIMER_CHECKPOINT_OURS, storefiles.TIMER_CHECKPOINT_OURS),
]


@given(pair=st.sampled_from(PAIRS), data=st.data())
def test_quick_forms_equal_their_declarations(
    pair: tuple[construct.Construct, Struct], data: st.DataObject
) -> None:
    declared, quick = pair
    assert declared.sizeof() == quick.size
    raw = data.draw(st.binary(min_size=quick.size, max_size=quick.size))
    parsed = declared.parse(raw)
    names = [member.name for member in declared.subcons]
    assert quick.unpack(raw) == tuple(parsed[name] for name in names)
    assert quick.pack(*quick.unpack(raw)) == declared.build(parsed) == raw


def test_the_size_of_a_record_is_found_in_units_of_both_kinds() -> None:
    position = storefiles.SIZE_FIELD_POSITION
    for unit in (
        storefiles.CQ_UNIT.pack(1, 77, 2),
        storefiles.BATCH_UNIT.pack(1, 77, 2, 3, 4, 5, 6, 7),
    ):
        assert storefiles.SIZE_FIELD.unpack_from(unit, position) == (77,)
