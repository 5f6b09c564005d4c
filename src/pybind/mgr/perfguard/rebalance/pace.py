# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the throttle has decided last, and what led to it."""
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping

from ..reasons import Code


@dataclass(frozen=True)
class Pace:
    """The state of the throttle, part of the campaign."""
    #: PGs that may be in flight; 0: nothing was decided yet.
    pgs: float = 0.0
    #: The reading that was last judged.
    decided: float = 0.0
    #: Readings in a row over the target, and well below it.
    over: int = 0
    under: int = 0
    #: Lowering the limit to one PG was not enough.
    halted: bool = False
    why: str = ''
    #: The code of `why`.
    code: str = Code.FIRST_PACE
    #: "reads of pool rbd" -> ms that they took while nothing moved, though more than was allowed.
    levels: Mapping[str, float] = field(default_factory=dict)
    #: The reading that last added one.
    acquitted: float = 0.0
    #: The most PGs that were in flight since the last reading.
    used: int = 0
    #: Readings in a row in which all pools together were over their limits.
    above: int = 0
    #: Hosts that moves have burdened -> when; known to this mgr alone, which has seen them since.
    burdened: Mapping[str, float] = field(default_factory=dict, compare=False)
    seen_since: float = field(default=0.0, compare=False)


#: Would make the document large.
NOT_KEPT = ('burdened', 'seen_since')


def pace_to_json(pace: Pace) -> Dict[str, Any]:
    kept = {key: value for key, value in vars(pace).items() if key not in NOT_KEPT}
    return {**kept, 'levels': dict(pace.levels)}


def pace_from_json(raw: Mapping[str, Any]) -> Pace:
    """Raises KeyError, TypeError or ValueError on what is none of ours."""
    return Pace(float(raw['pgs']), float(raw['decided']), int(raw['over']), int(raw['under']),
                bool(raw['halted']), str(raw['why']),
                str(raw.get('code', Code.FIRST_PACE)),
                {str(name): float(ms) for name, ms in raw.get('levels', {}).items()},
                float(raw.get('acquitted', 0.0)), int(raw.get('used', 0)),
                int(raw.get('above', 0)))
