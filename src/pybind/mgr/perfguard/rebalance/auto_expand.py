# SPDX-License-Identifier: LGPL-2.1-or-later
"""auto_expand: detects new hosts, weights or rules without `prepare`, also during a failover.

PGs that are remapped because OSDs are down or out do not count: that is recovery. Their acting sets
lack these OSDs, or still contain them.
"""
from dataclasses import dataclass, replace
from typing import Callable, FrozenSet, Optional, Tuple

from ..cluster.types import Document, OsdMap
from ..codec import encode
from ..observation import Observation
from ..text import pgs
from .campaign import Campaign

#: Where the last clean state is stored.
LAST_CLEAN = 'lastclean'
#: Time after a change of CRUSH in which remapped PGs are attributed to it. The mons prime most
#: of them in the same epoch; on a large cluster the rest has to peer first.
REMAP_SECONDS = 30.0
#: Longer intervals between two turns mean that the mgr hung.
LONGEST_TURN_SECONDS = 60.0


@dataclass(frozen=True)
class LastClean:
    """The last state of the cluster without remapped PGs, or under a campaign."""
    crush_version: int
    #: OSDs that were up and in.
    serving: FrozenSet[int]
    #: The last CRUSH version, and when it was first seen (seconds since the epoch, plus the seconds
    #: since then that were not observed); in a campaign: when it or `serving` changed.
    last_version: int = 0
    changed: float = 0.0
    #: CrushRules.identity of that version; 0: not known, as in earlier documents.
    identity: int = 0
    #: PGs that were remapped already when the last version was first seen.
    remapped: int = 0

    @property
    def stored(self) -> 'StoredClean':
        return StoredClean(self.crush_version, self.serving,
                           # The identity is that of the last version.
                           self.identity if self.last_version == self.crush_version else 0)


@dataclass(frozen=True)
class StoredClean:
    """What survives a failover of LastClean."""
    crush_version: int
    serving: FrozenSet[int]
    identity: int = 0

    @property
    def last_clean(self) -> LastClean:
        return LastClean(self.crush_version, self.serving, self.crush_version,
                         identity=self.identity)


def compared(clean: Optional[LastClean], observation: Observation, campaign: Campaign,
             ratio: float) -> Tuple[LastClean, str]:
    """The clean state to compare the next turn with, and text on a change of CRUSH since `clean`
    that has remapped more than `ratio` (0 to 1) of all PGs; '': there is none.

    `clean`: the state to compare this turn with; None: unknown. `campaign`: one that is active may
    remap PGs, so no change is reported during it.
    """
    version, serving = observation.crush_version, _serving(observation.osdmap)
    identity = _identity(clean, observation)
    if clean is not None and identity == clean.identity:
        clean = _renumbered(clean, version)
    # Under a campaign, each state counts as clean.
    if clean is None or campaign.active:
        unchanged = (clean is not None and version == clean.last_version
                     and serving == clean.serving)
        changed = clean.changed if clean and unchanged else observation.now
        return LastClean(version, serving, version, changed, identity), ''
    if version != clean.last_version:
        clean = replace(clean, last_version=version, changed=observation.now, identity=identity)
    remapped = _remapped(observation.osdmap, serving)
    if remapped <= clean.remapped and observation.now - clean.changed > REMAP_SECONDS:
        clean = replace(clean, crush_version=version)  # the change has remapped no PG
    if not remapped and version == clean.crush_version:
        return LastClean(version, serving, version, clean.changed, identity), ''
    total = sum(pool.pg_num for pool in observation.osdmap.pools.values())
    if version == clean.crush_version:
        # Drains or the balancer may move PGs for days, during which a change of CRUSH has to be
        # noticed.
        return replace(clean, remapped=remapped), ''
    remapped_by_change = remapped - clean.remapped
    if remapped_by_change > ratio * total:
        return clean, 'CRUSH changed and remapped %d of %s' % (remapped_by_change, pgs(total))
    return clean, ''


def _remapped(osdmap: OsdMap, serving: FrozenSet[int]) -> int:
    """The number of PGs that are remapped although no OSD of theirs was lost.

    24 ms for 73,000 PGs, a quarter of what it takes with pool_of.
    """
    sizes = {str(pool.id): pool.size for pool in osdmap.pools.values()}
    return sum(1 for pgid, acting in osdmap.pg_temp.items()
               if serving.issuperset(acting) and sizes.get(pgid.partition('.')[0]) == len(acting))


def _identity(clean: Optional[LastClean], observation: Observation) -> int:
    """CrushRules.identity of the present CRUSH map, from `clean` if that has this version: it takes
    long to compute."""
    if clean is not None and clean.identity and clean.last_version == observation.crush_version:
        return clean.identity
    return observation.crush.identity


def _renumbered(clean: LastClean, version: int) -> LastClean:
    """The clean state after the mons have assigned another version to the same CRUSH map."""
    if clean.crush_version == clean.last_version:
        clean = replace(clean, crush_version=version)
    return replace(clean, last_version=version)


def _serving(osdmap: OsdMap) -> FrozenSet[int]:
    """OSDs that are up and in."""
    return frozenset(osd.id for osd in osdmap.osds.values() if osd.is_up_and_in)


class AutoExpand:
    """Compares each turn with the last one that was clean, and stores that for the next mgr."""

    def __init__(self, put: Callable[[Document], None], may_write: Callable[[], bool]) -> None:
        """`put` writes the document LAST_CLEAN to the store; `may_write`: whether this mgr may
        write to it."""
        self._put = put
        self._may_write = may_write
        #: The last state to compare with; None: unknown.
        self._clean: Optional[LastClean] = None
        #: Time of the last turn of this mgr, in seconds since the epoch; None: no turn yet.
        self._looked_at: Optional[float] = None
        #: OSDs that were up and in at that time, and when that changed, as LastClean.changed.
        self._serving: Optional[FrozenSet[int]] = None
        self._serving_changed = 0.0
        #: The CRUSH version of the stored state; -1: no state is stored.
        self._stored_version = -1

    def load(self, stored: Optional[StoredClean]) -> None:
        """`stored`: the document LAST_CLEAN; None: the time before this mgr is unknown."""
        self._clean = None if stored is None else stored.last_clean
        self._stored_version = self._clean.crush_version if self._clean else -1

    @property
    def osds_or_crush_changed(self) -> float:
        """When CRUSH or the set of OSDs that are up and in last changed (as LastClean.changed); 0:
        not known."""
        return max(self._clean.changed if self._clean else 0.0, self._serving_changed)

    def forget(self) -> None:
        """Forget the clean state, so that no campaign begins for PGs that are remapped now."""
        self._clean = None

    def look(self, observation: Observation, campaign: Campaign, ratio: float,
             is_enabled: bool) -> str:
        """Text on a change of CRUSH that no campaign has announced, and that has remapped more
        than `ratio` (0 to 1) of all PGs; '': there is none. To be called in each turn, also without
        the option auto_expand: `osds_or_crush_changed` depends on it. `is_enabled`: the option;
        only with it, the last clean state is stored."""
        clean, serving = self._clean, _serving(observation.osdmap)
        # Unobserved seconds do not count for the age of a change.
        unobserved_seconds = self._unobserved_seconds(observation.now)
        if clean is not None:
            clean = replace(clean, changed=clean.changed + unobserved_seconds)
        last_serving = self._serving
        if last_serving is None and clean is not None:
            last_serving = clean.serving  # from before this mgr
        self._serving_changed = observation.now if last_serving not in (None, serving) \
            else self._serving_changed + unobserved_seconds
        self._looked_at, self._serving = observation.now, serving
        self._clean, why = compared(clean, observation, campaign, ratio)
        if is_enabled and self._clean.crush_version != self._stored_version and self._may_write():
            self._put(encode(self._clean.stored))
            self._stored_version = self._clean.crush_version
        return why

    def _unobserved_seconds(self, now: float) -> float:
        """The seconds since the last turn if there are more than LONGEST_TURN_SECONDS, as this mgr
        observed nothing meanwhile; otherwise 0."""
        elapsed_seconds = now - self._looked_at if self._looked_at is not None else 0.0
        return elapsed_seconds if elapsed_seconds > LONGEST_TURN_SECONDS else 0.0
