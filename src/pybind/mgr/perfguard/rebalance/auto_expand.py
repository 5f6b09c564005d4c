# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of CRUSH that nobody announced: new hosts that came up, weights, rules.

PGs that are remapped because OSDs went down or out are another matter: that is recovery.
"""
from dataclasses import dataclass
from typing import FrozenSet, Optional, Tuple

from ..cluster.types import OsdMap
from ..observation import Observation
from .types import Campaign

#: Seconds after a change of CRUSH in which PGs that become remapped are put down to it. The mons
#: prime most of them in the same epoch; on a large cluster the rest has to peer first.
CALM_SECONDS = 30.0


@dataclass(frozen=True)
class Calm:
    """The cluster as it last was with nothing remapped, or in a campaign's hands."""
    crush_version: int
    #: OSDs that were up and in.
    serving: FrozenSet[int]
    #: The CRUSH version seen last, and when it came.
    last_version: int = 0
    changed: float = 0.0


def look(calm: Optional[Calm], seen: Observation, campaign: Optional[Campaign],
         ratio: float) -> Tuple[Calm, str]:
    """The next state of calm, and what remapped more than `ratio` of the PGs; '': nothing."""
    version, serving = seen.crush_version, _serving(seen.osdmap)
    if calm is None or (campaign is not None and campaign.active):
        return Calm(version, serving, version, seen.now), ''
    if version != calm.last_version:
        calm = Calm(calm.crush_version, calm.serving, version, seen.now)
    remapped = len(seen.osdmap.pg_temp)
    if not remapped and (version == calm.crush_version
                         or seen.now - calm.changed > CALM_SECONDS):
        return Calm(version, serving, version, calm.changed), ''
    total = sum(pool.pg_num for pool in seen.osdmap.pools.values())
    if (version != calm.crush_version and calm.serving <= serving
            and remapped > ratio * total):
        return calm, 'CRUSH changed and remapped %d of %d PGs' % (remapped, total)
    return calm, ''


def _serving(osdmap: OsdMap) -> FrozenSet[int]:
    return frozenset(osd.id for osd in osdmap.osds.values() if osd.up and osd.reweight > 0)
