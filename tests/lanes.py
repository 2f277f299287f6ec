"""How do the workers of a parallel run divide the test files?

Cells with official Java software mostly wait for processes that are dear to start, everything else computes. So the first worker takes the files
of cells, and the others the rest; who has none left helps with what remains. A file stays in one worker, so that its servers are started once.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

CELLS = "tests/interop/"


class TwoLanes(LoadFileScheduling):
    """Files of cells for the first worker, the rest for the others."""

    def _assign_work_unit(self, node: Any) -> None:
        wants_cells = node.gateway.id == "gw0"
        for file in self.workqueue:
            if file.startswith(CELLS) == wants_cells:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)
