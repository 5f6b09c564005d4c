# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs of the tests themselves: however they end, nothing is left of their clusters."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List, Tuple

import pytest

from qa.cluster.patience import patient
from qa.lib import tiers

CHECKOUT = Path(__file__).resolve().parents[2]
#: Until a cluster has booted on a machine that boots others as well.
BOOT_SECONDS = patient(120)
END_SECONDS = patient(60)
TESTS = '''
import pytest, time

@pytest.mark.parametrize('number', (1, 2))
@pytest.mark.xdist_group('a')
def test_sleeps(make_cluster, number):
    make_cluster('pacific', osds=1, hosts=1)
    time.sleep(600)
'''


def ignore_interrupts() -> None:
    """As a shell does for what it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def command(directory: Path, text: str, *argv: str) -> List[str]:
    """The command line that runs a test file with the fixtures and tiers of these tests."""
    (directory / 'conftest.py').write_text('from qa.conftest import *\n')
    (directory / 'test_it.py').write_text(text)
    return [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', *argv, str(directory)]


def begin(tmp_path: Path, *argv: str) -> 'subprocess.Popen[str]':
    return subprocess.Popen(
        command(tmp_path, TESTS, '-n', '2', '--dist=loadgroup', *argv), cwd=CHECKOUT,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True, preexec_fn=ignore_interrupts)


def processes_of(directory: Path) -> List[str]:
    found = []
    for path in Path('/proc').glob('[0-9]*/cmdline'):
        try:
            if os.fsencode(f'{directory}/') in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def wait(what: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.releases('pacific')
@pytest.mark.parametrize('how', (
    'ctrl-C', pytest.param('SIGTERM', marks=pytest.mark.releases('pacific', quick=())),
    pytest.param('limit', marks=pytest.mark.releases('pacific', quick=()))))
def test_an_interrupted_run_leaves_nothing(how: str, run_dir: Path, tmp_path: Path) -> None:
    run = begin(tmp_path, *(['--limit=15'] if how == 'limit' else []))
    try:
        wait(lambda: list(run_dir.glob('*/run/osd.0.pid')) or run.poll() is not None,
             BOOT_SECONDS)
        if how == 'ctrl-C':
            os.killpg(run.pid, signal.SIGINT)
        elif how == 'SIGTERM':
            run.terminate()
        output, _ = run.communicate(timeout=END_SECONDS + tiers.LAST_SECONDS)
    finally:
        run.kill()
    assert run.returncode != 0, output
    wait(lambda: not processes_of(run_dir), END_SECONDS)
    wait(lambda: not list(run_dir.iterdir()), END_SECONDS)
    if how == 'limit':
        assert 'the whole run has taken more than 15 s' in output


def test_releases_of_each_tier() -> None:
    assert tiers.choice(()) == (tiers.RELEASES, ('pacific',))
    assert tiers.choice(('reef', 'tentacle')) == (('reef', 'tentacle'), ('reef',))
    assert tiers.choice(('reef',), ()) == (('reef',), ())
    both = ('pacific', 'reef')
    assert tiers.choice(both, 'reef') == (both, ('reef',))
    assert tiers.choice(both, both) == (both, both)
    for names, quick in ((('pacific',), 'reef'), (('firefly',), None), (both, 7)):
        with pytest.raises(ValueError):
            tiers.choice(names, quick)


def test_the_template_is_a_test(tmp_path: Path) -> None:
    """That of the README, collected; it takes a minute to run."""
    text = (Path(__file__).parent / 'README.md').read_text()
    template, = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    done = subprocess.run(command(tmp_path, template, '--collect-only'), cwd=CHECKOUT, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    assert done.returncode == 0 and '[reef]' in done.stdout, done.stdout


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    text = ('import pytest\n'
            "@pytest.mark.releases('pacific', 'reef', quick='reef')\n"
            'def test_both(release): assert release in ("pacific", "reef")\n'
            "@pytest.mark.releases('tentacle', quick=())\n"
            'def test_one(release): pass\n'
            "@pytest.mark.releases('reef')\n"
            "@pytest.mark.parametrize('one', [1, pytest.param(2, marks=pytest.mark.releases("
            "'reef', quick=()))])\n"
            'def test_variants(release, one): pass\n'
            'def test_always(): pass\n')
    for argv, counts, said in (
            ((), '3 passed, 3 deselected', '3 tests run in the nightly tier only'),
            (('-n', '2', '--dist=loadgroup'), '3 passed', '3 tests run in the nightly tier only'),
            (('--tier=nightly',), '6 passed', ''),
            (('--release=tentacle',), '2 passed, 4 deselected', '')):
        done = subprocess.run(
            command(tmp_path, text, *argv), cwd=CHECKOUT, timeout=120, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True)
        assert done.returncode == 0 and counts in done.stdout and said in done.stdout, done.stdout


@pytest.mark.parametrize('argv', [(), ('-n', '2', '--dist=loadgroup')])
def test_failed_tests_are_listed_so_that_they_run_again(tmp_path: Path, argv: Tuple[str, ...]
                                                        ) -> None:
    text = ('import pytest\n'
            '@pytest.mark.parametrize("name", ["a b", "c[1]"])\n'
            'def test_fails(name): assert not name\n'
            '@pytest.fixture\n'
            'def broken(): raise OSError\n'
            'def test_errors(broken): pass\n'
            'def test_passes(): pass\n')
    listed = tmp_path / 'failed'
    run = subprocess.run(command(tmp_path, text, f'--failed-to={listed}', *argv), cwd=CHECKOUT,
                         timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.returncode == 1, run
    found = [line.partition('::')[2] for line in listed.read_text().splitlines()]
    assert sorted(found) == ['test_errors', 'test_fails[a b]', 'test_fails[c[1]]']


@pytest.mark.parametrize('tier, names', [
    ('quick', ['test_metrics', 'test_faults', 'test_it']),
    ('nightly', ['test_faults', 'test_metrics', 'test_it'])])
def test_the_longest_begin_first_and_faults_at_night(tier: str, names: List[str], tmp_path: Path
                                                     ) -> None:
    text = 'def test_anything(): pass\n'
    for name in ('test_faults', 'test_metrics'):
        (tmp_path / (name + '.py')).write_text(text)
    done = subprocess.run(command(tmp_path, text, '--collect-only', '--tier=' + tier),
                          cwd=CHECKOUT, timeout=120, stdout=subprocess.PIPE,
                          universal_newlines=True)
    assert re.findall(r'(\w+)\.py::', done.stdout) == names, done.stdout
