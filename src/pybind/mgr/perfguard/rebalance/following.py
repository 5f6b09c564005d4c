# SPDX-License-Identifier: LGPL-2.1-or-later
"""Following a campaign from a terminal or a script, and how that ends. Pure.

A command of an mgr module cannot stream, and one that waits keeps other commands waiting (in
Pacific those of all modules). The `ceph` tool itself repeats polling commands, such as `iostat`,
every --period, until one returns an error; its exit code is 0 then, but for ETIMEDOUT.
"""
import errno
from typing import Any, Mapping, NamedTuple, Optional

from ..errors import Code, Refused
from .types import Phase

#: The campaign is where it was to be. `ceph` prints the error, and its exit code is 0.
REACHED = -errno.ENODATA
#: It will not get there any more. The only error that polling commands exit with (110).
MISSED = -errno.ETIMEDOUT
#: The order of phases; HOLDING is a part of RELEASING.
_ORDER = (Phase.IDLE, Phase.PREPARED, Phase.PINNING, Phase.PINNED, Phase.RELEASING,
          Phase.FINISHING, Phase.DONE)
_ENDS = (Phase.DONE, Phase.ABORTED)


class Ending(NamedTuple):
    retval: int
    text: str


def followed(status: Mapping[str, Any], until: Optional[str]) -> Optional[Ending]:
    """How following ends at this `rebalance status`; None: it goes on. Raises Refused.

    `until`: a phase, or a later one; None: the campaign's end.
    """
    goal, phase = _phase(until), Phase(status['phase'])
    if status['id'] is None:
        # A campaign that was asked for begins with the next turn of the loop.
        if Code.REQUESTED in [row['code'] for row in status['limits']]:
            return None
        return Ending(MISSED, 'no campaign is active')
    who = 'campaign %d' % status['id']
    if phase is goal or _is_past(phase, goal):
        return Ending(REACHED, '%s is %s: %d of %d PGs released, %d left as upmaps' % (
            who, phase.value, status['released'], status['total'], status['kept']))
    if phase in _ENDS:
        return Ending(MISSED, '; '.join(['%s is %s' % (who, phase.value), *status['reasons']]))
    return None


def _phase(until: Optional[str]) -> Phase:
    if until is None:
        return Phase.DONE
    try:
        return Phase(until.upper())
    except ValueError:
        raise Refused(errno.EINVAL, 'unknown phase %.30r: must be one of %s' % (
            until, ', '.join(phase.value for phase in Phase))) from None


def _is_past(phase: Phase, goal: Phase) -> bool:
    phase = Phase.RELEASING if phase is Phase.HOLDING else phase
    return phase in _ORDER and goal in _ORDER and _ORDER.index(phase) > _ORDER.index(goal)
