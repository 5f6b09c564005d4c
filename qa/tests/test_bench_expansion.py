# SPDX-License-Identifier: LGPL-2.1-or-later
"""The expansion bench: its order, its numbers, its table; and that it runs and leaves nothing."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest

from perfguard.options import OPTIONS, Options
from perfguard.rebalance.settings import problems
from qa.bench.expansion import cli, epochs, report
from qa.bench.expansion.arms import FRONTIER, METHODS, PRESETS, STOCK
from qa.bench.expansion.balance import is_done, worst_deviation
from qa.bench.expansion.burst import Verdict, verdict
from qa.bench.expansion.clients import latency
from qa.bench.expansion.settings import (DRIVES, Arm, Settings, alternating, parse_arm,
                                         parse_option)
from qa.cluster.daemons import heed_interrupts
from qa.cluster.patience import patient
from qa.cluster.samples import ERROR, OK, READ, UNFINISHED, WRITE, Sample

CHECKOUT = Path(__file__).resolve().parents[2]


def test_arms_alternate() -> None:
    arms = [parse_arm(name, list(METHODS)) for name in ('stock', 'perfguard')]
    order = ''.join('A' if arm.name == 'stock' else 'B' for _, arm in alternating(arms, 3))
    assert order == 'ABBAAB'
    assert [number for number, _ in alternating(arms, 3)] == [0, 0, 1, 1, 2, 2]


def test_arms_have_options() -> None:
    text = 'perfguard:fast_peering=on:a=b=c'
    assert parse_arm(text, list(METHODS)) == Arm(
        text, 'perfguard', {'fast_peering': 'on', 'a': 'b=c'})


@pytest.mark.parametrize('text', ['', 'none', 'perfguard:a', 'perfguard:=b', 'perfguard:a='])
def test_bad_arms(text: str) -> None:
    with pytest.raises(ValueError):
        parse_arm(text, list(METHODS))


def test_option_without_value() -> None:
    with pytest.raises(ValueError, match="not KEY=VALUE: 'x'"):
        parse_option('x')


def test_worst_deviation() -> None:
    none = 2147483647
    # Seven shards over weights 1, 1, 2: ideal is 1.75, 1.75, 3.5.
    ups = [[0, 1], [0, 2], [0, 2], [none, 0]]
    assert worst_deviation(ups, {0: 1.0, 1: 1.0, 2: 2.0}) == pytest.approx(4 - 1.75)
    assert worst_deviation([[0, 1], [1, 0]], {0: 1.0, 1: 1.0}) == 0
    # An OSD without a PG is the worst of all.
    assert worst_deviation([[0, 1]] * 9, {0: 1.0, 1: 1.0, 2: 1.0}) == pytest.approx(6)


def test_least_bytes_is_the_share_of_the_new() -> None:
    small = Settings('pacific', osds=8, added=4, objects=100)
    assert small.erasure == (2, 1)
    assert small.least_bytes == pytest.approx(100 * 16384 * (3 + 1.5) / 3)
    large = Settings('pacific', osds=12, added=12, objects=100)
    assert large.erasure == (4, 2)
    assert large.least_bytes == pytest.approx(100 * 16384 * (3 + 1.5) / 2)


def test_balancer_is_done_after_another_try() -> None:
    nothing = {'last_optimize_started': 'now', 'optimize_result':
               'Unable to find further optimization, or pool(s) pg_num is decreasing, or '
               'distribution is already perfect'}
    assert is_done(nothing, 'before')
    assert not is_done(nothing, 'now')
    for result in ('', 'Optimization plan created successfully',
                   'Too many objects (0.3 > 0.05) are misplaced; try again later'):
        assert not is_done({**nothing, 'optimize_result': result}, 'before')


def test_latency_by_client_and_operation() -> None:
    samples = {
        'many': [Sample(10.0 + i / 100, float(i + 1), READ, OK) for i in range(100)],
        'one': [Sample(9.99, 7.0, WRITE, OK), Sample(10.0, 8.0, WRITE, OK),
                Sample(10.5, 5000.0, WRITE, UNFINISHED), Sample(10.6, 1.0, WRITE, ERROR),
                Sample(11.0, 9.0, WRITE, OK)]}
    found = latency(samples, 10.0, 11.0)
    assert [found['many read'][name] for name in ('p50', 'p95', 'p99', 'p999', 'max')] \
        == [50, 95, 99, 100, 100]
    assert found['many write']['count'] == 0
    assert found['one write']['count'] == 2 and found['one write']['max'] == 5000
    both = found['all']
    assert (both['count'], both['errors'], both['unfinished']) == (102, 1, 1)
    assert (both['over_100_ms'], both['over_1_s']) == (1, 1)


def moments(limits: List[int], burst: List[int], last: str = 'RELEASING') -> List[Dict[str, Any]]:
    rows = [{'time': 100.0 + i, 'phase': 'RELEASING', 'limit': limit, 'burst': i in burst}
            for i, limit in enumerate(limits)]
    rows[-1]['phase'] = last
    return rows


def test_burst_yields_and_recovers() -> None:
    timeline = moments([8, 8, 8, 8, 4, 2, 2, 4, 8, 9], burst=[2, 3, 4, 5])
    assert verdict(timeline) == Verdict(8, 2, 2.0, 2.0)


def test_burst_without_effect() -> None:
    assert verdict(moments([8] * 6, burst=[2, 3])) == Verdict(8, 8, None, None)
    # The limit after the end does not count.
    assert verdict(moments([8, 8, 4, 4, 8], burst=[1, 2], last='DONE')) == Verdict(8, 4, 1.0, None)
    assert verdict(moments([8, 8], burst=[])) == Verdict(None, None, None, None)


def result(arm: str, p99: float, seconds: float, scenario: str = 'load') -> Dict[str, Any]:
    kinds = [f'{client} {operation}' for client in ('many', 'one')
             for operation in ('read', 'write')] + ['all']

    def found(value: float) -> Dict[str, Any]:
        values = {'count': 9, 'errors': 1, 'unfinished': 0, 'over_100_ms': 3, 'over_1_s': 0,
                  'p50': value / 2, 'p95': value / 2, 'p99': value, 'p999': value, 'max': value}
        return {kind: values for kind in kinds}

    made: Dict[str, Any] = {
        'arm': arm, 'scenario': scenario, 'epochs': 7, 'least_bytes': 1000.0, 'timeline': [],
        'causes': {'total': 6, 'released': 3, 'per_pg': 2.0, 'events': {'up_thru': 4},
                   'epochs': {'up_thru': 2}, 'waits': {'p50': 0.1, 'p90': 0.2, 'p99': 0.3}},
        'seconds': {'expand': seconds - 10, 'balance': 10.0, 'move': seconds},
        'pushed_bytes': {'expand': 1000, 'balance': 500},
        'deviation': {'replicated': 1.0, 'erasure': 0.5},
        'deviation_expanded': {'replicated': 6.0, 'erasure': 4.0}}
    if scenario != 'idle':
        made['latency'] = {'quiet': found(10.0), 'move': found(p99)}
    return made


def cells(text: str, title: str) -> List[str]:
    """The cells of the table's row of that title."""
    match = re.search(rf'^ *{re.escape(title)}  +(.*)$', text, re.MULTILINE)
    assert match, (title, text)
    return re.split(r'  +', match.group(1))


def test_table_has_medians() -> None:
    failed = {'arm': 'stock', 'scenario': 'load', 'error': 'not in 900 s'}
    runs = [*(result('stock', p99, p99 + 20) for p99 in (30.0, 500.0, 40.0)), failed,
            result('perfguard', 12.0, 90.0), result('stock', 0, 33.0, 'idle')]
    text = report.table(runs)
    assert cells(text, 'all  p99') == ['10.0', '40.0', '10.0', '12.0', '-', '-']
    assert cells(text, 'one in flight, write  p50') == ['5.0', '20.0', '5.0', '6.0', '-', '-']
    assert cells(text, 'p99 of all, move / quiet') == ['4.00', '1.20', '-']
    assert cells(text, 'seconds to the end') == ['60', '90', '33']
    assert cells(text, 'of the new OSDs\' share') == ['1.50', '1.50', '1.50']
    assert cells(text, 'before the balancer') == ['6.0, 4.0'] * 3
    assert cells(text, 'for each PG released') == ['2.00'] * 3
    assert cells(text, 'up_thru') == ['4 in 2'] * 3
    assert cells(text, 'pg_temp set') == ['0 in 0'] * 3
    assert cells(text, 'from release to up_thru, p50/90/99, ms') == ['100/200/300'] * 3
    assert cells(text, 'client errors') == ['6', '2', '-']
    assert cells(text, 'repetitions') == ['3', '1', '1']
    assert 'stock, idle' in text.splitlines()[0]
    assert report.failures(runs) == ['stock, load: not in 900 s']
    assert 'latency' not in report.table(runs[-1:])
    assert report.table([failed]) == 'no run is complete'


def test_ratios_have_ranges() -> None:
    runs = [*(result('stock', p99, p99 + 20) for p99 in (30.0, 500.0, 40.0)),
            result('perfguard', 12.0, 90.0), result('stock', 0, 33.0, 'idle')]
    text = report.ratios(runs)
    assert cells(text, 'stock')[:3] == ['4.00 (3.00 to 50.00)', '4.00 (3.00 to 50.00)',
                                        '60 (50 to 520)']
    assert cells(text, 'perfguard') == ['1.20', '1.20', '90', '3', '0', '1.20', '1.20']
    assert cells(text, 'moving / quiet')[-1] == 'p99, one in flight, write'
    assert 'idle' not in text and report.ratios(runs[-1:]) == ''


def test_fixed_caps_are_an_arm_with_options() -> None:
    arm = parse_arm('fixed-caps:stall_ratio=0.5', list(METHODS), PRESETS)
    assert arm.options == {**PRESETS['fixed-caps'], 'stall_ratio': '0.5'}


def test_the_mons_accept_the_options_of_an_arm() -> None:
    specs = {spec['name']: spec for spec in OPTIONS}
    arms = [parse_arm(arm, list(METHODS)) for arm in FRONTIER]
    presets = [*PRESETS.values(), *(arm.options for arm in arms if arm.method != STOCK)]
    for name, value in ((name, value) for preset in presets for name, value in preset.items()):
        if specs[name]['type'] == 'str':
            assert value in specs[name]['enum_allowed']
        else:
            assert specs[name]['min'] <= float(value) <= specs[name]['max'], name
    for preset in presets:
        numbers = {name: float(value) for name, value in preset.items()
                   if specs[name]['type'] == 'float'}
        assert not problems(replace(Options(), **numbers), None), preset


@pytest.mark.parametrize('argv', [
    ['--arms', 'frontier'], ['--arms', 'frontier', '--quick'], ['--drives', 'flash,disk']])
def test_osds_that_sleep_have_less_to_copy_than_a_step_may_take(argv: List[str]) -> None:
    args = cli.parse(argv)
    sleeps = [*(DRIVES[kind] for kind in args.drives),
              *(arm.options.get('osd_recovery_sleep_hdd', '0') for arm in args.arms)]
    # An object of each pool at a time, as measured; copying takes about as long as the sleep.
    copies = 2 * args.settings.objects
    assert 2 * copies * max(float(sleep) for sleep in sleeps) < args.settings.step_seconds


def test_objects_of_several_sizes_hold_as_many_bytes() -> None:
    args = cli.parse(['--object-kib', '64,256,4096', '--mib', '250'])
    assert args.object_kib == [64, 256, 4096]
    assert [cli.objects(args, kib) for kib in args.object_kib] == [4000, 1000, 62]
    args = cli.parse(['--object-kib', '64', '--objects', '77'])
    assert cli.objects(args, 64) == args.settings.objects == 77


@pytest.mark.parametrize('argv,error', [
    (['--object-kib', '64,256'], '--object-kib with several sizes needs --mib'),
    (['--object-kib', '64,8192', '--mib', '9'], '--object-kib 8192: a number from 1 to 4096'),
    (['--object-kib', 'big'], '--object-kib big: numbers, with commas between them'),
    (['--arms', 'nothing'], "no such arm: 'nothing'"),
    (['--scenarios', 'storm'], "no such scenario: 'storm'"),
    (['--drives', 'flash,tape'], "no such drives: 'tape'"),
    (['--options', 'x'], "not KEY=VALUE: 'x'"),
    (['--added', '3'], 'OSDs come 2 a host'),
    (['--quiet', '0'], '--quiet 0: a number from 1 to 3600')])
def test_bad_arguments(argv: List[str], error: str) -> None:
    done = bench(*argv, timeout=20)
    assert done.returncode == 2 and done.stdout == ''
    assert error in done.stderr and done.stderr.count('\n') == 1


def bench(*argv: str, timeout: float) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run([sys.executable, '-m', 'qa.bench.expansion', *argv], cwd=CHECKOUT,
                          timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)


SMALLEST = ('--quick', '--quiet=4', '--objects=500', '--pgs=16', '--erasure-pgs=8', '--osds=6',
            '--added=2', '--many-rate=30', '--ones=1', '--one-rate=10', '--propose-interval=0.2')


@pytest.mark.releases('pacific', quick=())
def test_smallest_bench(run_dir: Path, tmp_path: Path) -> None:
    raw = tmp_path / 'raw.json'
    done = bench(*SMALLEST, '--arms=stock,perfguard-pin', f'--json={raw}', timeout=400)
    assert done.returncode == 0, done
    found = json.loads(raw.read_text())
    assert [run['arm'] for run in found] == ['stock', 'perfguard-pin']
    for run in found:
        quiet = run['latency']['quiet']
        assert quiet['all']['count'] == pytest.approx(4 * 80, abs=40)
        assert quiet['one write']['count'] > 10
        assert run['latency']['move']['all']['unfinished'] == 0
        assert run['pushed_bytes']['expand'] > 0.3 * run['least_bytes']
        assert max(run['deviation'].values()) <= 1.5
    assert found[1]['timeline'][-1]['phase'] == 'DONE'
    assert found[1]['causes']['events']['pin'] > 0
    assert found[1]['causes']['released'] >= found[1]['timeline'][-1]['released'] > 0
    assert cells(done.stdout, 'client errors') == ['0', '0']
    assert not list(run_dir.iterdir())


@pytest.mark.releases('pacific', quick=())
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_an_interrupted_bench(number: int, run_dir: Path) -> None:
    process = subprocess.Popen([sys.executable, '-m', 'qa.bench.expansion', *SMALLEST],
                               cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               universal_newlines=True, preexec_fn=heed_interrupts)
    assert process.stderr is not None
    try:
        # The clients are about to start.
        while 'clients start' not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        _, error = process.communicate(timeout=patient(60))
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert 'Traceback' not in error
    assert not list(run_dir.iterdir())


# ---- what OSDMap epochs are for

def osdmap(epoch: int, seconds: float, items: Dict[str, List[int]], temps: Dict[str, List[int]],
           up_thru: List[int], crush: int = 1, flags: str = '') -> Dict[str, Any]:
    """A part of `osd dump`; `items`: pgid -> [from, to]."""
    return {'epoch': epoch, 'modified': '2026-01-01T00:00:%09.6f+0000' % seconds,
            'crush_version': crush, 'flags': flags, 'pools': [], 'pg_upmap': [],
            'pg_upmap_items': [{'pgid': pgid, 'mappings': [{'from': pair[0], 'to': pair[1]}]}
                               for pgid, pair in items.items()],
            'pg_temp': [{'pgid': pgid, 'osds': osds} for pgid, osds in temps.items()],
            'osds': [{'osd': osd, 'up_thru': epoch} for osd, epoch in enumerate(up_thru)]}


def test_causes_of_epochs() -> None:
    pinned = {'1.0': [3, 0], '1.1': [4, 1]}
    before = osdmap(1, 0, {}, {}, [1, 1])
    joined = osdmap(2, 1, pinned, {}, [1, 1], crush=2)
    assert epochs.causes(before, joined) == {'crush': 1}
    primed = osdmap(3, 2, {'1.1': [4, 1]}, {'1.0': [0, 1]}, [1, 1], crush=2)
    assert epochs.causes(joined, primed) == {'release with pg_temp': 1}
    plain = osdmap(4, 3, {}, {'1.0': [0, 1]}, [3, 1], crush=2)
    assert epochs.causes(primed, plain) == {'release': 1, 'up_thru': 1}
    peered = osdmap(5, 4, {}, {'1.0': [0, 1], '1.1': [1, 0]}, [3, 4], crush=2)
    assert epochs.causes(plain, peered) == {'pg_temp set': 1}
    arrived = osdmap(6, 5, {}, {'1.1': [1, 0]}, [5, 5], crush=2, flags='norebalance')
    assert epochs.causes(peered, arrived) == {'pg_temp cleared': 1, 'up_thru': 1, 'flags': 1}
    again = osdmap(7, 6, {'1.1': [4, 1]}, {}, [5, 5], crush=2, flags='norebalance')
    assert epochs.causes(arrived, again) == {'pin': 1}
    assert epochs.causes(again, again) == {'other': 1}


def test_waits_of_released_pgs() -> None:
    pins = {'1.0': [3, 0], '1.1': [4, 1]}
    released = osdmap(8, 10.0, {}, {'1.0': [0, 1], '1.1': [1, 0]}, [5, 5])
    maps = [osdmap(7, 9.0, pins, {}, [5, 5]), released,
            osdmap(9, 10.1, {}, {'1.0': [0, 1], '1.1': [1, 0]}, [8, 5]),
            osdmap(10, 11.5, {}, {}, [8, 9])]
    waits = epochs.Waits()
    for before, after in zip(maps, maps[1:]):
        waits.look(before, after)
    assert waits.seconds == pytest.approx([0.1, 1.5])


def test_slow_operations_by_their_distance_from_an_epoch() -> None:
    samples = [Sample(1000.0 + 0.1 * number, latency_ms, 0, 0) for number, latency_ms in
               enumerate([1.0, 30.0, 1.0, 150.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])]
    # One operation ends 30 ms after an epoch, one 150 ms after it.
    found = epochs.slow_by_distance(samples, [1000.1, 1000.3], 5.0)
    assert [row['slow'] for row in found] == [0.1, 0.1, 0.0, 0.0]
    assert sum(row['operations'] for row in found) == pytest.approx(1.0)
    # The first one ended before any epoch.
    assert found[-1]['operations'] == 0.1
    assert [row['operations'] for row in epochs.slow_by_distance(samples, [], 5.0)] == [0, 0, 0, 1]
    assert all(row['operations'] == 0 for row in epochs.slow_by_distance([], [1.0], 5.0))
    assert epochs.slow_share(samples, 5.0) == 0.2
    assert epochs.slow_share([], 5.0) == 0.0


def test_epochs_of_several_causes_are_shared() -> None:
    found = epochs.summary([{'release with pg_temp': 3}, {'up_thru': 2, 'pg_temp cleared': 1},
                            {'up_thru': 1}], [0.1, 0.2, 0.3])
    assert (found.total, found.released, found.per_pg) == (3, 3, 1.0)
    assert found.events['up_thru'] == 3 and found.epochs['up_thru'] == 2
    assert found.shares == {'release with pg_temp': 1, 'up_thru': 1.5, 'pg_temp cleared': 0.5}
    assert found.waits == {'p50': 0.2, 'p90': 0.2, 'p99': 0.2}
