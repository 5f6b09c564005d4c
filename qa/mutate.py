# SPDX-License-Identifier: LGPL-2.1-or-later
"""Breaks the module in one place at a time, in a copy, and runs the unit tests that should notice.

    /usr/bin/python3 -m qa.mutate --number 60 --seed 7 [--durations unit.xml] [--output FILE]
        [--coverage FILE]

Each mutant is killed by the first test that fails with it and passes without it. The survivors are
printed with their diffs: each one needs a test, or is equivalent. The working tree is only read.

With the coverage of each test (pytest --cov --cov-context=test), those that run the mutated line
are run, in processes that have imported everything already: about a second a mutant. Without it,
and for what is computed while the module is imported, the tests that import the mutated file are
run: about half a minute a mutant.
"""
import argparse
import contextlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from qa.lib import live_mutants
from qa.lib.covering import IMPORT, Covering
from qa.lib.live_mutants import Answer, FAILED_TO_RUN, Request, Test
from qa.lib.mutants import (
    Mutant, choose, compiles, importers_of, importing_tests, mutants_of, place_of, within)

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
#: What an unknown test takes. Most are quick, and new ones should notice new mutants.
UNKNOWN_SECONDS = 0.05
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
    by_test: Dict[str, float]
    by_file: Dict[str, float]
    #: Tests that are left out.
    slow: List[str]


def durations(report: Optional[Path]) -> Durations:
    by_test: Dict[str, float] = {}
    by_file: Dict[str, float] = {}
    slow: List[str] = []
    if report is None:
        return Durations(by_test, by_file, slow)
    for case in ElementTree.parse(report).iter('testcase'):
        name, seconds = case.get('classname', ''), float(case.get('time', '0'))
        path = '/'.join(name.split('.')) + '.py'
        by_test['%s::%s' % (path, case.get('name'))] = seconds
        if seconds > SLOW_SECONDS:
            slow.append('%s::%s' % (path, case.get('name')))
        else:
            by_file[path] = by_file.get(path, 0.0) + seconds
    return Durations(by_test, by_file, slow)


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
    def __init__(self, clean: Copy, broken: Copy, sources: Mapping[str, bytes],
                 importers: Mapping[str, Set[str]], known: Durations, budget: float,
                 tests: Optional[Sequence[str]] = None) -> None:
        """`importers`: file -> the files that import it. `tests`: those to run; None: as many as
        take `budget` seconds."""
        self._clean, self._broken, self._sources = clean, broken, sources
        self._known, self._budget, self._tests = known, budget, tests
        self._importers = importers
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


class LiveRunner:
    """Runs tests in a process that has imported all of them. It may judge one mutant at a time."""

    def __init__(self, broken: Copy, sources: Mapping[str, bytes],
                 importers: Mapping[str, Set[str]], known: Durations, budget: float,
                 covering: Optional[Covering], files: Sequence[str]) -> None:
        """`files`: of tests that run with each mutant, beside those of `covering`."""
        self._broken, self._sources, self._known = broken, sources, known
        self._budget, self._covering = budget, covering
        self._importers = importers
        #: Whether a test passes without a mutant, as far as it was asked.
        self._good: Dict[str, bool] = {}
        receiving, answering = os.pipe()
        asking, sending = os.pipe()
        env = {**os.environ, 'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONPATH': os.pathsep.join(
            (str(broken.directory / PACKAGE), str(broken.directory), str(ROOT))),
            live_mutants.VARIABLE: '%d,%d' % (asking, answering)}
        argv = [sys.executable, '-m', 'pytest', '-p', 'qa.lib.live_mutants', '-q',
                '-p', 'no:cacheprovider', '-o', 'timeout=%d' % TEST_SECONDS,
                *('--ignore=' + name for name in sorted(IGNORED)), TESTS]
        self._log = (broken.directory / 'live.log').open('w')
        self._process = subprocess.Popen(
            argv, cwd=broken.directory, env=env, pass_fds=(asking, answering),
            stdout=self._log, stderr=subprocess.STDOUT)
        os.close(asking)
        os.close(answering)
        self._requests, self._answers = os.fdopen(sending, 'w'), os.fdopen(receiving)
        names = json.loads(self._answers.readline() or '[]')
        if not names:
            raise RuntimeError(Path(self._log.name).read_text()[-2000:])
        self._names = frozenset(names)
        self._extra = [name for name in names if name.split('::')[0] in files]

    def close(self) -> None:
        self._requests.close()
        self._answers.close()
        self._process.wait(60)
        self._log.close()

    def run(self, mutant: Mutant) -> Optional[Fate]:
        """None: it has to be judged otherwise."""
        begin = time.monotonic()
        source = mutant.apply(self._sources[mutant.path]).decode()
        place = place_of(mutant, self._sources[mutant.path])
        names = set(self._extra)
        if self._covering is not None:
            names |= self._covering.tests_of(
                mutant.path, self._sources[mutant.path].decode(), place.lines)
            names |= self._new_tests(mutant, self._covering)
        path = self._broken.directory / mutant.path
        ran = 0
        tests = self._ordered(mutant, names)
        while tests:
            path.write_text(source)
            try:
                answer = self._ask(Request(str(path), source, place.function, place.first_line,
                                           tests, 3.0 * self._budget + SPARE_SECONDS))
            finally:
                # Some tests import it themselves, also when they run without the mutant.
                path.write_bytes(self._sources[mutant.path])
            if answer.killer == FAILED_TO_RUN:
                return None
            ran += answer.ran
            if answer.killer is None:
                break
            if self._passes(answer.killer):
                return Fate(answer.killer, time.monotonic() - begin, ran)
            tests = [test for test in tests if self._good.get(test.name, True)]
        return Fate(None, time.monotonic() - begin, ran) if ran and IMPORT not in names else None

    def _new_tests(self, mutant: Mutant, covering: Covering) -> Set[str]:
        """The tests that were written since the coverage was recorded, and import the file."""
        files = {reach.path for reach in importing_tests(mutant.path, self._importers)}
        return {name for name in self._names - covering.tests if name.split('::')[0] in files}

    def _ordered(self, mutant: Mutant, names: Set[str]) -> List[Test]:
        """Those tests first that are likely to notice in little time, as many as usually take the
        budget."""
        stem, folder = Path(mutant.path).stem, Path(mutant.path).parent.name

        def cost(test: Test) -> Tuple[float, str]:
            path = Path(test.name.split('::')[0])
            is_named = stem in path.stem and path.parent.name == folder
            return test.seconds * (0.2 if is_named else 1.0), test.name

        tests = sorted((Test(name, self._known.by_test.get(name, UNKNOWN_SECONDS)) for name in names
                        if name in self._names and self._good.get(name, True)
                        and name not in self._known.slow), key=cost)
        ends = accumulate(test.seconds for test in tests)
        return [test for test, end in zip(tests, ends) if end <= self._budget or test is tests[0]]

    def _passes(self, name: str) -> bool:
        if name not in self._good:
            answer = self._ask(Request(None, '', '', 0, [Test(name, TEST_SECONDS)], 1.0))
            self._good[name] = answer.killer is None
        return self._good[name]

    def _ask(self, request: Request) -> Answer:
        print(json.dumps(request), file=self._requests, flush=True)
        return Answer(*json.loads(self._answers.readline()))


class Verdicts:
    """Prints what becomes of the mutants, in the order of the verdicts."""

    def __init__(self, sources: Mapping[str, bytes], output: Optional[Path], seed: int) -> None:
        self._sources, self._output, self._seed = sources, output, seed
        self._lock = threading.Lock()
        self.survivors: List[int] = []
        self.unjudged: List[int] = []
        self.judged = 0

    def add(self, number: int, mutant: Mutant, fate: Fate) -> None:
        with self._lock:
            killer = fate.killer or 'SURVIVES'
            print('%d: %s:%d %s: %s (%d tests, %.1f s)' % (
                number, mutant.path[len(MODULE):], mutant.line, mutant.operator,
                killer.rpartition('tests/')[2], fate.tests, fate.seconds), flush=True)
            if fate.killer == NO_VERDICT:
                self.unjudged.append(number)
            else:
                self.judged += 1
            if fate.killer is None:
                self.survivors.append(number)
                print(mutant.diff(self._sources[mutant.path]), flush=True)
            if self._output is not None:
                with self._output.open('a') as output:
                    print(json.dumps({
                        'number': number, 'seed': self._seed, 'path': mutant.path,
                        'line': mutant.line, 'operator': mutant.operator,
                        'diff': mutant.diff(self._sources[mutant.path]), **fate._asdict()}),
                        file=output)


def judge(pending: 'queue.SimpleQueue[Tuple[int, Mutant]]', verdicts: Verdicts,
          live: Optional[LiveRunner], runner: Runner) -> None:
    """Judge mutants until none is pending."""
    while True:
        try:
            number, mutant = pending.get_nowait()
        except queue.Empty:
            return
        fate = None if live is None else live.run(mutant)
        verdicts.add(number, mutant, runner.run(mutant) if fate is None else fate)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--number', type=int, default=60, help='of mutants')
    parser.add_argument('--all', action='store_true', help='every mutant, instead of a number')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--first', type=int, default=0, help='skip as many mutants')
    parser.add_argument('--only', type=int, nargs='*', help='numbers of mutants to run')
    parser.add_argument('--seconds', type=float, default=60.0, help='of tests for a mutant')
    parser.add_argument('--under', nargs='*', default=[''], help='folders or files of the module')
    parser.add_argument('--tests', nargs='*', help='run these files of tests and no others')
    parser.add_argument('--except', dest='excluded', nargs='*', default=[], help='leave out tests')
    parser.add_argument('--durations', type=Path, help='junit report of a run of the unit tests')
    parser.add_argument('--coverage', type=Path,
                        help="the unit tests' data file, with the context of each test")
    parser.add_argument('--processes', type=int, default=1)
    parser.add_argument('--output', type=Path, help='one line of JSON for each mutant')
    args = parser.parse_args()
    names = tracked(ROOT)
    python = {name: (ROOT / name).read_bytes() for name in names
              if name.startswith(MODULE) and name.endswith('.py')}
    broken = {name: source for name, source in python.items()
              if name.startswith(tuple(MODULE + under for under in args.under))
              and not name.startswith(TESTS)}
    chosen = [mutant for name, source in broken.items() for mutant in mutants_of(name, source)
              if compiles(mutant, source)] if args.all else choose(broken, args.number, args.seed)
    verdicts = Verdicts(python, args.output, args.seed)
    pending: 'queue.SimpleQueue[Tuple[int, Mutant]]' = queue.SimpleQueue()
    for number in args.only if args.only is not None else range(args.first, len(chosen)):
        pending.put((number, chosen[number]))
    known = durations(args.durations)
    known.slow.extend(args.excluded)
    with tempfile.TemporaryDirectory(prefix='perfguard-mutants-') as directory:
        clean = Copy(Path(directory) / 'clean', names)
        importers = importers_of(python, PACKAGE)

        def process(number: int) -> None:
            copy = Copy(Path(directory) / ('broken-%d' % number), names)
            runner = Runner(clean, copy, python, importers, known, args.seconds, args.tests)
            with contextlib.ExitStack() as stack:
                live = None
                if args.coverage is not None or args.tests is not None:
                    covering = None if args.coverage is None else Covering(args.coverage, MODULE)
                    live = stack.enter_context(contextlib.closing(LiveRunner(
                        copy, python, importers, known, args.seconds, covering, args.tests or [])))
                judge(pending, verdicts, live, runner)

        with ThreadPoolExecutor(args.processes) as pool:
            # Raises what a process has raised.
            list(pool.map(process, range(args.processes)))
    killed = verdicts.judged - len(verdicts.survivors)
    print('%d of %d mutants are killed (%.0f %%); survivors: %s; no verdict: %s' % (
        killed, verdicts.judged, 100.0 * killed / max(1, verdicts.judged), verdicts.survivors,
        verdicts.unjudged))
    return 0


if __name__ == '__main__':
    sys.exit(main())
