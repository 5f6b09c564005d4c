# SPDX-License-Identifier: LGPL-2.1-or-later
"""Risks of a change. Each must be accepted by its code before the change begins. Pure."""
import errno
from typing import Iterable, List, NamedTuple, Sequence, Tuple

from ..cluster.types import Json
from ..errors import MOST_ERROR_CHARACTERS, Code, Reason, Refused, code_of
from ..watch.stop_conditions import UNHEALTHY, WAIVABLE

#: Maximum length of a command that a refusal spells out; the rest is for the risks.
MOST_COMMAND = 600
#: All codes that "--accept" takes.
RISKS: Tuple[str, ...] = tuple(sorted((
    *UNHEALTHY, Code.AUTOSCALER, Code.BALANCER_UNDOES, Code.LEFT_OUT, Code.NO_PREVIEW,
    Code.NOT_BALANCED, Code.ONE_EPOCH, Code.PG_LIMIT, Code.PIN_LIMIT, Code.TARGET_FULL,
    Code.TOO_FEW_OSDS, Code.UNPINNABLE, Code.WEAKER_RULE)))


class Risk(NamedTuple):
    #: One of RISKS.
    code: str
    #: What would happen, and what avoids it.
    text: str
    errno: int = errno.EPERM
    #: It is a state of the cluster, which the next reports may show as cleared.
    of_cluster: bool = False


def of_health(reasons: Iterable[Reason]) -> List[Risk]:
    return [Risk(reason.code, reason.text, of_cluster=True) for reason in reasons]


def risks_json(risks: Iterable[Risk], accept: Sequence[str]) -> List[Json]:
    """The risks that are not accepted, for previews."""
    return [{'code': risk.code, 'text': risk.text} for risk in risks if risk.code not in accept]


def accepted(codes: Iterable[str]) -> Tuple[str, ...]:
    """The codes of "--accept" in any spelling; raises Refused for an unknown one."""
    accepted_codes = tuple(code_of(code.strip()) for text in codes for code in text.split(','))
    for code in accepted_codes:
        if code in WAIVABLE and code not in RISKS:
            raise Refused(errno.EINVAL, '%s stops releases, but not the beginning of a change: '
                          '"campaign accept %s" ignores it once the campaign has begun (omit '
                          '--accept %s)' % (code, code, code))
        if code not in RISKS:
            raise Refused(errno.EINVAL, 'cannot accept %.40r; must be one of %s'
                          % (code, ', '.join(RISKS)))
    return accepted_codes


def refuse(risks: Sequence[Risk], accept: Sequence[str], command: str) -> None:
    """Raise Refused for risks that are not accepted, with all of them and the command that accepts
    them. `command`: the one that was given, without "--accept"; '': not known here."""
    missing = [risk for risk in risks if risk.code not in accept]
    if not missing:
        return
    codes = dict.fromkeys((*accept, *(risk.code for risk in missing)))
    words = ''.join(' --accept ' + code for code in codes)
    is_short = command and len(command + words) <= MOST_COMMAND
    how = '; to accept: ' + ('"%s%s"' % (command, words) if is_short else 'add' + words)
    # Not fit: the next reports may show a state of the cluster as cleared.
    raise Refused(missing[0].errno, _listed(missing, MOST_ERROR_CHARACTERS - len(how)) + how,
                  not_fit=any(risk.of_cluster for risk in missing))


def _listed(risks: Sequence[Risk], limit: int) -> str:
    """The risks in at most `limit` characters: the longest texts are shortened."""
    room = limit - sum(len(risk.code) + len(' (); ') for risk in risks)
    longest = max(len(risk.text) for risk in risks)
    while sum(min(len(risk.text), longest) for risk in risks) > room and longest > len('...'):
        longest -= 1
    return '; '.join('%s (%s)' % (
        risk.text if len(risk.text) <= longest else risk.text[:longest - len('...')] + '...',
        risk.code) for risk in risks)
