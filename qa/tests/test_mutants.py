# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mutants of qa/mutate.py: what they change, how they are chosen, and which tests run."""
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Dict, Iterator, List, Optional, Set

import pytest

from qa.lib.covering import IMPORT, Covering
from qa.lib.live_mutants import CannotReplace, code_of
from qa.lib.mutants import (
    Place, Reach, choose, importers_of, importing_tests, mutants_of, place_of, within)
from qa.mutate import Copy, Durations, LiveRunner, Runner, durations

CHECKOUT = Path(__file__).resolve().parents[2]
#: One line of a function, the operators that apply to it, and what each makes of it.
CHANGES = [
    ('return a < b', {'swap': 'return a > b', 'boundary': 'return a <= b',
                      'return': 'return None'}),
    ('return False', {'return': 'return True'}),
    ('x = a in b', {'swap': 'x = a not in b'}), ('x = a is not  None', {'swap': 'x = a is  None'}),
    ('x = a and b or c', {'and/or': 'x = a and b and c'}),
    ('x = (a and\n     b)', {'and/or': 'x = (a or\n     b)'}),
    ('x = f(a for a in b if a)', {'negation': 'x = f(a for a in b if not (a))'}),
    ('x = not a', {'negation': 'x = bool(a)'}), ('x = a + 1', {'constant': 'x = a + 2'}),
    ('f(a)', {'removal': 'pass'}), ('x.y = a', {'removal': 'pass'}),
    ('x += a', {'removal': 'pass'}),
    ('x = "\xe4" + str(a == b)', {'swap': 'x = "\xe4" + str(a != b)'}),
    # Nothing that a test should notice.
    ('log.debug(a)', {}), ('x: "List[1]" = a', {}), ('"""Text 1 < 2."""', {}), ('return None', {})]
PACKAGE = 'mgr'
FILES: Dict[str, bytes] = {
    'mgr/p/__init__.py': b'', 'mgr/p/a.py': b'X = 1\n',
    'mgr/p/b.py': b'from . import a\n', 'mgr/p/c/__init__.py': b'',
    'mgr/p/c/d.py': b'from ..b import Y\n',
    'mgr/p/tests/test_z.py': b'import p.a\n', 'mgr/p/tests/test_a.py': b'from p.a import X\n',
    'mgr/p/tests/c/test_d.py': b'def f():\n    from p.c.d import Y\n',
    'mgr/p/tests/test_named.py': b'import_module("p.a")\n',
    'mgr/p/tests/test_other.py': b'import os\n'}


@pytest.mark.parametrize('line, changes', CHANGES, ids=[line for line, _ in CHANGES])
def test_what_mutants_change(line: str, changes: Dict[str, str]) -> None:
    source = ('def f(a, b=1):\n    %s\n' % line).encode()
    found: Dict[str, Set[str]] = {}
    for mutant in mutants_of('p.py', source):
        text = mutant.apply(source).decode()
        assert text.startswith('def f(a, b=1):\n    ')
        found.setdefault(mutant.operator, set()).add(text[19:-1])
    assert found.keys() == changes.keys()
    for operator, text in changes.items():
        assert text in found[operator]


def test_constants_outside_functions_are_tuning() -> None:
    assert mutants_of('p.py', b'X = 3\nclass A:\n    Y = X < 4\n') == []


def test_mutants_are_chosen_by_chance_and_by_lines_of_code() -> None:
    small = b'def f(a):\n    return a < 1\n'
    large = b'def f(a):\n' + b''.join(b'    a += %d\n' % number for number in range(60))
    sources = {'p/small/a.py': small, 'p/large/b.py': large}
    chosen = choose(sources, 20, 7)
    assert choose(sources, 20, 7) == chosen != choose(sources, 20, 8)
    assert len(set(chosen)) == len(chosen) == 20
    folders = Counter(PurePosixPath(mutant.path).parent.name for mutant in chosen)
    assert folders['large'] > 10 * folders['small']
    for mutant in chosen:
        assert len(re.findall('^[+-]', mutant.diff(sources[mutant.path]), re.MULTILINE)) == 4
    # No more than there are.
    assert len(choose({'p/small/a.py': small}, 20, 7)) == len(mutants_of('p', small)) == 5


def test_tests_that_import_the_mutated_file_the_closest_first() -> None:
    importers = importers_of(FILES, PACKAGE)
    assert importing_tests('mgr/p/a.py', importers) == [
        Reach('mgr/p/tests/test_a.py', 1), Reach('mgr/p/tests/test_named.py', 1),
        Reach('mgr/p/tests/test_z.py', 1),
        Reach('mgr/p/tests/c/test_d.py', 3)]
    assert importing_tests('mgr/p/c/d.py', importers) == [Reach('mgr/p/tests/c/test_d.py', 1)]


def test_tests_that_are_named_after_the_mutated_file_come_first() -> None:
    importers = importers_of({
        'mgr/p/__init__.py': b'', 'mgr/p/c/__init__.py': b'', 'mgr/p/c/e.py': b'X = 1\n',
        'mgr/p/f.py': b'from .c import e\n', 'mgr/p/tests/test_x.py': b'import p.c.e\n',
        'mgr/p/tests/c/test_e.py': b'import p.f\n'}, PACKAGE)
    assert importing_tests('mgr/p/c/e.py', importers) == [
        Reach('mgr/p/tests/c/test_e.py', 2), Reach('mgr/p/tests/test_x.py', 1)]


def test_tests_within_a_budget() -> None:
    tests = [Reach(name, 1) for name in 'abcd']
    seconds = {'a': 30.0, 'b': 50.0, 'c': 20.0}
    assert within(tests, seconds, 60.0) == ['a', 'c', 'd']
    assert within(tests, seconds, 1.0) == ['a'] and within([], seconds, 1.0) == []


def test_durations_of_an_earlier_run(tmp_path: Path) -> None:
    report = tmp_path / 'unit.xml'
    report.write_text('<testsuites><testsuite>%s</testsuite></testsuites>' % ''.join(
        '<testcase classname="%s" name="%s" time="%s"/>' % row for row in (
            ('p.tests.test_a', 'test_b', 1.5), ('p.tests.test_a', 'test_c[1]', 2.0),
            ('p.tests.test_a', 'test_slow[1 x]', 72.0))))
    path = 'p/tests/test_a.py'
    assert durations(report) == Durations(
        {path + '::test_b': 1.5, path + '::test_c[1]': 2.0, path + '::test_slow[1 x]': 72.0},
        {path: 3.5}, [path + '::test_slow[1 x]'])
    assert durations(None) == Durations({}, {}, [])


TESTS = '''
from p import a
def test_always_fails(): assert 0
def test_value(): assert a.at_least(2)
def test_ends():
    n = 0
    while not a.at_least(n):
        n += 1
'''


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    root = tmp_path / 'tree'
    sources = {'src/pybind/mgr/p/__init__.py': b'',
               'src/pybind/mgr/p/a.py': b'def at_least(a):\n    b = a > 1\n    return b\n',
               'src/pybind/mgr/p/tests/test_a.py': TESTS.encode()}
    for name, source in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(source)
    monkeypatch.setattr('qa.mutate.ROOT', root)
    clean, broken = (Copy(tmp_path / name, list(sources)) for name in ('clean', 'broken'))
    return Runner(clean, broken, sources, importers_of(sources, 'src/pybind/mgr'),
                  Durations({}, {}, []), 60.0)


def test_a_mutant_is_killed_by_a_test_that_passes_without_it(runner: Runner, tmp_path: Path
                                                             ) -> None:
    path = 'src/pybind/mgr/p/a.py'
    before = {name: (tmp_path / name / path).read_bytes() for name in ('tree', 'clean', 'broken')}
    fates: Dict[str, List[str]] = {}
    for mutant in mutants_of(path, before['tree']):
        killer = runner.run(mutant).killer
        fates.setdefault(mutant.operator, []).append(
            'survives' if killer is None else killer.rpartition('::')[2])
    assert fates == {'swap': ['test_value'], 'boundary': ['survives'],
                     'constant': ['test_value', 'survives'], 'return': ['test_value']}
    assert before == {name: (tmp_path / name / path).read_bytes()
                      for name in ('tree', 'clean', 'broken')}


@pytest.mark.parametrize('clean, killer', [(None, 'time limit'), ('', 'no verdict')])
def test_tests_that_do_not_end_without_a_mutant_either_kill_none(
        runner: Runner, monkeypatch: pytest.MonkeyPatch, clean: Optional[str], killer: str) -> None:
    path = 'src/pybind/mgr/p/a.py'
    monkeypatch.setattr(Copy, 'test', lambda self, *_: (
        '' if self.directory.name == 'broken' else clean))
    mutant = mutants_of(path, b'def at_least(a):\n    b = a > 1\n    return b\n')[0]
    assert runner.run(mutant).killer == killer


# ---- In processes that have imported everything

NESTED = b'''class A:
    @property
    @cached
    def b(self):
        def c():
            if (d and
                    e < 1):
                return 1
        return c
f = lambda: not 1
'''


def test_the_place_of_a_mutant() -> None:
    places = {(mutant.operator, place_of(mutant, NESTED)) for mutant in mutants_of('p.py', NESTED)}
    condition, value = Place('b', 2, range(6, 8)), Place('b', 2, range(8, 9))
    assert places == {
        ('and/or', condition), ('negation', condition), ('swap', condition),
        ('boundary', condition), ('constant', condition), ('constant', value), ('return', value),
        ('return', Place('b', 2, range(9, 10))),
        ('negation', Place('<lambda>', 10, range(10, 11))),
        ('constant', Place('<lambda>', 10, range(10, 11)))}


def test_the_code_of_a_mutant_is_that_of_one_function() -> None:
    source = 'def f():\n    pass\na = lambda: 1; b = lambda: 2\n'
    assert code_of(source, 'p.py', 'f', 1).co_filename == 'p.py'
    for name, line in (('f', 2), ('g', 1), ('<lambda>', 3)):
        with pytest.raises(CannotReplace):
            code_of(source, 'p.py', name, line)


LIVE: Dict[str, bytes] = {
    'a.py': b'''from functools import wraps
def at_least(a, limit=1):
    b = a > limit
    return b
def ends(n):
    while n:
        n -= 1
    return 'ended'
def doubled(function):
    @wraps(function)
    def wrapper(a):
        return 2 * function(a)
    return wrapper
@doubled
def shifted(a):
    return a + 3
ONE = shifted(1)
def unused():
    return 1
''',
    'late.py': b'''def one(a):
    return a < 1
''',
    'tests/test_late.py': b'''def test_one():
    from perfguard.late import one
    assert one(0) and not one(1)
''',
    'tests/test_a.py': b'''import pytest
from perfguard.a import at_least, ends, shifted
def test_always_fails(): assert at_least(0) and shifted(0)
def test_value(): assert at_least(2) and not at_least(0)
def test_ends(): ends(3)
@pytest.mark.parametrize('value', [1, 2])
def test_shifted(value): assert shifted(value) == 2 * (value + 3)
'''}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRunner]:
    sources = {'src/pybind/mgr/perfguard/__init__.py': b''}
    for name, source in LIVE.items():
        sources['src/pybind/mgr/perfguard/' + name] = source
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source)
    subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--cov=perfguard',
         '--cov-context=test', '--cov-report=', 'src'], cwd=tmp_path, stdout=subprocess.DEVNULL,
        timeout=60,
        env={**os.environ, 'PYTHONPATH': str(tmp_path / 'src/pybind/mgr'),
             'COVERAGE_FILE': str(tmp_path / '.coverage')})
    shutil.copytree(tmp_path / 'src', tmp_path / 'copy/src')
    copy = Copy(tmp_path / 'copy', ())
    runner = LiveRunner(copy, sources, importers_of(sources, 'src/pybind/mgr'), Durations(
        {'src/pybind/mgr/perfguard/tests/test_a.py::test_ends': 0.0}, {}, []), 60.0,
                        Covering(tmp_path / '.coverage', 'src/pybind/mgr/perfguard/'), ())
    yield runner
    runner.close()


def test_tests_that_run_the_line_judge_a_mutant(live: LiveRunner) -> None:
    path = 'src/pybind/mgr/perfguard/a.py'
    fates: Dict[str, List[str]] = {}
    for mutant in mutants_of(path, LIVE['a.py']):
        if mutant.line == 7 and mutant.operator != 'removal':
            continue  # It does not end either.
        fate = live.run(mutant)
        place = place_of(mutant, LIVE['a.py'])
        fates.setdefault('%s %d' % (place.function, mutant.line), []).append(
            'not judged' if fate is None else 'survives' if fate.killer is None
            else fate.killer.rpartition('::')[2])
    assert fates.pop('at_least 3') == ['test_value', 'survives']
    assert fates.pop('at_least 4') == ['test_value']
    # Without an end, or with nothing that a test looks at.
    # A loop without an end, and what no test looks at.
    assert fates.pop('ends 7') == ['test_ends']
    assert fates.pop('ends 6') == fates.pop('ends 8') == ['survives']
    # Only a new process sees what a decorator does with the mutant, and what no test runs.
    for key in [key for key in fates if key.startswith(('doubled', 'unused'))]:
        assert set(fates.pop(key)) == {'not judged'}
    assert set(fates.pop('shifted 16')) == {'test_shifted[1]'} and not fates


def test_a_test_that_imports_the_file_itself_judges_its_mutants(live: LiveRunner) -> None:
    path = 'src/pybind/mgr/perfguard/late.py'
    for mutant in mutants_of(path, LIVE['late.py']):
        fate = live.run(mutant)
        assert fate is not None and fate.killer == (
            'src/pybind/mgr/perfguard/tests/test_late.py::test_one'), mutant.diff(LIVE['late.py'])


def test_tests_that_are_newer_than_the_coverage_run_as_well(
        tmp_path: Path, live: LiveRunner) -> None:
    path = 'src/pybind/mgr/perfguard/a.py'
    covering = Covering(tmp_path / '.coverage', 'src/pybind/mgr/perfguard/')
    assert {name.rpartition('::')[2] for name in covering.tests} == {
        '', 'test_always_fails', 'test_value', 'test_ends', 'test_shifted[1]', 'test_shifted[2]',
        'test_one'}
    unused, = [mutant for mutant in mutants_of(path, LIVE['a.py'])
               if place_of(mutant, LIVE['a.py']).function == 'unused' and mutant.text == b'2']
    assert live.run(unused) is None
    covering.tests -= {name for name in covering.tests if name.endswith('test_value')}
    setattr(live, '_covering', covering)
    fate = live.run(unused)
    assert fate is not None and (fate.killer, fate.tests) == (None, 1)


def test_a_file_that_has_changed_since_its_coverage(tmp_path: Path, live: LiveRunner) -> None:
    covering = Covering(tmp_path / '.coverage', 'src/pybind/mgr/perfguard/')
    path = 'src/pybind/mgr/perfguard/a.py'
    before = covering.tests_of(path, LIVE['a.py'].decode(), [7])
    assert {name.rpartition('::')[2] for name in before} == {'test_ends'}
    # The lines of one that has changed are not known.
    later = LIVE['a.py'].decode().replace('    while', '    # New.\n    while')
    of_file = covering.tests_of(path, later, [7])
    assert of_file == covering.tests_of(path, later, [1]) > before and IMPORT not in of_file
    recorded_at = (tmp_path / '.coverage').stat().st_mtime
    assert IMPORT in covering.tests_of(path, LIVE['a.py'].decode(), [16])
    assert covering.tests_of('src/pybind/mgr/perfguard/b.py', '', [1]) == frozenset()
    os.utime(tmp_path / path, (recorded_at + 1.0, recorded_at + 1.0))
    assert covering.tests_of(path, LIVE['a.py'].decode(), [7]) == of_file


def test_the_working_tree_has_mutants() -> None:
    done = subprocess.run([sys.executable, '-m', 'qa.mutate', '--number', '3', '--only'],
                          cwd=CHECKOUT, stdout=subprocess.PIPE, check=True, timeout=120,
                          universal_newlines=True)
    assert done.stdout == '0 of 0 mutants are killed (0 %); survivors: []; no verdict: []\n'
