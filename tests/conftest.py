"""Settings that all tests share: hypothesis profiles, no history of the log, and as many descriptors as the process may have."""

import os
import resource
from typing import Any

from hypothesis import HealthCheck, settings
from lanes import TwoLanes
from twisted.logger import globalLogBeginner

settings.register_profile(
    "default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "full", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Until somebody begins to log, Twisted keeps the last 65,536 events, and with each the store or broker that it came from.
globalLogBeginner.beginLoggingTo([], discardBuffer=True, redirectStandardIO=False)

# Stores on real disks and in mappings keep descriptors until they are collected; a whole run has more than 1,024.
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))


def pytest_xdist_make_scheduler(config: Any, log: Any) -> TwoLanes:
    """A parallel run divides the files by `lanes`."""
    return TwoLanes(config, log)
