# SPDX-License-Identifier: LGPL-2.1-or-later
"""Judging all OSDs in rounds. A round begins with a reading of all OSDs, and its conclusions are
published at its end, all at once.

To judge 10,000 OSDs takes a second of CPU time, so that a campaign, and all other modules of
ceph-mgr, would wait. A round is therefore spread over several turns of the loop: it is a generator
that yields after each chunk of the OSDs. During a campaign, there are several turns from one
reading to the next, which share the work. A round of up to 2,000 OSDs ends before the next reading;
one of more OSDs lasts for several readings. These are not judged one by one; the next round sees
their operations as one interval.
"""
import math
from functools import wraps
from itertools import islice
from typing import Callable, Generator, Iterable, Iterator, List, Optional, Tuple, TypeVar

Argument = TypeVar('Argument')
Item = TypeVar('Item')
Result = TypeVar('Result')

#: OSDs of one chunk, and the least that a turn judges.
CHUNK_OSDS = 250
#: OSDs for which a round ends before the next reading.
READING_OSDS = 2000
#: Passes over all OSDs of a round, with what follows it: the sum of what it yields, by OSD.
PASSES_PER_ROUND = 42
#: A round is finished after this time in any case: turns may be far apart.
ROUND_SECONDS = 60.0

#: Work that yields after each chunk: for how many OSDs it has made a pass. A pass takes about 4 us
#: for one OSD.
Work = Generator[int, None, Result]


def chunks(items: Iterable[Item]) -> Iterator[List[Item]]:
    """The items, CHUNK_OSDS at a time."""
    remaining = iter(list(items))
    return iter(lambda: list(islice(remaining, CHUNK_OSDS)), [])


def latest(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """Decorator for a function of one argument: keeps its last result, and returns it as long as it
    is called with the same object (by identity), which must not change."""
    last: List[Tuple[Argument, Result]] = []

    @wraps(function)
    def cached(argument: Argument) -> Result:
        for last_argument, result in last:
            if last_argument is argument:
                return result
        result = function(argument)
        last[:] = [(argument, result)]
        return result

    return cached


class Rounds:
    """Carries out one round after the other, a share of it in each turn."""

    def __init__(self) -> None:
        self._work: Optional[Work[None]] = None
        self._begun = 0.0
        #: The OSDs of the round, the readings until the next one may begin, and its passes in each
        #: turn.
        self._osds = self._readings = 0
        self._share = math.inf
        #: Number of rounds that have ended without a failure.
        self.ended = 0
        #: Why the last round failed; None: it did not, or one has ended since then. It must not
        #: stop what else a turn does: the cause may be an invalid report of one OSD.
        self.failure: Optional[Exception] = None

    @property
    def idle(self) -> bool:
        """Whether the next round may begin."""
        return self._work is None

    def begin(self, now: float, work: Work[None], osds: int, turns_per_reading: int = 1) -> None:
        """Begin a round, which advance() carries out. `osds`: the number of OSDs that `work`
        judges; `turns_per_reading`: the number of turns of the loop from one reading to the next,
        as far as is known. Both decide over how many turns the round is spread."""
        self._work, self._begun = work, now
        self._osds, self._readings = osds, _readings_of(osds)
        self._spread(turns_per_reading)

    def _spread(self, turns_per_reading: int) -> None:
        """Spread the work evenly over all turns of a round."""
        turns = _readings_of(self._osds) * turns_per_reading
        osds_per_turn = max(CHUNK_OSDS, self._osds / turns) if turns else 0
        self._share = PASSES_PER_ROUND * osds_per_turn if osds_per_turn < self._osds else math.inf

    def note_reading(self, turns_per_reading: int) -> None:
        """Note a reading, before the turn continues the round or begins the next one. A round that
        has had all its readings ends: there were fewer turns than expected."""
        if self.idle:
            return
        self._readings -= 1
        if self._readings <= 0:
            self.finish()
        else:
            self._spread(turns_per_reading)

    def advance(self, now: float) -> None:
        """Do the share of one turn, or all that is left once the round has taken ROUND_SECONDS.
        What the work raises ends the round, and becomes its `failure`."""
        work, self._work = self._work, None
        share = self._share if now - self._begun < ROUND_SECONDS else math.inf
        try:
            for passes in work or ():
                share -= passes
                if share <= 0.0:
                    self._work = work
                    return
        except Exception as error:
            self.failure = error
            return
        self.ended += 1
        self.failure = None

    def finish(self) -> None:
        """End the round that has begun, if there is one."""
        if not self.idle:
            self.advance(math.inf)


def _readings_of(osds: int) -> int:
    """The readings that a round of so many OSDs lasts for."""
    return -(-osds // READING_OSDS)
