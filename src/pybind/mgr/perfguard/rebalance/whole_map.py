# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH map as a whole. The map itself is in the store while the campaign is open."""
from dataclasses import dataclass, replace
from typing import ClassVar, List, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future
from ..observation import Observation
from .change import Change
from .types import Action, SetCrushMap


@dataclass(frozen=True)
class MapChange(Change):
    kind: ClassVar[str] = 'map'

    #: The version of CRUSH when it was ordered, then when it was sent: the new map replaces that
    #: version only. Maps that differ in tunables alone have the same fingerprint.
    crush_version: int = 0
    #: CrushRules.identity of that version, which the mons also give new versions; 0: not known,
    #: or that of the new map as well.
    crush_identity: int = 0

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

    def sent(self, observation: Observation) -> Change:
        return replace(self, crush_version=observation.crush_version)

    def same_as(self, other: Change) -> bool:
        """The mons also give the same map new versions, and the ground of the plan shows another
        one."""
        return isinstance(other, MapChange) and self == replace(
            other, crush_version=self.crush_version, crush_identity=self.crush_identity)
