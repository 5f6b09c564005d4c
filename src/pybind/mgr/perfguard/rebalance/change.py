# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a campaign itself changes in CRUSH, in the very epoch of the pins that this takes.

The mon gathers commands into one proposal and checks upmaps against the map that this makes. So
nothing is ever remapped when the pins of the future mapping come along with the new weights.
"""
import enum
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping

from ..cluster.types import OsdSet

#: The least CRUSH weight above 0 that survives (units are 1/65536). Upmaps onto an OSD of weight 0
#: are dropped by the mon, those onto an OSD of this weight are kept.
TINY_WEIGHT = 0.0001


class Stage(str, enum.Enum):
    WANTED = 'wanted'
    #: On its way: journalled, sent, not read back.
    SENT = 'sent'
    #: The OSDMap shows it.
    LANDED = 'landed'


@dataclass(frozen=True)
class Change:
    #: OSD -> its new CRUSH weight.
    weights: Mapping[int, float] = field(default_factory=dict)
    #: A whole CRUSH map instead, kept in the store by the campaign's id.
    crush_map: bool = False
    #: OSDs that shall end empty: no release leads onto them.
    drained: OsdSet = ()
    stage: Stage = Stage.WANTED
    #: When it was sent last, how often in all, and with how many pins.
    since: float = 0.0
    times: int = 0
    pins: int = 0
    vectors: int = 0
    #: What CrushRules.fingerprint of the whole new map is, and the version of CRUSH when it was
    #: ordered: the new map replaces that version only. What differs in tunables alone has the same
    #: fingerprint. With weights: a number for the rest of CRUSH when they were sent.
    fingerprint: int = 0
    crush_version: int = 0
    #: OSDs whose weights are in force, and how many go into one burst (0: all that are left).
    done: OsdSet = ()
    burst: int = 0

    @property
    def chunk(self) -> Mapping[int, float]:
        """OSD -> new CRUSH weight, of the burst that is next or on its way."""
        left = self._left()
        return {osd: self.weights[osd] for osd in left[:self.burst or len(left)]}

    @property
    def pending(self) -> bool:
        """A burst was sent, was not read back, and may land yet: also while it is sent again."""
        return self.stage is Stage.SENT or self.stage is Stage.WANTED and self.times > 0

    @property
    def more(self) -> bool:
        """Bursts follow that one."""
        return len(self._left()) > len(self.chunk)

    def _left(self) -> List[int]:
        return sorted(self.weights.keys() - set(self.done))


_PLAIN = ('crush_map', 'since', 'times', 'pins', 'vectors', 'fingerprint', 'crush_version')


def change_to_json(change: Change) -> Dict[str, Any]:
    document: Dict[str, Any] = {name: getattr(change, name) for name in _PLAIN}
    document.update({'done': list(change.done), 'burst': change.burst})
    document.update({'weights': {str(osd): weight for osd, weight in change.weights.items()},
                     'drained': list(change.drained), 'stage': change.stage.value})
    return document


def change_from_json(raw: Mapping[str, Any]) -> Change:
    """Raises KeyError, TypeError or ValueError on a document that is none of ours."""
    return Change({int(osd): float(weight) for osd, weight in raw['weights'].items()},
                  done=tuple(raw.get('done', ())), burst=raw.get('burst', 0),
                  drained=tuple(raw['drained']), stage=Stage(raw['stage']),
                  **{name: raw[name] for name in _PLAIN})
