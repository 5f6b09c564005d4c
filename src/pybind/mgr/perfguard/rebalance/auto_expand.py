# SPDX-License-Identifier: LGPL-2.1-or-later
"""auto_expand: notices new hosts, weights or rules without `prepare`, also during a failover.

PGs that are remapped because OSDs went down or out are another matter: that is recovery.
"""
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, Optional, Tuple

from ..cluster.types import OsdMap
from ..observation import Observation
from ..store import Store
from .types import Campaign

#: Where the last clean state is stored.
LAST_CLEAN = 'lastclean'
#: Seconds after a change of CRUSH in which PGs that become remapped are put down to it. The mons
#: prime most of them in the same epoch; on a large cluster the rest has to peer first.
REMAP_SECONDS = 30.0
#: A longer time between two turns is a clock that was set ahead, or a mgr that hung.
LONGEST_TURN_SECONDS = 60.0


@dataclass(frozen=True)
class LastClean:
    """The cluster as it last was with nothing remapped, or in a campaign's hands."""
    crush_version: int
    #: OSDs that were up and in.
    serving: FrozenSet[int]
    #: The CRUSH version seen last, and when it came; in a campaign: when it or `serving` did.
    last_version: int = 0
    changed: float = 0.0
    #: CrushRules.identity of that version; 0: not known, as in earlier documents.
    identity: int = 0

    def as_json(self) -> Dict[str, object]:
        return {'crush_version': self.crush_version, 'serving': sorted(self.serving),
                # It is that of the version seen last.
                'identity': self.identity if self.last_version == self.crush_version else 0}


def last_clean_from_json(raw: object) -> Optional[LastClean]:
    """None: nothing is known of the time before this mgr."""
    if not isinstance(raw, dict):
        return None
    version, serving = raw.get('crush_version'), raw.get('serving')
    if not isinstance(version, int) or not isinstance(serving, list):
        return None
    return LastClean(version, frozenset(serving), version, identity=raw.get('identity', 0))


def look(clean: Optional[LastClean], seen: Observation, campaign: Optional[Campaign],
         ratio: float) -> Tuple[LastClean, str]:
    """What to compare with next, and what remapped more than `ratio` of the PGs; '': nothing."""
    version, serving = seen.crush_version, _serving(seen.osdmap)
    identity = _identity(clean, seen)
    if clean is not None and identity == clean.identity:
        clean = _renumbered(clean, version)
    if clean is None or (campaign is not None and campaign.active):
        still = (clean is not None and version == clean.last_version
                 and serving == clean.serving)
        return LastClean(version, serving, version,
                         clean.changed if clean and still else seen.now, identity), ''
    if version != clean.last_version:
        clean = LastClean(clean.crush_version, clean.serving, version, seen.now, identity)
    remapped = len(seen.osdmap.pg_temp)
    if not remapped and (version == clean.crush_version
                         or seen.now - clean.changed > REMAP_SECONDS):
        return LastClean(version, serving, version, clean.changed, identity), ''
    total = sum(pool.pg_num for pool in seen.osdmap.pools.values())
    if (version != clean.crush_version and clean.serving <= serving
            and remapped > ratio * total):
        return clean, 'CRUSH changed and remapped %d of %d PGs' % (remapped, total)
    return clean, ''


def _identity(clean: Optional[LastClean], seen: Observation) -> int:
    if clean is not None and clean.identity and clean.last_version == seen.crush_version:
        return clean.identity
    return seen.crush.identity


def _renumbered(clean: LastClean, version: int) -> LastClean:
    """The mons have given the map that was seen last another version."""
    if clean.crush_version == clean.last_version:
        clean = replace(clean, crush_version=version)
    return replace(clean, last_version=version)


def _serving(osdmap: OsdMap) -> FrozenSet[int]:
    return frozenset(osd.id for osd in osdmap.osds.values() if osd.is_up_and_in)


class AutoExpand:
    """Compares each turn with the last one that was clean, and stores that for the next mgr."""

    def __init__(self, store: Store, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._may_write = may_write
        self._clean: Optional[LastClean] = None
        #: Time of the last turn of this mgr.
        self._looked: Optional[float] = None
        #: The CRUSH version of the one that is stored; -1: none is.
        self._stored_version = -1

    def load(self) -> None:
        self._clean = last_clean_from_json(self._store.get(LAST_CLEAN))
        self._stored_version = self._clean.crush_version if self._clean else -1

    @property
    def osds_changed(self) -> float:
        """As Observation.osds_changed."""
        return self._clean.changed if self._clean else 0.0

    def forget(self) -> None:
        """What is remapped now is nothing that a campaign should begin for."""
        self._clean = None

    def look(self, seen: Observation, campaign: Optional[Campaign], ratio: float,
             keep: bool) -> str:
        """What remapped more than `ratio` of the PGs; '': nothing. `keep`: store what was clean."""
        clean = self._clean
        if clean is not None:
            clean = replace(clean, changed=min(seen.now, clean.changed + self._ahead(seen.now)))
        self._looked = seen.now
        self._clean, why = look(clean, seen, campaign, ratio)
        if keep and self._clean.crush_version != self._stored_version and self._may_write():
            self._store.put(LAST_CLEAN, self._clean.as_json())
            self._stored_version = self._clean.crush_version
        return why

    def _ahead(self, now: float) -> float:
        """Seconds in which this mgr has seen nothing, so that no change has become older."""
        passed = now - self._looked if self._looked is not None else 0.0
        return passed if passed > LONGEST_TURN_SECONDS else 0.0
