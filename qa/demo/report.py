# SPDX-License-Identifier: LGPL-2.1-or-later
"""Introduction and results of the demonstration."""

from pathlib import Path
from typing import Any, List, Mapping, Sequence

from .expansion import PERFGUARD, STOCK, Outcome
from .gauge import Latency
from .settings import OPERATION_BYTES, PROBE_PG_NUM, READ_FRACTION, DemoSettings
from .text import bytes_text, columns

#: One run of "./demo.sh --compare stock".
RECORDED_SETTINGS = DemoSettings('pacific', 8, 20, 300, 20000, 128, 1.0)
RECORDED = '''
The same expansion without perfguard, as recorded on 23 November 2026 (two idle cores): 37 s; p99
of clients 2.3 ms before and 1,960 ms during it, 365 of 11,157 operations over 1 s.
With perfguard in the same run: 245 s; 2.2 and 9.9 ms, none over 1 s.
The option --compare stock measures both here.'''

_TITLES = {PERFGUARD: 'with perfguard', STOCK: 'without'}


def introduction(settings: DemoSettings) -> str:
    """Text on the cluster and the expansion."""
    return '\n'.join([
        f'A Ceph cluster ({settings.release}) of {settings.osds} OSDs grows by '
        f'{settings.added_osds} while clients read and write.',
        'All daemons run on this machine and keep data in memory. This demonstrates the',
        'mechanism, not the speed of hardware.'])


def tables(outcomes: Sequence[Outcome]) -> str:
    """Tables of client latency by phase, and of the cost of the expansion."""
    return '\n'.join(['', *_latency_table(outcomes), '', *_facts_table(outcomes)])


def _latency_table(outcomes: Sequence[Outcome]) -> List[str]:
    spans = [(outcome, name) for outcome in outcomes for name in outcome.latency]
    found = [outcome.latency[name] for outcome, name in spans]

    def times(title: str, field: str) -> List[str]:
        return _row(title, [_ms(latency, field) for latency in found])

    def counts(title: str, field: str) -> List[str]:
        return _row(title, [str(getattr(latency, field)) for latency in found])

    lines = columns([
        _row('', [_TITLES[outcome.arm] if name == next(iter(outcome.latency)) else ''
                  for outcome, name in spans]),
        _row('client latency, ms', [name for _, name in spans]),
        times('p50', 'p50'), times('p95', 'p95'), times('p99', 'p99'), times('max', 'max'),
        times('p99 of reads', 'read_p99'), times('p99 of writes', 'write_p99'),
        counts('operations', 'operations'), counts('  over 100 ms', 'over_100_ms'),
        counts('  over 1 s', 'over_1_s'),
        _row('seconds', [f'{latency.seconds:.0f}' for latency in found])])
    return [*lines, f'({OPERATION_BYTES // 1024} KiB operations, {READ_FRACTION:.0%} of them '
                    'reads, at a fixed rate; latency includes the delay of late starts)']


def _row(title: str, values: Sequence[str]) -> List[str]:
    return [title, *values]


def _ms(latency: Latency, field: str) -> str:
    if not latency.operations:
        return '-'
    value = getattr(latency, field)
    return f'{value:.1f}' if value < 100 else f'{value:.0f}'


def _facts_table(outcomes: Sequence[Outcome]) -> List[str]:
    steps: List[str] = []
    for outcome in outcomes:
        steps += [step for step in outcome.seconds if step not in steps]
    rows = [_row('', [_TITLES[outcome.arm] for outcome in outcomes])]
    rows.append(_row('PGs in all, moved, kept', [_pinned(outcome) for outcome in outcomes]))
    rows.append(_row('bytes moved (counted by the OSDs)',
                     [bytes_text(outcome.pushed_bytes) for outcome in outcomes]))
    for step in steps:
        rows.append(_row(f'time: {step}', [
            f'{outcome.seconds[step]:.0f} s' if step in outcome.seconds else '-'
            for outcome in outcomes]))
    rows.append(_row('osdmap epochs', [str(outcome.epochs) for outcome in outcomes]))
    rows.append(_row('misplaced at most (PGs report each 5 s)',
                     [f'{outcome.misplaced_max:.1%}' for outcome in outcomes]))
    rows.append(_row('client errors', [str(outcome.errors) for outcome in outcomes]))
    return columns(rows)


def speed_text(outcome: Outcome, settings: DemoSettings) -> str:
    """The verdict of ``perfguard probe compare``, and the figure of each job."""
    title = '\nSpeed of the quiet cluster after the expansion: '
    if outcome.speed is None:
        return title + 'not compared; ' + '; '.join(outcome.failed_probes)
    return '\n'.join([
        title + outcome.speed['verdict'], *map(_speed_line, outcome.speed['lines']),
        f'(the same pool of {PROBE_PG_NUM} PGs, on {settings.osds} OSDs before and '
        f'{settings.osds + settings.added_osds} after; load average of this machine: '
        + ' and '.join(f'{load:.1f}' for load in outcome.loads) + ')'])


def _speed_line(line: Mapping[str, Any]) -> str:
    iops = line['iops']
    return (f'  {line["job"]}: {iops["ratio"]:.2f} times the IOPS (95 % interval: '
            f'{iops["low"]:.2f} to {iops["high"]:.2f}); {iops["a"]:,.0f} before, '
            f'{iops["b"]:,.0f} after')


def _pinned(outcome: Outcome) -> str:
    if outcome.campaign is None:
        return '-'
    campaign = outcome.campaign
    return f'{campaign["total"]}, {campaign["released"]}, {campaign["kept"]}'


def without_perfguard(settings: DemoSettings) -> str:
    """What the same expansion does without perfguard: as recorded, or how to measure it."""
    if settings != RECORDED_SETTINGS:
        return '\nThe option --compare stock measures the same expansion without perfguard.'
    return RECORDED


def how_to_go_on(directory: Path, page: str) -> str:
    """Commands for a cluster that is kept."""
    name, verb = directory.name, '/usr/bin/python3 -m qa.cluster'
    return '\n'.join([
        '', 'The cluster is still up, without the clients. From this directory:',
        f'  ceph -c {directory}/ceph.conf perfguard status',
        f'  {verb} ceph --name {name} perfguard campaign ls   (the ceph command of the release)',
        f'  {verb} load --name {name} demo',
        'perfguard in the dashboard:', page,
        'To end the cluster and remove its files:',
        f'  {verb} down --name {name}'])
