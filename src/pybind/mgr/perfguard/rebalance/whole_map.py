# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH map as a whole. The map itself is in the store while the campaign is open.

If it does not allow PGs to stay where they are, for example because a rule has another failure
domain, no pin can keep them. With target=balanced, they move before the map is set: as few shards
as possible, to sets that both maps allow.
"""
from dataclasses import dataclass, replace
from typing import ClassVar, FrozenSet, List, Mapping, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, NoFuture, Outlook
from ..cluster.types import OsdMap, OsdSet, Space, pool_of
from ..observation import Observation
from .change import Change, ChangeStage
from .least_moves import moves_for_map
from .pool_change import PassingChange, upmaps_to_remove
from .types import Action, Bounds, PinRecord, SetCrushMap


@dataclass(frozen=True)
class MapChange(PassingChange):
    kind: ClassVar[str] = 'map'
    fewer_pins: ClassVar[str] = 'apply the change in several steps, or with --upmaps-max, with ' \
        'which more data moves'
    why_first: ClassVar[str] = 'the new CRUSH map does not allow PGs to stay'

    #: The version of CRUSH when it was ordered, then when it was sent: the new map replaces that
    #: version only. Maps that differ in tunables alone have the same fingerprint.
    crush_version: int = 0
    #: CrushRules.identity of that version, which the mons also give new versions; 0: not known,
    #: or that of the new map as well.
    crush_identity: int = 0
    #: Of the PGs that it does not allow to stay, which move first; None: they do not.
    least: Optional[Bounds] = None
    #: How many upmaps may keep the PGs of `limited` in place (None: unlimited), and those pools.
    upmaps_max: Optional[int] = None
    limited: Tuple[int, ...] = ()
    #: The pools that are balanced once these PGs have moved.
    balanced: Tuple[int, ...] = ()

    @classmethod
    def to(cls, rules: CrushRules, observation: Observation) -> 'MapChange':
        """The change to this map, which may only replace the present one."""
        identity = observation.crush.identity
        return cls(crush_version=observation.crush_version,
                   crush_identity=identity if identity != rules.identity else 0)

    def commands(self, observation: Observation) -> List[Action]:
        outlook = observation.outlook
        if not isinstance(outlook, Future) or outlook.crush_map is None:
            return []
        return [SetCrushMap(outlook.crush_map, observation.crush_version)]

    @property
    def moving_first(self) -> bool:
        return self.least is not None and self.stage is ChangeStage.WANTED

    @property
    def whole(self) -> bool:
        return self.moving_first

    @property
    def follows_parts(self) -> bool:
        return self.least is not None

    def foreseen(self, outlook: Outlook, observation: Observation,
                 space: Mapping[int, Space]) -> Outlook:
        if isinstance(outlook, NoFuture) or self.least is None or not self.moving_first:
            return outlook
        return replace(outlook, finals=moves_for_map(
            outlook, observation, self.least, self.upmaps_max, self.limited).finals)

    def drains(self, crush: CrushRules, future: Future) -> OsdSet:
        # The mons keep upmaps to OSDs of a tiny weight.
        return tuple(sorted(future.crush.light_osds - crush.light_osds))

    @property
    def settled_pools(self) -> FrozenSet[int]:
        # Where the balance would place PGs of limited ones, they may need further upmaps.
        return frozenset((*self.limited, *self.balanced))

    @property
    def removes_upmaps(self) -> bool:
        return bool(self.limited)

    def upmaps_to_remove(self, osdmap: OsdMap, future: Future) -> Mapping[str, PinRecord]:
        # The mons keep upmaps without effect if one of their sources is in the set of the new map.
        return {pgid: pin for pgid, pin in upmaps_to_remove(osdmap, future).items()
                if pool_of(pgid) in self.limited}

    def first_moves_text(self, osdmap: OsdMap) -> str:
        return 'will move before the CRUSH map is set'

    @property
    def features(self) -> Mapping[str, str]:
        return {'PGs move before the CRUSH map is set:': 'no' if self.least is None else 'yes',
                'upmaps that remain at most:': str(self.upmaps_max)}

    def landed(self, observation: Observation) -> bool:
        return (observation.crush_version != self.crush_version
                and observation.crush.fingerprint() == self.fingerprint
                # It must not be the old map under a new version.
                and observation.crush.identity != self.crush_identity)

    def expected(self, observation: Observation) -> Tuple[int, int]:
        if not isinstance(observation.outlook, Future):
            return super().expected(observation)
        return observation.outlook.crush.fingerprint(), observation.outlook.crush.tunables

    def is_ours(self, observation: Observation) -> bool:
        return self.fingerprint == observation.crush.fingerprint() \
            and self.tunables in (0, observation.crush.tunables)

    def impossible(self, observation: Observation) -> str:
        return observation.overtaken and 'CRUSH has changed since "crushmap": %s. Get the ' \
            'current CRUSH map, change it, and apply it again' % observation.overtaken

    @property
    def impossible_for_good(self) -> bool:
        # Any change of CRUSH makes it so: a weight that is set back, a removal that is stopped.
        return False

    def sent(self, observation: Observation) -> Change:
        return replace(self, crush_version=observation.crush_version)

    def same_as(self, other: Change) -> bool:
        """The mons also give the same map new versions, and the ground of the plan shows another
        one."""
        return isinstance(other, MapChange) and self == replace(
            other, crush_version=self.crush_version, crush_identity=self.crush_identity)
