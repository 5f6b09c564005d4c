# SPDX-License-Identifier: LGPL-2.1-or-later
"""The texts: the test environment, the table of medians, and the seconds of the bursts."""

import math
import os
import statistics
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from qa.cluster.samples import KINDS
from qa.demo.text import bytes_text, columns

from .burst import verdict
from .clients import MANY, ONE
from .epochs import CAUSES, NEAR_SECONDS
from .run import BALANCE, BURST, EXPAND, IDLE, MOVE, QUIET, SLOW_FACTOR
from .settings import (BALANCER, DRIVES, OPERATION_BYTES, READ_FRACTION, Settings)

Results = Sequence[Mapping[str, Any]]
PERCENTILES = {'p50': 'p50', 'p95': 'p95', 'p99': 'p99', 'p999': 'p99.9', 'max': 'max'}

#: Clients that wait for each operation before the next one.
ONE_IN_FLIGHT = [f'{ONE} {operation}' for operation in KINDS]

OVER = {'over_100_ms': 'over 100 ms', 'over_1_s': 'over 1 s'}


def introduction(settings: Settings, repetitions: int, drives: Sequence[str],
                 object_kib: Sequence[int], mib: Optional[int]) -> str:
    """The measured quantities and the test environment."""
    data = f'{settings.objects}' if mib is None else f'{mib} MiB in'
    k, m = settings.erasure
    ones = 2 * settings.ones
    balancer = ', '.join(f'{name}={value}' for name, value in BALANCER.items())
    return '\n'.join([
        f'{settings.release}: {settings.osds} -> {settings.osds + settings.added} OSDs, two a '
        f'host; pools of 3 copies ({settings.pgs} PGs) and of erasure code {k}+{m} '
        f'({settings.erasure_pgs} PGs), each of {data} objects of '
        f'{" or ".join(map(str, object_kib))} KiB; failure domain host; {repetitions} repetitions.',
        f'Clients: 2 with many operations in flight, {settings.many_rate:g}/s each, and {ones} '
        f'with one at a time, {settings.one_rate:g}/s each; {OPERATION_BYTES // 1024} KiB, '
        f'{READ_FRACTION:.0%} reads.',
        f'The new OSDs\' processes start before the quiet phase. Then, for each arm alike, the '
        f'balancer runs until it finds nothing more ({balancer}).',
        f'perfguard\'s options: {_options(settings.options)}; '
        f'paxos_propose_interval {settings.propose_seconds:g} s; osd_recovery_sleep_hdd '
        + ' or '.join(f'{DRIVES[kind]} s ({kind})' for kind in drives) + '.',
        f'This machine has {os.cpu_count()} cores, which all daemons and clients share, and the '
        'OSDs keep data in memory:',
        'that, and not disks or networks, sets the limits. Compare arms of one run, not runs of '
        'two machines.'])


def _options(options: Mapping[str, str]) -> str:
    return ', '.join(f'{key}={value}' for key, value in options.items()) or 'the defaults'


# -- the table

def table(results: Results) -> str:
    """Medians over the repetitions, a column or two for each arm and scenario."""
    groups = _groups(results)
    if not groups:
        return 'no run is complete'
    rows = [['', *(cell for name, _ in groups for cell in (name, ''))]]
    if any('latency' in run for _, runs in groups for run in runs):
        rows += _client_rows(groups)
    rows += [[title, *_second(groups, value)] for title, value in FACTS]
    return '\n'.join(columns(rows))


def _client_rows(groups: Sequence[Tuple[str, Results]]) -> List[List[str]]:
    rows = [['client latency, ms', *['quiet', 'move'] * len(groups)]]
    for kind in [f'{kind} {operation}' for kind in (MANY, ONE) for operation in KINDS] + ['all']:
        rows += [[f'{_client(kind)}  {title}',
                  *(_latency(runs, span, kind, key) for _, runs in groups
                    for span in (QUIET, MOVE))]
                 for key, title in PERCENTILES.items()]
    rows += [[f'operations {title}',
              *(_latency(runs, span, 'all', key) for _, runs in groups for span in (QUIET, MOVE))]
             for key, title in OVER.items()]
    return [*rows, ['p99 of all, move / quiet', *_second(groups, _p99_ratio)]]


def _groups(results: Results) -> List[Tuple[str, Results]]:
    """The finished runs of each arm and scenario, in the order of their first appearance."""
    groups: Dict[str, List[Mapping[str, Any]]] = {}
    for result in results:
        if 'error' not in result:
            suffix = '' if result['scenario'] not in (IDLE, BURST) else f', {result["scenario"]}'
            groups.setdefault(result['arm'] + suffix, []).append(result)
    return list(groups.items())


def _client(kind: str) -> str:
    name, _, operation = kind.partition(' ')
    return f'{name} in flight, {operation}' if operation else 'all'


def _second(groups: Sequence[Tuple[str, Results]], value: Callable[[Results], str]) -> List[str]:
    return [cell for _, runs in groups for cell in ('', value(runs))]


def _latency(runs: Results, span: str, kind: str, key: str) -> str:
    values = [run['latency'][span][kind].get(key) for run in runs if 'latency' in run]
    found = [value for value in values if value is not None]
    if not found:
        return '-'
    median = statistics.median(found)
    return f'{median:.0f}' if key in OVER else _number(median)


def _number(value: float) -> str:
    return f'{value:.1f}' if value < 100 else f'{value:.0f}'


def _p99_ratio(runs: Results) -> str:
    ratios = _ratios(runs, 'p99')
    return f'{statistics.median(ratios):.2f}' if ratios else '-'


def _ratios(runs: Results, key: str, kind: str = 'all') -> List[float]:
    return [run['latency'][MOVE][kind][key] / run['latency'][QUIET][kind][key]
            for run in runs if 'latency' in run]


def ratios(results: Results) -> str:
    """One line per arm: how much slower clients were while data moved, and for how long."""
    rows = [['moving / quiet', 'p99', 'p99.9', 'seconds', 'over 100 ms', 'over 1 s',
             *(f'p99, {_client(kind)}' for kind in ONE_IN_FLIGHT)]]
    for name, runs in _groups(results):
        if any('latency' in run for run in runs):
            rows.append([name, *(_range(_ratios(runs, key)) for key in ('p99', 'p999')),
                         _range([run['seconds'][MOVE] for run in runs], 0),
                         *(_latency(runs, MOVE, 'all', key) for key in OVER),
                         *(_range(_ratios(runs, 'p99', kind)) for kind in ONE_IN_FLIGHT)])
    return '\n'.join(columns(rows)) if len(rows) > 1 else ''


def _range(values: Sequence[float], digits: int = 2) -> str:
    """The median and the range of all values."""
    median, *ends = (f'{value:.{digits}f}' for value in (
        statistics.median(values), min(values), max(values)))
    return median if len(values) == 1 else f'{median} ({ends[0]} to {ends[1]})'


def _median(runs: Results, value: Callable[[Mapping[str, Any]], float]) -> float:
    return statistics.median(value(run) for run in runs)


def _worst_deviation(runs: Results, when: str) -> str:
    pools = runs[0][when]
    return ', '.join(f'{_median(runs, lambda run: run[when][pool]):.1f}' for pool in pools)


def _count(runs: Results, key: str) -> str:
    loaded = [run['latency'] for run in runs if 'latency' in run]
    return f'{sum(int(run[span]["all"][key]) for run in loaded for span in (QUIET, MOVE))}' \
        if loaded else '-'


FACTS: List[Tuple[str, Callable[[Results], str]]] = [
    ('seconds to the end', lambda runs: f'{_median(runs, lambda r: r["seconds"][MOVE]):.0f}'),
    ('  of the expansion', lambda runs: f'{_median(runs, lambda r: r["seconds"][EXPAND]):.0f}'),
    ('  of the balancer after it',
     lambda runs: f'{_median(runs, lambda r: r["seconds"][BALANCE]):.0f}'),
    ('bytes moved', lambda runs: bytes_text(_median(runs, lambda r: _moved(r)))),
    ('  by the balancer',
     lambda runs: bytes_text(_median(runs, lambda r: r['pushed_bytes'][BALANCE]))),
    ('  of the new OSDs\' share',
     lambda runs: f'{_median(runs, lambda r: _moved(r) / r["least_bytes"]):.2f}'),
    ('osdmap epochs', lambda runs: f'{_median(runs, lambda r: r["epochs"]):.0f}'),
    ('  of the expansion', lambda runs: f'{_median(runs, lambda r: r["causes"]["total"]):.0f}'),
    ('  for each PG released', lambda runs: _per_pg(runs)),
    *[(f'    {cause}', lambda runs, cause=cause: _cause(runs, cause))
      for cause in CAUSES],
    ('  from release to up_thru, p50/90/99, ms', lambda runs: _waits(runs)),
    (f'operations over {SLOW_FACTOR:g} x quiet p99, %', lambda runs: _slow_at_rest(runs)),
    *[('', lambda runs, seconds=seconds: _slow(runs, seconds)) for seconds in NEAR_SECONDS],
    ('PGs from ideal at most, by pool', lambda runs: _worst_deviation(runs, 'deviation')),
    ('  before the balancer', lambda runs: _worst_deviation(runs, 'deviation_expanded')),
    ('client errors', lambda runs: _count(runs, 'errors')),
    ('client operations without end', lambda runs: _count(runs, 'unfinished')),
    ('repetitions', lambda runs: str(len(runs))),
]


def _per_pg(runs: Results) -> str:
    return f'{_median(runs, lambda run: run["causes"]["per_pg"]):.2f}' \
        if all(run['causes']['released'] for run in runs) else '-'


def _cause(runs: Results, cause: str) -> str:
    """How often the cause occurred, and in how many epochs."""
    return ' in '.join(f'{_median(runs, lambda run: run["causes"][key].get(cause, 0)):.0f}'
                       for key in ('events', 'epochs'))


def _waits(runs: Results) -> str:
    return '/'.join(f'{1000 * _median(runs, lambda run: run["causes"]["waits"][key]):.0f}'
                    for key in ('p50', 'p90', 'p99'))


def _slow(runs: Results, within: float) -> str:
    """The share of slow operations so near to an epoch, and of all operations there."""
    rows = [row for run in runs for row in run.get('slow', ()) if row['within'] == within]
    if not rows:
        return '-'
    slow, operations = (100 * statistics.median(row[key] for row in rows)
                        for key in ('slow', 'operations'))
    where = 'later' if math.isinf(within) else f'up to {within:g} s after an epoch'
    return f'{slow:.2f} of {operations:.0f} {where}'


def _slow_at_rest(runs: Results) -> str:
    shares = [run['slow_at_rest'] for run in runs if 'slow_at_rest' in run]
    return f'{100 * statistics.median(shares):.2f} at rest' if shares else '-'


def _moved(result: Mapping[str, Any]) -> float:
    return float(result['pushed_bytes'][EXPAND] + result['pushed_bytes'][BALANCE])


# -- bursts

def bursts(results: Results) -> str:
    """The seconds of each burst, and whether perfguard slowed down and recovered."""
    return '\n'.join(line for result in results
                     if result['scenario'] == BURST and 'error' not in result
                     for line in _burst(result))


def _burst(result: Mapping[str, Any]) -> List[str]:
    timeline = [moment for moment in result['timeline'] if moment['phase'] == 'RELEASING']
    if not timeline:
        return [f'{result["arm"]}: nothing was released']
    begin = timeline[0]['time']
    rows = [['second', 'limit', 'in flight', 'released', 'p99, ms', 'burst']]
    rows += [[f'{moment["time"] - begin:.0f}', str(moment['limit']), str(moment['in_flight']),
              str(moment['released']), _number(moment['p99_ms']),
              'burst' if moment['burst'] else ''] for moment in timeline]
    found = verdict(result['timeline'])
    return ['', f'{result["arm"]}:', *columns(rows), ' '.join([
        f'limit {found.limit_before} before, {found.lowest_limit} at least in the burst; lower',
        _after(found.yielded_after), 'its begin; as before', _after(found.came_back_after),
        'its end'])]


def _after(seconds: Optional[float]) -> str:
    return 'never after' if seconds is None else f'{seconds:.0f} s after'


def failures(results: Results) -> List[str]:
    """The runs that did not complete."""
    return [f'{result["arm"]}, {result["scenario"]}: {result["error"]}'
            for result in results if 'error' in result]
