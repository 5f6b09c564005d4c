# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mapping after a campaign's change, worked out beside the loop until it fits the OSDMap."""
from dataclasses import dataclass
from typing import Optional

from ..cluster.ports import NoFuture, Outlook
from ..cluster.tool_thread import Job, ToolThread
from ..observation import Observation
from .change import Change
from .crush_orders import Joiner
from .joining import same_placement

#: How often it is worked out until the OSDMap holds still meanwhile.
TRIES = 3


@dataclass(frozen=True)
class _Trial:
    change: Change
    #: What it starts from.
    seen: Observation
    job: Job[Outlook]
    number: int


class Trials:
    def __init__(self, tools: ToolThread, joiner: Joiner) -> None:
        self._tools = tools
        self._joiner = joiner
        self._trial: Optional[_Trial] = None

    def outlook(self, change: Change, seen: Observation) -> Optional[Outlook]:
        """None: it is being worked out. A result is never used in the turn that asked for it,
        since the OSDMap may have changed meanwhile."""
        trial = self._trial
        if trial is None or trial.change != change:
            self._begin(change, seen, 1)
        elif trial.job.done and same_placement(trial.seen, seen):
            return trial.job.result()
        elif trial.job.done and trial.number >= TRIES:
            self._trial = None
            return NoFuture('the OSDMap does not hold still')
        elif trial.job.done:
            self._begin(change, seen, trial.number + 1)
        return None

    def _begin(self, change: Change, seen: Observation, number: int) -> None:
        job = self._tools.submit(self._joiner.trial(seen, change), first=True)
        self._trial = None if job is None else _Trial(change, seen, job, number)
