# SPDX-License-Identifier: LGPL-2.1-or-later
"""What an operator can do about a reason or a cause, by its code. Pure."""
import re
from typing import Dict, Iterable, List

from ..errors import DETAIL_LINES, Code, HealthChecks, Reason, warning
from ..text import with_next
from .stop_conditions import WAIVABLE

_HEALTH_DETAIL = '"ceph health detail" names them'
_HEALTH_CAUSE = '"ceph health detail" names the cause and what to do'
_WAIVE = '"campaign accept %s" continues'
_RAISE = '"campaign set %s=<number>" changes the limit for this campaign'

#: Code -> the command that goes on, where the text of the reason has none.
NEXT_STEPS: Dict[str, str] = {
    Code.AWAITS_CHANGE: '"campaign finish" ends it without one',
    Code.SETTINGS: '"ceph perfguard held" lists the borrowed settings',
    Code.GIVES_WAY: _HEALTH_DETAIL,
    Code.UNPINNABLE: '"campaign start" lets them move; "campaign rollback" undoes the change',
    Code.UNCLEAN: _HEALTH_DETAIL,
    Code.LAGGY: '"ceph perfguard laggy" names the suspects',
    Code.LEASES: '"ceph perfguard laggy" names the suspects',
    Code.LAGGY_LATELY: '"campaign accept LAGGY" continues at once',
    Code.INACTIVE: _HEALTH_DETAIL,
    Code.DEGRADED: 'recovery ends this',
    Code.SLOW_OPS: '"ceph perfguard osds" shows which OSDs are slow',
    Code.SLOW_PING: _HEALTH_DETAIL,
    Code.MON_DOWN: _HEALTH_DETAIL,
    Code.MON_DISK: _HEALTH_DETAIL,
    Code.SLOW_POOL: '"ceph perfguard pools" shows its latency',
    Code.MITIGATION: '"mitigation ls" shows why; "mitigation revert <id>" undoes it',
    Code.RECOVERY_WAITS: '"ceph config set mgr mgr/perfguard/mitigation_backfills <number>" '
    'accelerates it with mitigation_mode act',
    Code.HALTED: '"why campaign" explains; ' + _RAISE % 'latency_factor',
    Code.LATENCY: _RAISE % 'latency_factor',
    Code.OSD_LATENCY: '"ceph perfguard osds" compares them',
    Code.WINDOW_CLOSED: '"campaign set end_time=<HHMM>" changes it for this campaign',
    Code.UNTRIMMED_MAPS: '"ceph config set mgr mgr/perfguard/max_untrimmed_osdmaps <number>" '
    'changes the limit',
    Code.BAD_OPTIONS: '"ceph config set mgr mgr/perfguard/<option> <value>" corrects it',
    Code.OVERTAKEN: 'undo the change, or wait: after ten minutes without another one, the campaign '
    'ends',
    Code.OSDS_ARRIVING: '"ceph config set mgr mgr/perfguard/auto_expand_settle <seconds>" '
    'shortens the wait',
    Code.OSD_DOWN: '"ceph osd tree down" lists them',
    Code.OSD_SCRUB_ERRORS: _HEALTH_DETAIL,
    Code.PG_DAMAGED: _HEALTH_DETAIL,
    Code.BACKFILL_TOOFULL: '"ceph osd df" shows the space',
    Code.TARGET_FULL: '"ceph osd df" shows the space',
    Code.TARGET_DOWN: '"ceph osd tree down" lists them',
    Code.CAP_BACKFILLS: _RAISE % 'max_backfills_target' + ', likewise _source, _primary, _device, '
    '_host and _domain',
    Code.CAP_PGS: _RAISE % 'max_pgs_in_flight',
    Code.CAP_BYTES: _RAISE % 'max_bytes_in_flight',
    Code.STALL_RATIO: _RAISE % 'stall_ratio',
    Code.EVACUATION_HELD: _HEALTH_CAUSE,
    Code.NOT_STORED: '"ceph -s" shows whether the mons have a quorum',
    Code.PROBE: '"probe cancel <id>" ends it',
    Code.WATCH_FAILED: '"ceph mgr fail" activates another mgr',
    Code.STALE: '"ceph mgr fail" activates another mgr',
    Code.OTHER: '"why campaign" lists them',
    # Of one PG or OSD.
    Code.PINNED: '"campaign status" says what it waits for',
    Code.REMAPPED: '"campaign prepare", then "campaign pin", pins it',
    Code.OWN_FLAG: '"ceph perfguard status" says why',
    Code.MCLOCK: '"ceph config set osd osd_mclock_profile balanced" leaves more to it',
    Code.LOCAL_RESERVATION: '"ceph tell osd.<id> dump_recovery_reservations" lists them',
    Code.REMOTE_RESERVATION: '"ceph tell osd.<id> dump_recovery_reservations" lists them',
    Code.BACKFILL_WAIT: '"ceph pg <pgid> query" shows its state',
    Code.NO_ANSWER: 'repeat the command; "ceph osd tree down" lists OSDs that are down',
    Code.WAITS_FOR_OSD: '"why osd.<id>" of that OSD explains it',
    Code.SLOW_AGAIN: '"replace osd.<id>" empties it and waits for a new drive',
}

#: Health check -> the command that goes on, where the detail of the check has none.
CHECK_STEPS: Dict[str, str] = {
    'PERFGUARD_LAGGY_PGS': '"ceph perfguard laggy" shows the evidence for each suspect',
    'PERFGUARD_SLOW_OSD': '"ceph perfguard why osd.<id>" lists the evidence',
    'PERFGUARD_OSD_CHRONIC': '"ceph perfguard why osd.<id>" lists the evidence; "ceph perfguard '
    'replace osd.<id>" empties the OSD for a new drive',
    'PERFGUARD_LATENCY': '"ceph perfguard status" shows whether data moves, "ceph perfguard osds" '
    'whether an OSD is slow',
    'PERFGUARD_STALLED': '"ceph perfguard why campaign" shows what has limited it',
    'PERFGUARD_UNPINNABLE': '"ceph perfguard campaign status" shows whether releases wait for '
    'them',
    'PERFGUARD_INTERRUPTED': '"ceph perfguard held" lists the borrowed settings that are known',
    'PERFGUARD_PROBE_REGRESSION': '"ceph perfguard probe compare <baseline> <probe>" shows the '
    'difference',
    'PERFGUARD_PROBE_LEFT': '"ceph perfguard probe cancel <probe> --force" gives up the clean-up',
    'PERFGUARD_LOOP_FAILED': '"ceph mgr fail" activates another mgr',
    'PERFGUARD_STANDBY_MGR': '"ceph perfguard advise --refresh" looks again',
}

#: A command in a text.
_NAMED_COMMAND = re.compile(
    r'"(?:ceph |campaign |probe |mitigation |plan |why |expand|adopt|undrain|held)')


def next_step(code: str, text: str, of_campaign: bool = True) -> str:
    """The command that goes on, for the code of a reason, of a cause or of a health check, and its
    text; '' if the text names a command, or if only time helps.

    `of_campaign`: a campaign waits for it, so that `campaign accept` is named too if that waives
    it.
    """
    if _NAMED_COMMAND.search(text):
        return ''
    if code.startswith('PERFGUARD_'):  # a health check
        return _HEALTH_CAUSE
    accept = _WAIVE % code if of_campaign and code in WAIVABLE else ''
    return '; '.join(filter(None, (NEXT_STEPS.get(code), accept)))


def with_steps(checks: HealthChecks) -> HealthChecks:
    """The health checks, with the command that goes on as the last line of the detail, unless the
    detail names a command."""
    complete = dict(checks)
    for code, check in checks.items():
        if code in CHECK_STEPS and not any(map(_NAMED_COMMAND.search, check['detail'])):
            detail = [*check['detail'][:DETAIL_LINES - 1], CHECK_STEPS[code]]
            complete[code] = warning(check['summary'], detail, check['count'])
    return complete


def limits_json(reasons: Iterable[Reason]) -> List[Dict[str, str]]:
    """The entries of `limits` in `status` and `campaign status`."""
    return [{'code': reason.code, 'text': reason.text,
             'next': next_step(reason.code, reason.text)} for reason in reasons]


def detailed(reasons: Iterable[Reason]) -> List[str]:
    """Texts with the command that goes on."""
    return [with_next(reason.text, next_step(reason.code, reason.text)) for reason in reasons]
