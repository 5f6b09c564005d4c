# SPDX-License-Identifier: LGPL-2.1-or-later
"""What moves now, against the operator's caps: with each PG that is added."""

from typing import Dict, List, NamedTuple, Sequence, Tuple

from .crush import Tree

Place = Tuple[str, int]


class Wrong(AssertionError):
    """A rule that holds at every instant was broken."""


class Caps(NamedTuple):
    """What may move at a time; 0: any number."""
    source: int = 0
    target: int = 0
    primary: int = 0
    host: int = 0
    domain: int = 0
    pgs: int = 0
    bytes: float = 0.0


class InFlight:
    """PGs on their way because a command has changed their upmaps.

    Those that a change of CRUSH has remapped, or an OSD that is out, are no release.
    """

    def __init__(self, tree: Tree) -> None:
        self.caps = Caps()
        self.most_pgs, self.bytes = 0, 0.0
        self._tree = tree
        self._pgs: Dict[int, Tuple[List[Place], float]] = {}
        self._used: Dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self._pgs)

    def __contains__(self, pg: int) -> bool:
        return pg in self._pgs

    def add(self, pg: int, data: Sequence[int], up: Sequence[int], size: float) -> None:
        """A PG whose data is on `data`, and goes to `up`; `size`: bytes in all."""
        places = self._places(data, up)
        self._pgs[pg] = places, size
        self.bytes += size
        self.most_pgs = max(self.most_pgs, len(self))
        for place in places:
            used = self._used[place] = self._used.get(place, 0) + 1
            cap = getattr(self.caps, place[0])
            if cap and used > cap:
                raise Wrong('%d PGs move at %s %d (limit %d)' % (used, *place, cap))
        if self.caps.pgs and len(self) > self.caps.pgs:
            raise Wrong('%d PGs move (limit %d)' % (len(self), self.caps.pgs))
        # One PG may always move, and sizes are rounded.
        if self.caps.bytes and len(self) > 1 and self.bytes > self.caps.bytes + 1.0:
            raise Wrong('%.0f bytes move (limit %.0f)' % (self.bytes, self.caps.bytes))

    def drop(self, pg: int) -> None:
        places, size = self._pgs.pop(pg, ([], 0.0))
        self.bytes -= size
        for place in places:
            self._used[place] -= 1

    def _places(self, data: Sequence[int], up: Sequence[int]) -> List[Place]:
        leaving, entering = set(data) - set(up), set(up) - set(data)
        moving = leaving | entering
        return [*(('source', osd) for osd in leaving), *(('target', osd) for osd in entering),
                ('primary', up[0] if up[0] in data else data[0]),
                *(('host', host) for host in {*map(self._tree.host, moving)}),
                *(('domain', each) for each in {*map(self._tree.domain_of, moving)})]
