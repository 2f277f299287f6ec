"""What does mqadmin print of our servers? Field by field what it prints of official ones that hold the same."""

from __future__ import annotations

import pytest

from interop.harness import mqadmin_report
from interop.harness.columns import by_tier
from interop.harness.jvm import JvmSlots

pytestmark = pytest.mark.java

AT_LEAST = 0.98


@pytest.mark.parametrize("commands", by_tier(["some"], ["all"]))
def test_operators_see_the_same(jvm_slots: JvmSlots, commands: str) -> None:
    """Some: a small set with the quicker tool. All: every command with both tools, and the page gets its table."""
    if commands == "some":
        tool, model = "4.9.7", mqadmin_report.MODEL
        official = mqadmin_report.run_stage(model, tool, jvm_slots, quick=True)
        ours = mqadmin_report.run_stage("ours", tool, jvm_slots, quick=True)
        counts = mqadmin_report.count_commands(official, ours, official)
        found = {mqadmin_report.Column(tool, model): counts}
    else:
        found = mqadmin_report.run_all(jvm_slots)
        mqadmin_report.write_page(found)
    for column, counts in found.items():
        count = mqadmin_report.summed(counts)
        assert count.failures == [], str(column)
        differences = mqadmin_report.describe(count.differences)
        assert count.share >= AT_LEAST, f"{column}: {differences}"
