# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which tests run a line of the module: what pytest --cov --cov-context=test has recorded."""
from pathlib import Path
from typing import Dict, FrozenSet, List, Sequence

import coverage

#: The name of what runs while no test does: imports.
IMPORT = ''


class Covering:
    """The tests that have run each line."""

    def __init__(self, recorded: Path, package: str) -> None:
        """`recorded`: the data file. `package`: the end of the path of the module's folder, as in
        "src/pybind/mgr/perfguard/"."""
        self._data = coverage.CoverageData(str(recorded))
        self._data.read()
        self._recorded_at = recorded.stat().st_mtime
        self._paths: Dict[str, Path] = {}
        for path in self._data.measured_files():
            _, mark, name = path.partition(package)
            if mark:
                self._paths[package + name] = Path(path)
        #: The tests that were recorded.
        self.tests = frozenset(_test_of(context) for context in self._data.measured_contexts())
        self._known: Dict[str, Dict[int, List[str]]] = {}

    def tests_of(self, name: str, source: str, lines: Sequence[int]) -> FrozenSet[str]:
        """The tests, by node ID, that run any of the lines (from 1) of a file; with IMPORT, if
        they run while it is imported. If the file has changed since, its lines are not known: then
        the tests that run any of it."""
        if name not in self._paths:
            return frozenset()
        if name not in self._known:
            self._known[name] = self._data.contexts_by_lineno(str(self._paths[name]))
        contexts = self._known[name]
        if not self._has_changed(name, source):
            return frozenset(_test_of(context) for line in lines
                             for context in contexts.get(line, ()))
        return frozenset(_test_of(context) for line in contexts
                         for context in contexts[line]) - {IMPORT}

    def _has_changed(self, name: str, source: str) -> bool:
        path = self._paths[name]
        return path.stat().st_mtime > self._recorded_at or path.read_text() != source


def _test_of(context: str) -> str:
    """Contexts are node IDs with the phase of the test, as in "test_a.py::test_b|run"."""
    return context.rpartition('|')[0]
