# SPDX-License-Identifier: LGPL-2.1-or-later
"""Mutants: copies of the module with one small fault each, and the tests that should notice it.

Pure: from source texts to mutants and names of tests. qa/mutate.py runs them.
"""
import ast
import difflib
import random
import re
from collections import deque
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

#: Operators: "swap" turns a comparison round, "boundary" moves it by the case of equality.
SWAPS: Dict[str, str] = {'<': '>', '>': '<', '<=': '>=', '>=': '<=', '==': '!=', '!=': '==',
                         'in': 'not in', 'not in': 'in', 'is': 'is not', 'is not': 'is'}
BOUNDARIES: Dict[str, str] = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}
_COMPARISON = re.compile(rb'<=|>=|==|!=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\b|\bis\b')
_MODULE = re.compile(r'\w+(\.\w+)+$')
_JOINER = re.compile(rb'\b(and|or)\b')
#: Calls whose removal no test has to notice.
QUIET = frozenset({'log'})


@dataclass(frozen=True)
class Mutant:
    """One change of one file, in bytes of its text."""
    path: str
    operator: str
    line: int
    begin: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        return source[:self.begin] + self.text + source[self.end:]

    def diff(self, source: bytes) -> str:
        before, after = (text.decode().splitlines(keepends=True)
                         for text in (source, self.apply(source)))
        return ''.join(difflib.unified_diff(before, after, self.path, self.path, n=1))


def mutants_of(path: str, source: bytes) -> List[Mutant]:
    """Every mutant of one file; some may not compile."""
    return list(_Finder(path, source).mutants())


def compiles(mutant: Mutant, source: bytes) -> bool:
    try:
        compile(mutant.apply(source), mutant.path, 'exec')
    except SyntaxError:
        return False
    return True


class Place(NamedTuple):
    """Where a mutant is. `function`, `first_line`: the outermost function or lambda around it, as
    code objects name it. `lines`: those of its statement, up to the end of the mutated text."""
    function: str
    first_line: int
    lines: range


def place_of(mutant: Mutant, source: bytes) -> Place:
    lines = source.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    starts = [0]
    for text in lines:
        starts.append(starts[-1] + len(text))
    function, first_line, statement = '', 0, mutant.line
    pending: List[ast.AST] = [ast.parse(source)]
    while pending:
        for node in ast.iter_child_nodes(pending.pop()):
            if isinstance(node, (ast.expr, ast.stmt, ast.ExceptHandler)):
                if not (offset(node.lineno, node.col_offset) <= mutant.begin and mutant.end
                        <= offset(node.end_lineno or 0, node.end_col_offset or 0)):
                    continue
                if isinstance(node, ast.stmt):
                    statement = node.lineno
                if not function and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    function = node.name
                    first_line = min([node.lineno, *(decorator.lineno for decorator in
                                                     node.decorator_list)])
                elif not function and isinstance(node, ast.Lambda):
                    function, first_line = '<lambda>', node.lineno
            pending.append(node)
    last = source.count(b'\n', 0, mutant.end) + 1
    return Place(function, first_line, range(statement, max(statement, last) + 1))


class _Finder:
    """Finds the places of one file that an operator applies to."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        for node in self._places(ast.parse(self._source), False):
            yield from self._of(node)

    def _places(self, node: ast.AST, inside: bool) -> Iterator[ast.AST]:
        """The nodes within functions, without annotations and decorators."""
        if inside:
            yield node
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for name, value in ast.iter_fields(node):
            if name in ('annotation', 'returns', 'decorator_list', 'args', 'bases'):
                # The arguments of calls have this name as well.
                if name != 'args' or not isinstance(node, ast.Call):
                    continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._places(child, inside)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            yield from self._comparisons(node)
        elif isinstance(node, ast.BoolOp):
            yield self._joined(node)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield self._negated(node.test)
        elif isinstance(node, ast.comprehension):
            yield from map(self._negated, node.ifs)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._mutant('negation', node, b'bool(%s)' % self._text(node.operand))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            for change in (1, -1):
                yield self._mutant('constant', node, b'%r' % (node.value + change)
                                   if node.value + change >= 0 else b'(%r)' % (node.value + change))
        elif isinstance(node, ast.Return) and node.value is not None and not (
                isinstance(node.value, ast.Constant) and node.value.value is None):
            # To most callers, None is the same as False.
            false = isinstance(node.value, ast.Constant) and node.value.value is False
            yield self._mutant('return', node, b'return True' if false else b'return None')
        elif _is_effect(node):
            yield self._mutant('removal', node, b'pass')

    def _comparisons(self, node: ast.Compare) -> Iterator[Mutant]:
        sides = [node.left, *node.comparators]
        for left, right in zip(sides, sides[1:]):
            begin, end = self._at(left)[1], self._at(right)[0]
            match = _COMPARISON.search(self._source, begin, end)
            if match is None:
                continue
            sign = ' '.join(match.group().decode().split())
            for operator, table in (('swap', SWAPS), ('boundary', BOUNDARIES)):
                if sign in table:
                    yield Mutant(self._path, operator, node.lineno, match.start(), match.end(),
                                 table[sign].encode())

    def _joined(self, node: ast.BoolOp) -> Mutant:
        other = b'or' if isinstance(node.op, ast.And) else b'and'
        begin, end = self._at(node)
        text, done = b'', begin
        for left, right in zip(node.values, node.values[1:]):
            gap = self._at(left)[1], self._at(right)[0]
            text += self._source[done:gap[0]] + _JOINER.sub(other, self._source[gap[0]:gap[1]])
            done = gap[1]
        return self._mutant('and/or', node, text + self._source[done:end])

    def _negated(self, node: ast.expr) -> Mutant:
        return self._mutant('negation', node, b'not (%s)' % self._text(node))

    def _mutant(self, operator: str, node: ast.AST, text: bytes) -> Mutant:
        begin, end = self._at(node)
        return Mutant(self._path, operator, getattr(node, 'lineno'), begin, end, text)

    def _text(self, node: ast.AST) -> bytes:
        begin, end = self._at(node)
        return self._source[begin:end]

    def _at(self, node: ast.AST) -> Tuple[int, int]:
        return (self._starts[getattr(node, 'lineno') - 1] + getattr(node, 'col_offset'),
                self._starts[getattr(node, 'end_lineno') - 1] + getattr(node, 'end_col_offset'))


def _is_effect(node: ast.AST) -> bool:
    """Whether a statement changes something: it can be removed, and a test should notice."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        return not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
                    and function.value.id in QUIET)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, ast.AugAssign)


# ---- Choice

def choose(sources: Mapping[str, bytes], number: int, seed: int) -> List[Mutant]:
    """Mutants by chance: of each folder as its share of the lines of code, of each file as its
    share of the places, and of each operator at a place alike."""
    chance = random.Random(seed)
    folders: Dict[str, List[str]] = {}
    for path in sorted(sources):
        folders.setdefault(str(PurePosixPath(path).parent), []).append(path)
    lines = {folder: sum(_lines(sources[path]) for path in paths)
             for folder, paths in folders.items()}
    found: Dict[str, List[Mutant]] = {}
    chosen: List[Mutant] = []
    for _ in range(20 * number):
        if len(chosen) == number:
            break
        folder, = chance.choices(list(lines), list(lines.values()))
        if folder not in found:
            found[folder] = [mutant for path in folders[folder]
                             for mutant in mutants_of(path, sources[path])]
        if found[folder]:
            mutant = chance.choice(found[folder])
            if mutant not in chosen and compiles(mutant, sources[mutant.path]):
                chosen.append(mutant)
    return chosen


def _lines(source: bytes) -> int:
    """Lines of code: neither empty nor comments."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith(
        b'#'))


# ---- The tests that import a file

class Reach(NamedTuple):
    """A file of tests, and how many imports lie between it and the mutated file."""
    path: str
    distance: int


def imports_of(path: str, source: bytes, package: str) -> Set[str]:
    """The modules that a file may import, by name. `package`: the directory above the package of
    all of them, as in "src/pybind/mgr"."""
    parts = list(PurePosixPath(path).relative_to(package).with_suffix('').parts)
    found: Set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = parts[:len(parts) - node.level] if node.level else []
            name = '.'.join([*base, *([node.module] if node.module else [])])
            found |= {name} | {'%s.%s' % (name, alias.name) for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and _MODULE.match(node.value):
            # The argument of import_module, or the place that a test replaces.
            words = node.value.split('.')
            found |= {'.'.join(words[:number]) for number in range(2, len(words) + 1)}
    return found


def importers_of(files: Mapping[str, bytes], package: str) -> Dict[str, Set[str]]:
    """File -> the files that import it."""
    names = {_module(path, package): path for path in files}
    importers: Dict[str, Set[str]] = {path: set() for path in files}
    for path, source in files.items():
        for name in imports_of(path, source, package) & names.keys():
            importers[names[name]].add(path)
    return importers


def importing_tests(mutated: str, importers: Mapping[str, Set[str]]) -> List[Reach]:
    """Files of tests that import `mutated`, in the order in which they are likely to notice: those
    named after it, which may import it through others only, then the closest."""
    distance = {mutated: 0}
    queue = deque([mutated])
    while queue:
        path = queue.popleft()
        for importer in importers[path] - distance.keys():
            distance[importer] = distance[path] + 1
            queue.append(importer)
    folder, stem = PurePosixPath(mutated).parent.name, PurePosixPath(mutated).stem
    tests = [Reach(path, far) for path, far in distance.items()
             if PurePosixPath(path).name.startswith('test_')]

    def order(reach: Reach) -> Tuple[bool, int, bool, bool, str]:
        path = PurePosixPath(reach.path)
        is_named, is_near = stem in path.stem, path.parent.name == folder
        return not (is_named and is_near), reach.distance, not is_named, not is_near, reach.path

    return sorted(tests, key=order)


def _module(path: str, package: str) -> str:
    parts = PurePosixPath(path).relative_to(package).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def within(tests: Sequence[Reach], seconds: Mapping[str, float], budget: float,
           unknown: float = 5.0) -> List[str]:
    """As many of the tests as take `budget` seconds, at least one. `seconds`: by file."""
    chosen: List[str] = []
    left = budget
    for test in tests:
        cost = seconds.get(test.path, unknown)
        if chosen and cost > left:
            continue
        left -= cost
        chosen.append(test.path)
    return chosen
