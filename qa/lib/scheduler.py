# SPDX-License-Identifier: LGPL-2.1-or-later
"""Shares out groups of tests among the workers of pytest-xdist, one at a time."""
from typing import Any

from xdist.scheduler import LoadGroupScheduling

#: A worker begins a test when it knows the next one.
LEAST_PENDING = 1


class Scheduler(LoadGroupScheduling):
    """A worker gets its next group as late as it can: xdist's own, two tests before it needs it.

    A test here takes a minute, and a group that is given out early waits for it although another
    worker has nothing to do.
    """

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        if not self.workqueue:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) <= LEAST_PENDING:
            self._assign_work_unit(node)
