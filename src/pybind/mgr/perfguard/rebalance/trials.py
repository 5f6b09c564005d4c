# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mapping after a campaign's change, worked out beside the loop until it fits the OSDMap."""
from dataclasses import dataclass
from typing import Optional

from ..cluster.ports import Outlook
from ..cluster.tool_thread import Job, ToolThread
from ..observation import Observation
from .types import Change
from .crush_orders import Joiner
from .joining import same_placement


@dataclass(frozen=True)
class _Trial:
    change: Change
    #: What it starts from.
    seen: Observation
    job: Job[Outlook]


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
            self.forget()
            self._begin(change, seen)
        elif trial.job.done and same_placement(trial.seen, seen):
            # Forgotten first: what it raises must not be raised in each turn to come, and a
            # failure of the tools is not that of the next order.
            self._trial = None
            return trial.job.result()
        elif trial.job.done:
            # The OSDMap has changed meanwhile. Without an outlook PGs would be remapped before they
            # are pinned, so this goes on until it holds still.
            self._begin(change, seen)
        return None

    def forget(self) -> None:
        """Another campaign begins: the same change may be one of another CRUSH map."""
        if self._trial is not None:
            self._trial.job.cancelled = True
        self._trial = None

    def _begin(self, change: Change, seen: Observation) -> None:
        job = self._tools.submit(self._joiner.trial(seen, change), first=True)
        self._trial = None if job is None else _Trial(change, seen, job)
