# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tables and texts that commands show of probes."""
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cluster.types import Json
from ..tables import table
from ..text import bytes_text, plural, seconds_text, time_text
from .jobs import size_text
from .stats import figure_text
from .types import READING, WRITING

#: Columns of latency, in ms: title, key of fio.
_PERCENTILES = (('p50', '50.000000'), ('p95', '95.000000'), ('p99', '99.000000'),
                ('p99.9', '99.900000'))
_LEFT = ('job', 'part', 'of', '')


class _Row(NamedTuple):
    """One job in one direction, on one OSD where OSDs are probed."""
    job: str
    osd: Optional[int]
    part: str
    direction: str


def show(document: Json) -> str:
    """The measurements of a probe as text, from the document of `Probed.details`."""
    lines = ['probe %s: %s' % (document['id'], ', '.join(filter(None, (
        str(document['state']), document.get('profile', ''), document.get('target', ''),
        time_text(document['timestamp'])))))]
    rows = _rows(document['jobs'])
    lines += ['', _table(rows), '', 'Latency in ms, from the '
              'repetition with the median IOPS.'] if rows else ['no measurements']
    if document['client_limited']:
        lines.append('client_limited: the CPU of the probe process was the bottleneck; '
                     'the cluster may be faster')
    lines += ['%s: %s' % (job['jobname'], job['first_error'])
              for job in document['jobs'] if job['first_error']]
    if document['verdict']:
        lines += ['', 'verdict: %s' % document['verdict']]
    return '\n'.join([*lines, *('- ' + text for text in document.get('messages', ()))])


def _rows(jobs: Sequence[Json]) -> Dict[_Row, List[Tuple[Json, Json]]]:
    """Row of the table -> for each of its streams, its entry in fio's format and the part of this
    entry on the direction. A direction in which all operations failed has a row, too."""
    rows: Dict[_Row, List[Tuple[Json, Json]]] = {}
    for job in jobs:
        for name in ('read', 'write'):
            if job[name]['total_ios'] or (job['errors'] and _has_direction(job, name)):
                row = _Row(job['jobname'], job['osd'], job['part'], name)
                rows.setdefault(row, []).append((job, job[name]))
    return rows


def _has_direction(job: Json, name: str) -> bool:
    return job['job options']['rw'] in (READING if name == 'read' else WRITING)


def _table(rows: Mapping[_Row, Sequence[Tuple[Json, Json]]]) -> str:
    by_part, by_osd = any(row.part for row in rows), any(row.osd is not None for row in rows)
    columns = ['job', *(['of'] if by_osd else []), *(['part'] if by_part else []), '', 'IOPS',
               'MB/s', 'spread', 'mean', *(title for title, _ in _PERCENTILES), 'max', 'errors']
    lines = [[row.job, *(['osd.%s' % row.osd] if by_osd else []), *([row.part] if by_part else []),
              row.direction, *_numbers(row.direction, streams)] for row, streams in rows.items()]
    return table(columns, lines, left=[name for name in _LEFT if name in columns])


def _numbers(direction: str, streams: Sequence[Tuple[Json, Json]]) -> List[str]:
    """The cells of a row from IOPS to errors, for all streams together. Each percentile is that of
    the stream with the highest. `streams`: as in `_rows`."""
    stats = [stat for _, stat in streams]
    ios = sum(stat['total_ios'] for stat in stats)
    mean = sum(stat['total_ios'] * stat['lat_ns']['mean'] for stat in stats) / ios if ios else 0.0
    percentiles = [max(stat['clat_ns'].get('percentile', {}).get(key, 0) for stat in stats)
                   for _, key in _PERCENTILES]
    return [_rate(sum(stat['iops'] for stat in stats)),
            '%.1f' % (sum(stat['bw_bytes'] for stat in stats) / 1e6), _spread(direction, streams),
            *(_ms(value) for value in (mean, *percentiles,
                                       max(stat['lat_ns']['max'] for stat in stats))),
            str(sum(job['errors'] for job, _ in streams))]


def _spread(direction: str, streams: Sequence[Tuple[Json, Json]]) -> str:
    """Difference of the IOPS of the highest and the lowest repetition, in per cent of the lowest;
    "-" for a single repetition, or if one has no operations."""
    by_repetition = zip(*(job['repetitions'] for job, _ in streams))
    iops = [sum(stream[direction]['iops'] for stream in repetition if stream[direction])
            for repetition in by_repetition]
    return '%.0f %%' % (100 * (max(iops) / min(iops) - 1)) if len(iops) > 1 and min(iops) else '-'


def _ms(value_ns: float) -> str:
    value = value_ns / 1e6
    if not value:
        return '-'
    return '%.0f' % value if value >= 100 else '%.3g' % value


def runs(data: Json) -> str:
    """All probes as a table. `data`: {"probes": [{"id", "state", "profile", "target", "trigger",
    "started", "ended", "verdict"}]}; times in seconds since the epoch, 0: not yet."""
    if not data['probes']:
        return 'no probes'
    columns = ('id', 'state', 'profile', 'measured', 'by', 'started', 'took', 'verdict')
    return table(columns, [
        (row['id'], row['state'], row['profile'] or '-', row['target'], row['trigger'],
         time_text(row['started']),
         seconds_text(row['ended'] - row['started']) if row['started'] and row['ended'] else '',
         row['verdict']) for row in data['probes']],
        left=('state', 'profile', 'measured', 'by', 'started', 'verdict'))


def preview(data: Json) -> str:
    """What --dry-run shows, from the data of `preview_json`."""
    columns = ('job', 'rw', 'bs', 'depth', 'streams', 'objects', 'size', 'seconds')
    jobs = table(columns, [
        (job['name'], job['rw'], size_text(int(job['bs'])), job['iodepth'], job['numjobs'],
         job['nrfiles'], size_text(int(job['size'])), '%s + %s' % (job['ramp_time'],
                                                                   job['runtime']))
        for job in data['jobs']], left=('job', 'rw'))
    transfer = ('an unlimited number of bytes' if data['transfer_bytes'] is None
                else 'at most ' + bytes_text(data['transfer_bytes']))
    takes = 'takes about %s, at most %s' % (seconds_text(data['seconds']),
                                            seconds_text(data['limit_seconds']))
    # The bench of an OSD has no jobs, and removes what it has written before the next one begins.
    lines = [
        'measures %s: %s, %s of each:' % (data['target'], plural(data['steps'], 'measurement'),
                                          plural(data['repeat'], 'repetition')),
        '', jobs, '', takes,
        'writes %s (%s, with all replicas %s) and removes them at the end' % (
            plural(data['objects'], 'object'), bytes_text(data['prefill_bytes']),
            bytes_text(data['stored_bytes'])),
        'reads and writes %s' % transfer] if data['jobs'] else [
        "runs the OSDs' own bench (%s) on one OSD at a time, %s:" % (
            data['target'], plural(data['repeat'], 'repetition')), '', takes,
        'writes %s first, then %s, and stores at most %s at a time' % (
            bytes_text(data['prefill_bytes']), transfer, bytes_text(data['stored_bytes']))]
    return '\n'.join([*lines, *data['remarks'],
                      *('refused: ' + text for text in data['refusals'])])


def started(data: Json) -> str:
    """What "probe run" shows: the id of the run, or its preview."""
    if data['dry_run']:
        return preview(data)
    return '\n'.join(['probe %d has begun; see "perfguard probe show %d"' % (
        data['id'], data['id']), *data['remarks']])


def details(data: Json) -> str:
    """What "probe show" shows: the measurements of a probe, and all that is derived from them.
    `data`: as Probed.details."""
    lines = [show(data)]
    if data['expected']:
        lines += ['', *('%s: %s (%s)' % (expectation['label'], expectation['verdict'],
                                         expectation['why'])
                        for expectation in data['expected'])]
    if data['osds']:
        lines += ['', _ranks(data)]
    for curve in data['curves']:
        lines += ['', _curve(curve)]
    for scaling in data['scalings']:
        lines += ['', _scale(scaling)]
    if data['conditions']:
        lines += ['', 'disturbed by: ' + ', '.join(data['conditions'])]
    if data['findings']:
        lines += ['', *('! ' + text for text in data['findings'])]
    return '\n'.join(lines)


def _ranks(data: Json) -> str:
    """The OSDs of a probe that were measured one by one, as a table, the slowest first."""
    # An OSD without a ratio is sorted as one that is as fast as its peers.
    rows = [('osd.%d' % row['osd'], row['host'], row['device_class'], row['job'],
             row['direction'], '%.0f' % row['iops'],
             '%.3f' % (row['latency_ns'] / 1e6) if row['latency_ns'] else '-',
             '-' if row['ratio'] is None else '%.2f' % row['ratio'],
             'slow' if row['outlier'] else '')
            for row in sorted(data['osds'], key=lambda row: row['ratio'] or 1.0)]
    return table(('OSD', 'host', 'class', 'job', '', 'IOPS', 'ms', 'ratio to peers', 'remarks'),
                 rows, left=('OSD', 'host', 'class', 'job', '', 'remarks'))


def comparison(data: Json) -> str:
    rows = [(line['job'], line['verdict'], line['why']) for line in data['lines']]
    return '\n'.join([
        'probe %d compared with probe %d: %s' % (data['after'], data['before'], data['verdict']),
        '', table(('job', 'verdict', 'why'), rows, left=('job', 'verdict', 'why')),
        *('- ' + note for note in data['notes'])])


def _curve(curve: Json) -> str:
    """A curve as a table, with its knee in words."""
    marks = {curve['peak_depth']: 'peak', curve['knee_depth']: 'knee'}
    rows = [(point['depth'], *_measure(point['iops'], _rate), *_measure(point['latency_ns'], _ms),
             _ms(point['p99_ns']['median']), marks.get(point['depth'], ''))
            for point in curve['points']]
    # With a space, since PrettyTable refuses two columns of one name.
    columns = ('depth', 'IOPS', 'low', 'high', 'mean ms', 'low ', 'high ', 'p99 ms', 'remarks')
    lines = [curve['label'], '', table(columns, rows, left=('remarks',)), '']
    knee = next(point for point in curve['points'] if point['depth'] == curve['knee_depth'])
    lines.append('knee: %s IOPS at %s ms (depth %d)' % (
        _rate(knee['iops']['median']), _ms(knee['latency_ns']['median']), knee['depth']))
    price = curve['last_tenth']
    if price is not None:
        lines.append('the last 10 %% of throughput, from %s to %s IOPS, raise latency %.1f times, '
                     'from %s to %s ms' % (
                         _rate(price['from_iops']), _rate(price['to_iops']), price['times'],
                         _ms(price['from_latency_ns']), _ms(price['to_latency_ns'])))
    return '\n'.join([*lines, *('- ' + note for note in curve['notes'])])


def _scale(scaling: Json) -> str:
    """The throughput with more and more OSDs as a table."""
    by_host = any(point['hosts'] for point in scaling['points'])
    rows = [(*([point['hosts']] if by_host else []), point['osds'],
             *_measure(point['iops'], _rate), '%.0f %%' % (100 * point['linear']),
             _ms(point['latency_ns']['median'])) for point in scaling['points']]
    heads = (*(['hosts'] if by_host else []), 'OSDs', 'IOPS', 'low', 'high', 'of linear', 'mean ms')
    lines = [scaling['label'], '', table(heads, rows)]
    return '\n'.join([*lines, *(['', *('- ' + note for note in scaling['notes'])]
                                if scaling['notes'] else [])])


def _measure(measure: Json, text: Callable[[float], str]) -> List[str]:
    return [text(measure[name]) for name in ('median', 'low', 'high')]


def _rate(iops: float) -> str:
    return '%.0f' % iops if iops >= 100 else '%.3g' % iops


def probes(data: Json) -> str:
    return '\n\n'.join((runs(data), baselines(data), schedules(data)))


def baselines(data: Json) -> str:
    """The baselines as a table."""
    if not data['baselines']:
        return 'no baselines (add one with "probe baseline <id>")'
    rows = [(baseline['id'], baseline['target'], baseline['profile'],
             '; '.join('probe %d is slower: %s' % (slow['probe'], slow['why'][0])
                       for slow in baseline['slower'])) for baseline in data['baselines']]
    return table(('baseline', 'measured', 'profile', 'remarks'), rows,
                 left=('measured', 'profile', 'remarks'))


def schedules(data: Json) -> str:
    """The schedules as a table."""
    if not data['schedules']:
        return 'no schedules (add one with "probe schedule <name>")'
    rows = [(schedule['name'], schedule['begin_time'], schedule['end_time'],
             schedule['begin_weekday'], schedule['end_weekday'], schedule['every_days'],
             ' '.join('%s=%s' % word for word in sorted(schedule['probe'].items())),
             schedule['refused'])
            for schedule in data['schedules']]
    return table(('schedule', 'from', 'to', 'from day', 'to day', 'every', 'probe', 'remarks'),
                 rows, left=('schedule', 'probe', 'remarks'))


def capacity(data: Json) -> str:
    """How much of its capacity each pool uses, as a table. `data`: as Probed.capacity_json."""
    if not data['pools']:
        return 'no pools'
    return table(('pool', 'p99 ms', 'serves ops/s', 'now ops/s', 'others', 'used', 'busiest hour',
                  'full in', 'probe', 'remarks'), [
        (row['pool'], '%g' % row['p99_ms'], _range(row['capacity']), figure_text(row['ops']),
         figure_text(row['others']), _used_text(row), '-' if row['busiest'] is None
         else '%.0f %%' % (100 * row['busiest']), seconds_text(row['full_seconds'])
         if row['full_seconds'] is not None else '-', str(row['probe'] or '-'),
         '; '.join(remark['text'] for remark in row['remarks'])) for row in data['pools']],
        left=('pool', 'remarks'))


def _used_text(row: Json) -> str:
    used = row['used']
    return '-' if used is None else '%.0f %% (%.0f to %.0f %%)' % tuple(
        100 * used[part] for part in ('median', 'low', 'high'))


def expected(data: Json) -> str:
    """The tables of Probed.expected_json: one row for each pool and job, one for the capacity of
    each pool, and a line on device classes without figures."""
    rows = [_expected_row(pool, row) for pool in data['pools'] for row in pool['expected']]
    lines = [table(('pool', 'class', 'OSDs', 'copies', 'job', 'expected', 'measured', 'probe',
                    'verdict'), rows, left=('pool', 'class', 'job', 'verdict'))] if rows else []
    return '\n'.join([*lines, *_capacity(data['capacity']), *_without_figures(data['pools'])])


def _expected_row(pool: Json, row: Json) -> List[str]:
    """The cells of the table of expected values for one pool and one job."""
    job = '%s %s, iodepth %d' % (row['direction'], size_text(row['bs']), row['iodepth'])
    factor, unit = (1e6, 'MB/s') if row['unit'] == 'bytes_per_second' else (1.0, 'IOPS')
    low, high, measured = [None if row[key] is None else figure_text(row[key] / factor)
                           for key in ('low', 'high', 'measured')]
    return [pool['pool'] or '(cluster)', pool['device_class'], str(pool['osds']), pool['copies'],
            job, '%s to %s %s' % (low, high, unit),
            '-' if measured is None else '%s %s' % (measured, unit),
            str(row['probe'] or '-'), row['verdict'] or '-']


def _range(bounds: Optional[Json]) -> str:
    return '-' if bounds is None else '%s to %s' % (
        figure_text(bounds['low']), figure_text(bounds['high']))


def _whole(bounds: Json) -> str:
    return '{:,d} to {:,d}'.format(int(bounds['low']), int(bounds['high']))


def _without_figures(pools: Sequence[Json]) -> List[str]:
    """Lines that name the pools for whose device class there are no expected values."""
    by_reason: Dict[str, List[str]] = {}
    for pool in pools:
        if not pool['expected']:
            by_reason.setdefault(pool['device_class'] or '(mixed or none)', []).append(
                pool['pool'] or '(cluster)')
    return ['no published values for device class %s: %s' % (name, ', '.join(pools))
            for name, pools in sorted(by_reason.items())]


def _capacity(pools: Sequence[Json]) -> List[str]:
    """The lines of the table of what pools are expected to serve to all clients; empty if no
    figures are known for any pool."""
    rows = [(pool['pool'], pool['device_class'], pool['osds'], pool['copies'],
             figure_text(pool['usable_tib']), _range(pool['read_iops']), _range(pool['write_iops']),
             _range(pool['write_iops_per_tib']), _whole(pool['linux_vms']),
             _whole(pool['windows_vms'])) for pool in pools if pool['read_iops']]
    columns = ('pool', 'class', 'OSDs', 'copies', 'usable TiB', '4k reads/s', '4k writes/s',
               'writes/s per TiB', 'Linux VMs', 'Windows VMs')
    return ['', table(columns, rows, left=('pool', 'class')),
            'Pools that share OSDs share their operations. A TiB is a CRUSH weight of 1.', ''
            ] if rows else []
