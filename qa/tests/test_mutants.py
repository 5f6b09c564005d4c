# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mutants of qa/mutate.py: what they change, how they are chosen, and which tests run."""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Dict, List, Optional, Set

import pytest

from qa.lib.mutants import Reach, choose, importers_of, mutants_of, importing_tests, within
from qa.mutate import Copy, Durations, Runner, durations

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
    assert durations(report) == Durations({'p/tests/test_a.py': 3.5},
                                          ['p/tests/test_a.py::test_slow[1 x]'])
    assert durations(None) == Durations({}, [])


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
    return Runner(clean, broken, sources, Durations({}, []), 60.0)


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


def test_the_working_tree_has_mutants() -> None:
    done = subprocess.run([sys.executable, '-m', 'qa.mutate', '--number', '3', '--only'],
                          cwd=CHECKOUT, stdout=subprocess.PIPE, check=True, timeout=120,
                          universal_newlines=True)
    assert done.stdout == '0 of 0 mutants are killed (0 %); survivors: []; no verdict: []\n'
