# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics of what the watch sees: the cluster, its pools and OSDs, laggy PGs."""
from typing import Any, Dict, List, Mapping, Sequence

from .text import Sample, joined, labels, seconds

Json = Mapping[str, Any]
Found = Dict[str, List[Sample]]

OPS = ('read', 'write')
OP_LABELS = {op: labels(op=op) for op in (*OPS, 'store')}
#: As rows of `pools` name what is slow.
KINDS = {'read': 'reads', 'write': 'writes'}
#: Conditions of PGs by the key that `status` has for each.
CONDITIONS = tuple((name, name + '_pgs') for name in (
    'active_clean', 'laggy', 'wait', 'inactive', 'degraded', 'remapped', 'backfilling',
    'backfill_wait', 'backfill_toofull', 'recovering', 'deep_scrubbing'))


def cluster(signals: Json) -> Found:
    """`signals` of `status`; those of the watch are missing while it cannot make sense of what it
    reads, and all before the first turn."""
    if not signals:
        return {}
    return {
        'pgs': [(labels(state=name), signals[key]) for name, key in CONDITIONS],
        'cluster_pgs': [('', signals['pgs'])],
        'misplaced_ratio': [('', signals['misplaced_ratio'])],
        'slow_ops': [('', signals['slow_ops'])],
        'recovery_bytes_per_second': [('', signals['recovery_bytes_per_second'])],
        'untrimmed_osdmaps': [('', signals.get('untrimmed_osdmaps'))],
        'client_latency_seconds': _by_op(signals, '_ms'),
        'client_latency_p99_seconds': _by_op(signals, '_p99_ms'),
        'client_ops_per_second': [(OP_LABELS[op], signals.get(op + '_rate')) for op in OPS]}


def _by_op(row: Json, suffix: str, who: str = '', ops: Sequence[str] = OPS) -> List[Sample]:
    return [(joined(who, OP_LABELS[op]), seconds(row.get(op + suffix))) for op in ops]


def pools(rows: Sequence[Json]) -> Found:
    """`rows` as `pools` prints them."""
    found: Found = {}
    for row in rows:
        who = labels(pool_id=row['id'], name=row['pool'])
        for name, suffix in (('pool_latency_seconds', '_ms'),
                             ('pool_latency_baseline_seconds', '_baseline_ms'),
                             ('pool_latency_target_seconds', '_target_ms')):
            found.setdefault(name, []).extend(_by_op(row, suffix, who))
        for op in OPS:
            key = joined(who, OP_LABELS[op])
            found.setdefault('pool_ops_per_second', []).append((key, row[op + '_rate']))
            found.setdefault('pool_slow', []).append((key, KINDS[op] in row['slow']))
    return found


def osds(rows: Sequence[Json]) -> Found:
    """`rows` as `osds` prints them."""
    found: Found = {}
    for row in rows:
        who = labels(ceph_daemon='osd.%d' % row['osd'], hostname=row['host'],
                     device_class=row['device_class'])
        found.setdefault('osd_latency_seconds', []).extend(
            _by_op(row, '_ms', who, (*OPS, 'store')))
        found.setdefault('osd_latency_p99_seconds', []).extend(_by_op(row, '_p99_ms', who))
        found.setdefault('osd_ops_per_second', []).extend(
            (joined(who, OP_LABELS[op]), row[op + '_rate']) for op in OPS)
        for name, value in (
                ('osd_slowdown_ratio', row['score']), ('osd_slow', row['slow']),
                ('osd_chronically_slow', row['chronic'] is not None),
                ('osd_slow_time_ratio', row['slow_time_ratio']),
                ('osd_ping_seconds', seconds(row['ping_ms'])),
                ('osd_silent_seconds', row['silent_seconds']),
                ('osd_laggy_pgs', row['pgs'].get('laggy', 0))):
            found.setdefault(name, []).append((who, value))
    return found


def suspects(laggy: Json) -> Found:
    """`laggy` as `laggy` prints it."""
    return {'osd_laggy_suspect_score': [
        (labels(ceph_daemon='osd.%d' % each['osd']), each['score'])
        for each in laggy['suspects']]}
