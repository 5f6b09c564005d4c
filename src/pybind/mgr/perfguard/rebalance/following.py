# SPDX-License-Identifier: LGPL-2.1-or-later
"""Following a campaign: `campaign watch`.

A command of an mgr module cannot stream, and one that waits keeps other commands waiting (in
Pacific those of all modules). The `ceph` tool itself repeats polling commands, such as `iostat`,
every --period, until one returns an error; its exit code is 0 then, but for ETIMEDOUT.
"""
import errno
from typing import NamedTuple, Optional

from ..errors import Code, Refused, texts
from ..tables import pgs
from .report import CampaignStatus
from .types import Phase

#: The campaign has reached the phase. `ceph` prints the error, and its exit code is 0.
REACHED = -errno.ENODATA
#: It will not reach the phase. The only error that polling commands exit with (110).
MISSED = -errno.ETIMEDOUT
#: The order of phases; HOLDING is a part of RELEASING.
_ORDER = (Phase.IDLE, Phase.PREPARED, Phase.PINNING, Phase.PINNED, Phase.RELEASING,
          Phase.FINISHING, Phase.DONE)
_ENDS = (Phase.DONE, Phase.ABORTED)


class Ending(NamedTuple):
    retval: int
    text: str


def followed(status: CampaignStatus, until: Optional[str]) -> Optional[Ending]:
    """The end of following at this status; None: it continues. Raises Refused.

    `until`: a phase, or a later one; None: the campaign's end.
    """
    goal = _phase(until)
    codes = {reason.code for reason in status.reasons}
    if (not status.id or status.phase in _ENDS) and Code.AWAITS_OSDS in codes:
        return None
    if not status.id:
        # A requested campaign begins with the next turn of the loop.
        if Code.REQUESTED in codes:
            return None
        return Ending(MISSED, 'no campaign is active')
    who = 'campaign %d' % status.id
    if status.phase is goal or _is_past(status.phase, goal):
        return Ending(REACHED, '%s is %s: %d of %s released, %d kept as upmaps' % (
            who, status.phase.value, status.released, pgs(status.total), status.kept))
    if status.phase in _ENDS:
        return Ending(MISSED, '; '.join(['%s is %s' % (who, status.phase.value),
                                         *texts(status.reasons)]))
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
