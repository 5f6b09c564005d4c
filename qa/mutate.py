# SPDX-License-Identifier: LGPL-2.1-or-later
"""Breaks the module in one place at a time, in a copy, and runs the unit tests that should notice.

    /usr/bin/python3 -m qa.mutate --number 60 --seed 7 [--durations unit.xml] [--output FILE]

Each mutant is killed by the first test that fails twice with it and passes without it. One that
survives the tests within the budget has to survive all others that import its module. The survivors
are printed with their diffs: each one needs a test, or is equivalent. A run takes about half a
minute a mutant, so it is for the night. The working tree is only read.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from qa.lib.mutants import Mutant, choose, importers_of, importing_tests, within

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = 'src/pybind/mgr'
MODULE = PACKAGE + '/perfguard/'
TESTS = MODULE + 'tests/'
#: Tests of the texts of the tree say nothing about what the code does.
IGNORED = frozenset(TESTS + name for name in (
    'test_imports.py', 'test_doc.py', 'test_documented_commands.py', 'test_packaging.py',
    'test_monitoring.py'))
#: Limit of one test, and of all tests of a mutant beyond what they usually take: a mutant may make
#: a loop endless.
TEST_SECONDS = 60
SPARE_SECONDS = 120.0
#: Slower tests are left out: what they alone would notice is not noticed often enough.
SLOW_SECONDS = 15.0
#: Of a mutant whose tests do not end, but neither do they without it.
NO_VERDICT = 'no verdict'
_FAILED = re.compile(r'^(?:FAILED|ERROR) (\S+?\.py(?:::\S+?)?(?:\[.*?\])?)(?: - .*)?$',
                     re.MULTILINE)


class Fate(NamedTuple):
    """What became of a mutant. `killer`: the test that failed, or NO_VERDICT; None: it survived."""
    killer: Optional[str]
    seconds: float
    tests: int


class Durations(NamedTuple):
    """Seconds of tests, from the junit report of an earlier run."""
    by_file: Dict[str, float]
    #: Tests that are left out.
    slow: List[str]


def durations(report: Optional[Path]) -> Durations:
    by_file: Dict[str, float] = {}
    slow: List[str] = []
    if report is None:
        return Durations(by_file, slow)
    for case in ElementTree.parse(report).iter('testcase'):
        name, seconds = case.get('classname', ''), float(case.get('time', '0'))
        path = '/'.join(name.split('.')) + '.py'
        if seconds > SLOW_SECONDS:
            slow.append('%s::%s' % (path, case.get('name')))
        else:
            by_file[path] = by_file.get(path, 0.0) + seconds
    return Durations(by_file, slow)


def tracked(root: Path) -> List[str]:
    """The files of the working tree that git knows or would add."""
    listed = subprocess.run(
        ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=root,
        check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(name for name in listed.split('\0') if name and (root / name).is_file())


class Copy:
    """A copy of the working tree."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory = directory
        for name in names:
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)

    def test(self, tests: Sequence[str], slow: Sequence[str], seconds: float) -> Optional[str]:
        """The first test that fails; '' if they do not end; None if all pass."""
        env = {**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONPATH': os.pathsep.join(
            (str(self.directory / PACKAGE), str(self.directory)))}
        argv = [sys.executable, '-m', 'pytest', '-x', '-q', '-rfE', '--tb=no', '--no-header',
                '-p', 'no:cacheprovider', '-o', 'timeout=%d' % TEST_SECONDS]
        argv += ['--deselect=' + name for name in slow if name.split('::')[0] in tests]
        try:
            done = subprocess.run([*argv, *tests], cwd=self.directory, env=env, timeout=seconds,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True)
        except subprocess.TimeoutExpired:
            return ''
        if done.returncode in (0, 5):
            return None
        failed = _FAILED.search(done.stdout)
        if failed is None:
            raise RuntimeError('pytest: ' + done.stdout[-2000:])
        return failed.group(1)


class Runner:
    def __init__(self, clean: Copy, broken: Copy, sources: Mapping[str, bytes], known: Durations,
                 budget: float, tests: Optional[Sequence[str]] = None) -> None:
        """`tests`: those to run; None: as many as take `budget` seconds."""
        self._clean, self._broken, self._sources = clean, broken, sources
        self._known, self._budget, self._tests = known, budget, tests
        self._importers = importers_of(sources, PACKAGE)
        #: Tests that pass without a mutant, and those that do not and say nothing.
        self._good: Set[str] = set()
        self._bad: List[str] = []

    def run(self, mutant: Mutant) -> Fate:
        begin = time.monotonic()
        tests, rest = self._chosen(mutant)
        path = self._broken.directory / mutant.path
        path.write_bytes(mutant.apply(self._sources[mutant.path]))
        try:
            killer = self._killer(tests)
            if killer is None and rest:
                tests = rest
                killer = self._killer(tests)
        finally:
            path.write_bytes(self._sources[mutant.path])
        return Fate(killer, time.monotonic() - begin, len(tests))

    def _chosen(self, mutant: Mutant) -> Tuple[Sequence[str], Sequence[str]]:
        """The tests to run, and those to run if the mutant survives them."""
        if self._tests is not None:
            return self._tests, ()
        reached = [test for test in importing_tests(mutant.path, self._importers)
                   if test.path not in IGNORED]
        first = within(reached, self._known.by_file, self._budget)
        return first, [test.path for test in reached if test.path not in first]

    def _killer(self, tests: Sequence[str]) -> Optional[str]:
        usual = sum(self._known.by_file.get(test, 5.0) for test in tests)
        limit = 3.0 * usual + SPARE_SECONDS
        while tests:
            failed = self._broken.test(tests, [*self._known.slow, *self._bad], limit)
            if failed == '':
                # On a busy machine they may take as long without the mutant.
                return NO_VERDICT if self._clean.test(
                    tests, [*self._known.slow, *self._bad], limit) == '' else 'time limit'
            if failed is None:
                return None
            # One that fails now and then, on a busy machine, is no killer either.
            if self._broken.test([failed], (), limit) is None or (
                    failed not in self._good
                    and self._clean.test([failed], (), limit) is not None):
                self._bad.append(failed)
                continue
            self._good.add(failed)
            return failed
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--number', type=int, default=60, help='of mutants')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--first', type=int, default=0, help='skip as many mutants')
    parser.add_argument('--only', type=int, nargs='*', help='numbers of mutants to run')
    parser.add_argument('--seconds', type=float, default=60.0, help='of tests for a mutant')
    parser.add_argument('--under', default='', help='a folder or a file of the module')
    parser.add_argument('--tests', nargs='*', help='run these tests and no others')
    parser.add_argument('--except', dest='excluded', nargs='*', default=[], help='leave out tests')
    parser.add_argument('--durations', type=Path, help='junit report of a run of the unit tests')
    parser.add_argument('--output', type=Path, help='one line of JSON for each mutant')
    args = parser.parse_args()
    names = tracked(ROOT)
    python = {name: (ROOT / name).read_bytes() for name in names
              if name.startswith(MODULE) and name.endswith('.py')}
    chosen = choose({name: source for name, source in python.items()
                     if name.startswith(MODULE + args.under) and not name.startswith(TESTS)},
                    args.number, args.seed)
    numbers = args.only if args.only is not None else range(args.first, len(chosen))
    survivors: List[int] = []
    unjudged: List[int] = []
    with tempfile.TemporaryDirectory(prefix='perfguard-mutants-') as directory:
        clean, broken = (Copy(Path(directory) / name, names) for name in ('clean', 'broken'))
        known = durations(args.durations)
        known.slow.extend(args.excluded)
        runner = Runner(clean, broken, python, known, args.seconds, args.tests)
        for number in numbers:
            mutant = chosen[number]
            fate = runner.run(mutant)
            print('%d: %s:%d %s: %s (%d files, %.0f s)' % (
                number, mutant.path[len(MODULE):], mutant.line, mutant.operator,
                'SURVIVES' if fate.killer is None else fate.killer[fate.killer.find('tests/') + 6:]
                if 'tests/' in fate.killer else fate.killer, fate.tests, fate.seconds), flush=True)
            if fate.killer is None:
                survivors.append(number)
                print(mutant.diff(python[mutant.path]), flush=True)
            if fate.killer == NO_VERDICT:
                unjudged.append(number)
            if args.output:
                with args.output.open('a') as output:
                    print(json.dumps({'number': number, 'seed': args.seed, 'path': mutant.path,
                                      'line': mutant.line, 'operator': mutant.operator,
                                      **fate._asdict()}), file=output)
    judged = len(numbers) - len(unjudged)
    killed = judged - len(survivors)
    print('%d of %d mutants are killed (%.0f %%); survivors: %s; no verdict: %s' % (
        killed, judged, 100.0 * killed / max(1, judged), survivors, unjudged))
    return 0


if __name__ == '__main__':
    sys.exit(main())
