"""Is the API reference built from the docstrings without a warning?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

#: Half a minute on a machine that does nothing else.
BOUND_S = 1200


@pytest.mark.timeout(BOUND_S + 60)
def test_every_link_and_field_of_the_reference_is_good(tmp_path: Path) -> None:
    """With the settings of pyproject.toml, where a warning is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "pydoctor", f"--html-output={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    pages = {path.stem for path in tmp_path.glob("*.html")}
    for name in (
        "client.Producer",
        "client.PushConsumer",
        "client.LitePullConsumer",
        "testing.RocketMQ",
        "client.BrokerError",
    ):
        assert f"txrocketmq.{name}" in pages
