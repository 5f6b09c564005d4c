# SPDX-License-Identifier: LGPL-2.1-or-later
"""Health checks of the watch, and events when a problem begins and ends.

They name no clients and no objects: whoever may read the health of a cluster, or its log, need not
have access to the mgr.
"""
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ..errors import HealthChecks, HealthWarning, warning
from ..events import Event
from ..tables import are, osds_text, pgs_are
from .causes import LikelyCause
from .pools import PoolPerformance
from .slow_osds import whole_hosts
from .state import WatchContext, WatchState
from .types import OsdVerdict

LAGGY = 'PERFGUARD_LAGGY_PGS'
SLOW = 'PERFGUARD_SLOW_OSD'
CHRONIC = 'PERFGUARD_OSD_CHRONIC'
LATENCY = 'PERFGUARD_LATENCY'
#: Maximum numbers of suspects and PGs in the text of a health check.
SUSPECTS_IN_TEXT = 3
PGS_IN_TEXT = 20
#: A chronically slow OSD is also reported by SLOW only after this time without a break. Otherwise
#: that check would be raised and cleared with every episode.
LASTING_SECONDS = 1800.0
#: Kinds of events by health check; the cluster log contains them as well.
KINDS = {LAGGY: 'laggy', SLOW: 'slow-osd', CHRONIC: 'chronic-osd', LATENCY: 'latency'}


def health_checks(watch: WatchState, context: WatchContext) -> HealthChecks:
    """For MgrModule.set_health_checks."""
    checks: Dict[str, HealthWarning] = {}
    if watch.laggy.raised:
        checks[LAGGY] = warning(_laggy_summary(watch, context), _laggy_detail(watch, context))
    slow = _slow_lines(watch, context)
    if slow:
        checks[SLOW] = warning(_slow_summary(watch, context.now), slow)
    if watch.slow.chronic.standing:
        checks[CHRONIC] = warning(_chronic_summary(watch), _chronic_lines(watch))
    late = _late_pools(watch, context)
    if late:
        checks[LATENCY] = warning(
            '%s slower than %s' % (are(len(late), 'pool'), 'its baseline' if len(late) == 1 else
                                   'their baselines'),
            ['; '.join(lines) for lines in late.values()])
    return checks


def _laggy_summary(watch: WatchState, context: WatchContext) -> str:
    counts = context.signals.counts
    text = '%s laggy' % pgs_are(counts.laggy)
    if counts.wait:
        text += ', %d waiting for read leases to expire' % counts.wait
    if not counts.laggy + counts.wait:
        text = 'PGs were laggy until a moment ago'
    if watch.laggy.suspects:
        text += '; main suspect: osd.%d' % watch.laggy.suspects[0].osd
    return text


def _laggy_detail(watch: WatchState, context: WatchContext) -> List[str]:
    lines = []
    for suspect in watch.laggy.suspects[:SUSPECTS_IN_TEXT]:
        lines.append('osd.%d: %s%s' % (suspect.osd, suspect.why,
                                       '; ' + suspect.advice if suspect.advice else ''))
    for pg in watch.laggy.pgs.all()[:PGS_IN_TEXT]:
        lines.append('PG %s, acting %s: clients have been waiting for %s' % (
            pg.pgid, list(pg.acting), _ago(context, pg.since)))
    return lines or ['no OSD has reported yet which PGs are laggy']


def _slow(watch: WatchState, now: float) -> List[OsdVerdict]:
    """The slow OSDs without the episodes of chronically slow OSDs."""
    standing = watch.slow.chronic.standing
    return [verdict for osd, verdict in sorted(watch.slow.verdicts.items())
            if verdict.slow and (osd not in standing or now - verdict.since >= LASTING_SECONDS)]


def _slow_summary(watch: WatchState, now: float) -> str:
    hosts = watch.slow.hosts()
    members = {osd for host in hosts for osd in host.osds}
    single = [each.osd for each in _slow(watch, now) if each.osd not in members]
    many = len(hosts) + len(single) > 1
    return '%s %s slower than %s peers' % (
        _names([host.host for host in hosts], single), 'are' if many else 'is',
        'their' if many else 'its')


def _names(hosts: Sequence[str], osds: Sequence[int]) -> str:
    parts = []
    if hosts:
        parts.append('host%s %s' % ('s' if len(hosts) > 1 else '', ', '.join(hosts)))
    if osds:
        parts.append(osds_text(osds))
    return ' and '.join(parts)


def _slow_lines(watch: WatchState, context: WatchContext) -> List[str]:
    return ['host %s: %s' % (host.host, host.why) for host in watch.slow.hosts()] + [
        '%s: %s%s' % (_place(watch, verdict.osd), verdict.why,
                      _likely(watch.causes_of(verdict.osd, context)))
        for verdict in _slow(watch, context.now)]


def _likely(causes: Sequence[LikelyCause]) -> str:
    if not causes:
        return ''
    return '; likely cause%s: %s' % ('s' if len(causes) > 1 else '', ', '.join(
        cause.unnamed or cause.text for cause in causes))


def _place(watch: WatchState, osd: int) -> str:
    place = watch.places.get(osd)
    return 'osd.%d%s' % (osd, ' on ' + place.host if place else '')


def _chronic_summary(watch: WatchState) -> str:
    """Names hosts instead of OSDs if most of their OSDs are chronically slow."""
    standing = watch.slow.chronic.standing.keys() & watch.places.keys()
    whole = whole_hosts(standing, watch.places, watch.places)
    single = standing - {osd for osds in whole.values() for osd in osds}
    hosts = sorted({host for _, host in whole})
    return '%s %s slow again and again' % (
        _names(hosts, sorted(single)), 'are' if len(hosts) + len(single) > 1 else 'is')


def _chronic_lines(watch: WatchState) -> List[str]:
    verdicts, lines = watch.slow.verdicts, []
    for osd, found in watch.slow.chronic.standing.items():
        now = verdicts.get(osd)
        lines.append('%s: %s%s' % (_place(watch, osd), found.why, '; slow now: ' + now.why
                                   if now is not None and now.slow else ''))
    return lines


def _late_pools(watch: WatchState, context: WatchContext) -> Dict[int, List[str]]:
    found: Dict[int, List[str]] = {}
    for pool_id, kind, since in watch.pools.slow():
        pool = context.osdmap.pools.get(pool_id)
        if pool is not None:
            found.setdefault(pool_id, []).append('pool %s: %s for %s' % (
                pool.name, _late_text(watch.pools.latency(pool_id), kind), _ago(context, since)))
    for pool_id, lines in found.items():
        lines += [client.unnamed() + ' ("ceph perfguard pools" names it)'
                  for client in watch.heavy_clients(pool_id)]
    return found


def _ago(context: WatchContext, since: float) -> str:
    """Never negative, even if the clock was set back."""
    return '%.0f s' % max(0.0, context.now - since)


def _late_text(seen: PoolPerformance, kind: str) -> str:
    now, usual = (seen.read, seen.read_baseline_ms) if kind == 'reads' else \
        (seen.write, seen.write_baseline_ms)
    return '%s take %.1f ms (baseline %.1f ms)' % (kind, now.ms, usual or 0.0)


# ---- Events

class _Trouble(NamedTuple):
    check: str
    #: For example "osd.3".
    subject: str
    since: float
    why: str
    #: The host of an OSD if the host is slow as a whole; then only the host is reported.
    host: str = ''


class Announcer:
    """Reports each problem when it begins and when it ends."""

    def __init__(self) -> None:
        #: Problems whose begin was reported and that have not ended.
        self._reported: Dict[Tuple[str, str], _Trouble] = {}

    def to_json(self) -> List[List[Any]]:
        return [[each.check, each.subject, each.since] for each in self._reported.values()]

    def load(self, rows: Any) -> None:
        """Load what an earlier mgr has reported: the rows of `to_json`."""
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, list) and len(row) == 3 and row[0] in KINDS \
                    and isinstance(row[1], str) and isinstance(row[2], (int, float)):
                self._reported[row[0], row[1]] = _Trouble(row[0], row[1], float(row[2]), '')

    def events(self, watch: WatchState, context: WatchContext) -> List[Event]:
        names = {pool.id: pool.name for pool in context.osdmap.pools.values()}
        now = {(each.check, each.subject): each for each in _troubles(watch, names, context.now)}
        # Neither a reported host nor its OSDs are reported again while one of its OSDs is slow:
        # its OSDs become slow and recover one by one.
        hosts = {(SLOW, 'host ' + place.host) for osd, place in watch.places.items()
                 if (SLOW, 'osd.%d' % osd) in now}
        of_reported = {(SLOW, 'osd.%d' % osd) for osd, place in watch.places.items()
                       if (SLOW, 'host ' + place.host) in self._reported}
        now.update({key: self._reported[key] for key in hosts & self._reported.keys() - now.keys()})
        begun = {key: each for key, each in now.items()
                 if key not in self._reported and not each.host and key not in of_reported}
        ended = {key: each for key, each in self._reported.items() if key not in now}
        self._reported = {
            **{key: each for key, each in self._reported.items() if key in now}, **begun}
        return [Event(KINDS[each.check], _begin(each, watch, context), each.why)
                for each in begun.values()] + \
            [Event(KINDS[each.check], _end(each), _end_reason(each, watch, context))
             for each in ended.values()]


def _troubles(watch: WatchState, pool_names: Mapping[int, str], now: float) -> List[_Trouble]:
    found: List[_Trouble] = []
    if watch.laggy.raised:
        first = watch.laggy.suspects[0] if watch.laggy.suspects else None
        found.append(_Trouble(LAGGY, 'PGs', watch.laggy.since,
                              'osd.%d: %s' % (first.osd, first.why) if first else ''))
    host_of: Dict[int, str] = {}
    for host in watch.slow.hosts():
        found.append(_Trouble(SLOW, 'host ' + host.host, host.since, host.why))
        host_of.update({osd: host.host for osd in host.osds})
    found += [_Trouble(SLOW, 'osd.%d' % each.osd, each.since, each.why, host_of.get(each.osd, ''))
              for each in _slow(watch, now)]
    found += [_Trouble(CHRONIC, 'osd.%d' % osd, each.since, each.why)
              for osd, each in watch.slow.chronic.standing.items()]
    for pool_id, kind, since in watch.pools.slow():
        if pool_id in pool_names:
            found.append(_Trouble(LATENCY, '%s of pool %s' % (kind, pool_names[pool_id]), since,
                                  _late_text(watch.pools.latency(pool_id), kind)))
    return found


def _begin(trouble: _Trouble, watch: WatchState, context: WatchContext) -> str:
    if trouble.check == LAGGY:
        return _laggy_summary(watch, context)
    if trouble.check == CHRONIC:
        return trouble.subject + ' is slow again and again'
    return trouble.subject + (' is slow' if trouble.check == SLOW
                              else ' are slower than their baseline')


def _end_reason(trouble: _Trouble, watch: WatchState, context: WatchContext) -> str:
    after = 'after %s' % _ago(context, trouble.since)
    unjudged = {'osd.%d' % osd: why for osd, why in watch.slow.chronic.unjudged.items()}
    if trouble.check == CHRONIC and trouble.subject in unjudged:
        return '%s: %s' % (after, unjudged[trouble.subject])
    return after


def _end(trouble: _Trouble) -> str:
    if trouble.check == LAGGY:
        return 'no PG is laggy anymore'
    if trouble.check == CHRONIC:
        return trouble.subject + ' is no longer slow again and again'
    return trouble.subject + (' is no longer slow' if trouble.check == SLOW
                              else ' are back at their baseline')
