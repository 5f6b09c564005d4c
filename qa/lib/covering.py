# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which tests run a line of the module: what pytest --cov --cov-context=test has recorded."""
import difflib
from pathlib import Path
from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

import coverage

#: The name of what runs while no test does: imports.
IMPORT = ''
NEAR = 3


class Covering:
    """The tests that have run each line.

    The sources may have changed since: lines are found again as long as they are the same, and
    others have the tests of the NEAR lines before and after them.
    """

    def __init__(self, recorded: Path, package: str) -> None:
        """`recorded`: the data file. `package`: the end of the path of the module's folder, as in
        "src/pybind/mgr/perfguard/"."""
        self._data = coverage.CoverageData(str(recorded))
        self._data.read()
        self._paths: Dict[str, str] = {}
        for path in self._data.measured_files():
            _, mark, name = path.partition(package)
            if mark:
                self._paths[package + name] = path
        #: The tests that were recorded.
        self.tests = frozenset(_test_of(context) for context in self._data.measured_contexts())
        self._known: Dict[str, Dict[int, List[str]]] = {}
        self._lines: Dict[Tuple[str, str], List[int]] = {}

    def tests_of(self, name: str, source: str, lines: Sequence[int]) -> FrozenSet[str]:
        """The tests, by node ID, that run any of the lines (from 1) of a file; with IMPORT, if
        they run while it is imported."""
        if name not in self._paths:
            return frozenset()
        if name not in self._known:
            self._known[name] = self._data.contexts_by_lineno(self._paths[name])
        recorded = self._recorded_lines(name, source)
        tests: Set[str] = set()
        for line in lines:
            if recorded[line]:
                tests |= self._contexts(name, recorded[line])
            else:
                for near in recorded[max(0, line - NEAR):line + NEAR + 1]:
                    tests |= self._contexts(name, near) - {IMPORT}
        return frozenset(tests)

    def _contexts(self, name: str, line: int) -> Set[str]:
        return {_test_of(context) for context in self._known[name].get(line, ())}

    def _recorded_lines(self, name: str, source: str) -> List[int]:
        """For each line of `source`, from 1, that of the file that was recorded; 0: it is new."""
        key = name, source
        if key not in self._lines:
            before = Path(self._paths[name]).read_text().splitlines()
            current = source.splitlines()
            lines = [0] * (len(current) + 1)
            for block in difflib.SequenceMatcher(None, before, current, False
                                                 ).get_matching_blocks():
                for offset in range(1, block.size + 1):
                    lines[block.b + offset] = block.a + offset
            self._lines[key] = lines
        return self._lines[key]


def _test_of(context: str) -> str:
    """Contexts are node IDs with the phase of the test, as in "test_a.py::test_b|run"."""
    return context.rpartition('|')[0]
