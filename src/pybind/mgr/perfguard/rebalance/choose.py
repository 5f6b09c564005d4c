# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which PGs to release next: as many as fit under every cap, least loaded paths first."""
from dataclasses import dataclass
from typing import (AbstractSet, Callable, Dict, Iterable, List, Mapping, Optional, Sequence,
                    Tuple)

from .moves import Move
from .types import Flight

#: Candidates looked at in one turn, so that a turn's cost does not grow with the campaign.
SCAN = 4096


@dataclass(frozen=True)
class Caps:
    """Upper bounds on what may be moving at the same time."""
    pgs: int
    bytes: int
    source: int
    primary: int
    target: int
    host: int


class Load:
    """Running count of what is moving, by role of each OSD and by host."""

    def __init__(self, host_of: Callable[[int], Optional[str]]) -> None:
        self._host_of = host_of
        self.pgs = 0
        self.bytes = 0
        self.source: Dict[int, int] = {}
        self.primary: Dict[int, int] = {}
        self.target: Dict[int, int] = {}
        self.host: Dict[str, int] = {}

    def add(self, sources: Iterable[int], targets: Iterable[int], primary: int,
            size: int) -> None:
        self.pgs += 1
        self.bytes += size
        for osds, counts in ((sources, self.source), (targets, self.target),
                             ((primary,), self.primary)):
            for osd in osds:
                counts[osd] = counts.get(osd, 0) + 1
        for host in self._hosts(sources, targets):
            self.host[host] = self.host.get(host, 0) + 1

    def fits(self, move: Move, caps: Caps) -> bool:
        """Whether one more move stays under all caps; the first PG may have any size."""
        if self.pgs >= caps.pgs or (self.pgs and self.bytes + move.bytes > caps.bytes):
            return False
        return (all(self.source.get(osd, 0) < caps.source for osd in move.sources)
                and all(self.target.get(osd, 0) < caps.target for osd in move.targets)
                and self.primary.get(move.primary, 0) < caps.primary
                and all(self.host.get(host, 0) < caps.host
                        for host in self._hosts(move.sources, move.targets)))

    def of_path(self, move: Move) -> int:
        """How busy the path of a move is: the sum over its OSDs in all their roles."""
        return (sum(self.source.get(osd, 0) for osd in move.sources)
                + sum(self.target.get(osd, 0) for osd in move.targets)
                + self.primary.get(move.primary, 0))

    def _hosts(self, sources: Iterable[int], targets: Iterable[int]) -> AbstractSet[str]:
        hosts = {self._host_of(osd) for group in (sources, targets) for osd in group}
        return {host for host in hosts if host is not None}


def load_of(flights: Mapping[str, Flight], host_of: Callable[[int], Optional[str]]) -> Load:
    load = Load(host_of)
    for flight in flights.values():
        load.add(flight.sources, flight.targets, flight.primary, flight.bytes)
    return load


def window(candidates: Sequence[Move], start: int) -> List[Move]:
    """At most SCAN candidates from `start` on, wrapping around: a long list is seen in slices,
    and no PG starves."""
    count = len(candidates)
    return [candidates[(start + i) % count] for i in range(min(count, SCAN))]


def choose(candidates: Sequence[Move], load: Load, caps: Caps) -> List[Move]:
    """The next batch, least loaded paths first; `load` is updated with it.

    Among equals those go first whose path has the longest queue: otherwise the last PGs would be
    left on a few OSDs, and take their turns one by one. Then those that keep their primary.
    """
    queue: Dict[int, int] = {}
    for move in candidates:
        for osd in (*move.sources, *move.targets):
            queue[osd] = queue.get(osd, 0) + 1

    def order(move: Move) -> Tuple[int, int, bool, str]:
        longest = max((queue[osd] for osd in (*move.sources, *move.targets)), default=0)
        return load.of_path(move), -longest, move.moves_primary, move.pgid

    chosen: List[Move] = []
    for move in sorted(candidates, key=order):
        if load.pgs >= caps.pgs:
            break
        if load.fits(move, caps):
            load.add(move.sources, move.targets, move.primary, move.bytes)
            chosen.append(move)
    return chosen
