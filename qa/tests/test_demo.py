# SPDX-License-Identifier: LGPL-2.1-or-later
"""The demonstration: it runs, reports what it measured, and leaves nothing behind."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import List, Tuple

import pytest

from perfguard.probe.compare import FASTER, RULED_OUT, SAME, SLOWER, UNKNOWN
from qa.cluster.daemons import heed_interrupts
from qa.cluster.dashboard import ACCEPT
from qa.cluster.patience import patient

CHECKOUT = Path(__file__).resolve().parents[2]

SMALLEST = ['--osds', '6', '--pgs', '16', '--objects', '500', '--seconds', '4', '--rate', '100']


def run_demo(*argv: str, timeout: float = 400) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run([str(CHECKOUT / 'demo.sh'), *argv], timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)


def left_behind(run_dir: Path) -> List[str]:
    """Files below the clusters' directory and processes that name it."""
    found = [str(path) for path in run_dir.iterdir()]
    for path in Path('/proc').glob('[0-9]*/cmdline'):
        try:
            if os.fsencode(f'{run_dir}/') in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def cells(output: str, title: str) -> List[str]:
    """The cells of the table's row of that title."""
    match = re.search(rf'^ *{re.escape(title)}  +(.*)$', output, re.MULTILINE)
    assert match, (title, output)
    return re.split(r'  +', match.group(1))


@pytest.mark.releases('pacific', quick=())
def test_smallest_demonstration(run_dir: Path) -> None:
    done = run_demo(*SMALLEST)
    assert done.returncode == 0, done
    assert done.stderr == ''
    assert '$ ceph perfguard expand --weight 1.0\n' in done.stdout
    assert cells(done.stdout, 'client latency, ms') == ['before', 'join', 'release', 'in all']
    p50, p99, longest = ([float(cell) for cell in cells(done.stdout, title)]
                         for title in ('p50', 'p99', 'max'))
    assert all(0 < a <= b <= c for a, b, c in zip(p50, p99, longest)), done.stdout
    counts = [int(cell) for cell in cells(done.stdout, 'operations')]
    assert counts[0] == pytest.approx(400, abs=50)
    assert counts[3] == pytest.approx(counts[1] + counts[2], abs=50)
    total, moved, kept = map(int, cells(done.stdout, 'PGs in all, moved, kept')[0].split(', '))
    assert total == moved + kept and moved > 0
    assert cells(done.stdout, 'client errors') == ['0']
    assert done.stdout.count('  $ ceph perfguard probe run ') == 2
    assert '  $ ceph perfguard probe compare --before 1 --after 2\n' in done.stdout
    verdict = re.search('^ *probe 2 compared with probe 1: (.+)$', done.stdout, re.MULTILINE)
    assert verdict, done.stdout
    assert done.stdout.count('no expected values for device class (none)') == 4
    # Otherwise the pools, not the expansion, would explain a difference.
    assert 'the conditions differ: PGs' not in done.stdout
    assert f'Speed of the quiet cluster after the expansion: {verdict.group(1)}\n' in done.stdout
    figures = re.findall(r'^  rand(write|read)-4k-1 \1: (\S+) times the IOPS '
                         r'\(95 % interval: (\S+) to (\S+)\); ', done.stdout, re.MULTILINE)
    assert [name for name, *_ in figures] == ['write', 'read'], done.stdout
    assert all(float(low) <= float(ratio) <= float(high) for _, ratio, low, high in figures)
    assert_verdict(verdict.group(1), [(float(low), float(high)) for *_, low, high in figures])
    assert re.search(r'; load average of this machine: [\d.]+ and [\d.]+\)$', done.stdout, re.M)
    # Figures are recorded for the default size only.
    assert 'The option --compare stock measures the same expansion' in done.stdout
    assert left_behind(run_dir) == []


def assert_verdict(verdict: str, intervals: List[Tuple[float, float]]) -> None:
    """It says what the intervals show, and is known unless the machine was too busy for that."""
    narrow = all(1 - RULED_OUT <= low and high <= 1 / (1 - RULED_OUT) for low, high in intervals)
    even = narrow and all(low <= 1 <= high for low, high in intervals)
    shown = {SAME: narrow, FASTER: any(low > 1 for low, _ in intervals),
             # Perhaps only its p99.
             SLOWER: narrow or any(high < 1 for _, high in intervals), UNKNOWN: not even}
    assert shown[verdict], (verdict, intervals)


@pytest.mark.releases('pacific', quick=())
def test_interrupted_demonstration(run_dir: Path) -> None:
    """ctrl-C reaches the whole group of processes, as from a terminal.

    With --keep, the operator can look at the page before the expansion begins.
    """
    demo = subprocess.Popen([str(CHECKOUT / 'demo.sh'), '--keep', *SMALLEST],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True, start_new_session=True,
                            preexec_fn=heed_interrupts)
    try:
        assert demo.stdout is not None
        lines: List[str] = []
        for line in demo.stdout:
            lines.append(line)
            if 'client operations per second' in line:
                break
        assert page_is_open(''.join(lines))
        assert left_behind(run_dir)
        time.sleep(1)
        os.killpg(demo.pid, signal.SIGINT)
        _, errors = demo.communicate(timeout=patient(30))
        assert demo.returncode == 130
        assert errors == 'interrupted; the cluster was removed\n'
        assert left_behind(run_dir) == []
    finally:
        demo.kill()
        demo.wait()


def page_is_open(output: str) -> bool:
    """Whether the login that was printed opens the page that was."""
    match = re.search(r'log in at http://([^/]+)/ and open http://\1/perfguard\n'
                      r'  user (admin) \(administrator\), password (\w+)\n', output)
    assert match, output
    address, user, password = match.groups()
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request('POST', '/api/auth', json.dumps({'username': user, 'password': password}),
                       {'Accept': ACCEPT, 'Content-Type': 'application/json'})
    token = json.loads(connection.getresponse().read())['token']
    connection.request('GET', '/perfguard', headers={'Authorization': f'Bearer {token}'})
    return connection.getresponse().status == 200


@pytest.mark.parametrize('argv', [
    ['--osds', '7'], ['--osds', '4'], ['--osds', 'many'], ['--release', 'luminous'],
    ['--compare', 'nothing'], ['--seconds', '0'], ['--objects', '-1'],
    ['--propose-interval', 'nan'], ['--nonesuch'], ['surplus']], ids=' '.join)
def test_bad_arguments(argv: List[str], run_dir: Path) -> None:
    done = subprocess.run(['/usr/bin/python3', '-m', 'qa.demo', *argv], cwd=CHECKOUT, timeout=20,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    assert done.returncode == 2
    assert done.stdout == ''
    assert re.fullmatch(r'demo\.sh: .+\n', done.stderr) and argv[-1] in done.stderr, done.stderr
    assert left_behind(run_dir) == []
