# SPDX-License-Identifier: LGPL-2.1-or-later
"""Holds probes against their baselines in threads of its own: with many OSDs that takes seconds,
and the loop that guards the cluster does not wait for it."""
import logging
import queue
import threading
from typing import List, NamedTuple, Optional

from .baseline import Regression, regression
from .records import RunRecord

log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    baseline: int
    run: int
    #: None: the run is not slower.
    regression: Optional[Regression]


class Judge:
    def __init__(self) -> None:
        self._verdicts: 'queue.Queue[Verdict]' = queue.Queue()

    def ask(self, baseline: RunRecord, record: RunRecord) -> None:
        """The verdict comes with `verdicts`, later; with a mgr that fails meanwhile it is lost."""
        threading.Thread(target=self._judge, args=(baseline, record), name='perfguard-judge',
                         daemon=True).start()

    def _judge(self, baseline: RunRecord, record: RunRecord) -> None:
        try:
            self._verdicts.put(Verdict(baseline.id, record.id, regression(baseline, record)))
        except Exception:
            log.exception('cannot compare probe %d with probe %d', record.id, baseline.id)

    def verdicts(self) -> List[Verdict]:
        """Those that have come in since the last call."""
        found: List[Verdict] = []
        while not self._verdicts.empty():
            found.append(self._verdicts.get())
        return found
