# SPDX-License-Identifier: LGPL-2.1-or-later
"""The OSDs' own counters before and after a run: they prove where its operations went."""
from typing import Any, Dict, Optional, Sequence, Set, Tuple

from ..cluster.ports import Cluster
from .types import Counted

Json = Dict[str, Any]

#: Seconds that the OSDs' counters are waited for.
PATIENCE_SECONDS = 5.0
TOPIC = 'probe counters'
BEFORE, AFTER = 'before', 'after'


class Counts:
    def __init__(self, cluster: Cluster, osds: Sequence[int]) -> None:
        self._cluster = cluster
        self._osds = frozenset(osds)
        self._known: Dict[str, Dict[int, Json]] = {BEFORE: {}, AFTER: {}}
        self._asked_at: Optional[float] = None
        self._asked: Set[int] = set()
        self._taken: Set[str] = set()

    def taken(self, when: str, now: float) -> bool:
        """Whether the OSDs have told, or need not be waited for any more. Once each."""
        if when in self._taken:
            return True
        if self._asked_at is None:
            self._ask(now)
        known = self._known[when]
        known.update({osd: answer for osd, answer in self._cluster.answers(TOPIC).items()
                      if osd in self._asked and isinstance(answer, dict)})
        assert self._asked_at is not None
        if not self._asked <= set(known) and now - self._asked_at <= PATIENCE_SECONDS:
            return False
        self._asked_at = None
        self._taken.add(when)
        return True

    def _ask(self, now: float) -> None:
        self._asked_at = now
        self._cluster.answers(TOPIC)
        # An answer that is owed from before would tell of then.
        self._asked = set(self._osds - self._cluster.asked(TOPIC))
        self._cluster.ask(TOPIC, sorted(self._asked), {'prefix': 'perf dump', 'logger': 'osd'})

    def counted(self) -> Tuple[Counted, ...]:
        """What the OSDs counted of clients in between."""
        before, after = self._known[BEFORE], self._known[AFTER]
        found = []
        for osd in sorted(set(before) & set(after)):
            then, now = before[osd].get('osd', {}), after[osd].get('osd', {})
            reads, writes = (int(now.get(name, 0)) - int(then.get(name, 0))
                             for name in ('op_r', 'op_w'))
            if min(reads, writes) >= 0:  # else it has been started anew
                found.append(Counted(osd, reads, writes))
        return tuple(found)
