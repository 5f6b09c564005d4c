# SPDX-License-Identifier: LGPL-2.1-or-later
"""Distributes groups of tests to the workers of pytest-xdist, one at a time."""
from typing import Any

from xdist.scheduler import LoadGroupScheduling

#: A worker begins a test only when it knows the next one.
LEAST_PENDING = 1


class Scheduler(LoadGroupScheduling):
    """Assigns the next group as late as possible; xdist does so two tests earlier.

    A test takes a minute, so a group that is assigned early waits although another worker is idle.
    """

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        if not self.workqueue:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) <= LEAST_PENDING:
            self._assign_work_unit(node)
