# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which part of the package may import which, checked on the imports themselves."""
import ast
import copy
import importlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Dict, FrozenSet, Iterator, List, Mapping, Set, Tuple, get_type_hints

import pytest

from perfguard.rebalance.campaign import Campaign
from perfguard.store import RECORDS, VERIFIED

PACKAGE = Path(__file__).resolve().parents[1]
#: Nouns at the root that every part may use. They import one another and cluster/ alone.
SHARED = frozenset({'codec', 'errors', 'events', 'ledger', 'observation', 'options', 'store',
                    'tables', 'text', 'version', 'window', 'compat'})
#: The jobs, each with what it may import of the others.
JOBS: Mapping[str, FrozenSet[str]] = {
    'watch': frozenset(), 'rebalance': frozenset({'watch', 'upmap'}),
    'mitigation': frozenset({'watch', 'rebalance', 'upmap'}), 'probe': frozenset({'watch'}),
    'advise': frozenset()}
PARTS: Mapping[str, FrozenSet[str]] = {
    **JOBS, 'cluster': frozenset(), 'upmap': frozenset(), 'metrics': frozenset(JOBS),
    'web': frozenset(JOBS), 'why': frozenset({'watch', 'rebalance'}),
    'offline': frozenset({'rebalance', 'upmap', 'watch'})}
#: Modules of jobs that may touch the store, beside controllers.
STORES = frozenset({'mitigation.rescuing', 'probe.records', 'rebalance.awaiting',
                    'rebalance.campaign_store', 'rebalance.campaigns', 'rebalance.crush_orders',
                    'rebalance.plans', 'rebalance.replacing'})
#: Modules of jobs that may start threads or processes, beside controllers.
THREADS = frozenset({'probe.child'})
IO = frozenset({'concurrent', 'http', 'os', 'queue', 'select', 'shutil', 'socket', 'subprocess',
                'tempfile', 'threading', 'urllib'})
#: The process that does the I/O of probes, and perfguard-probe, are no part of the mgr.
WORKER = 'probe.worker'
CLIENT = 'probe.client'
#: Where untyped data enters or leaves, beside controllers, reports and tables: commands and pages,
#: Ceph's API and dumps, the store, processes outside the mgr, and text from operators.
EDGES = frozenset({
    'cli', 'web', 'offline', 'module', 'codec', 'compat', 'loop.loop', 'options', 'store', 'events',
    'request_queue', 'tables', 'cluster.dumps', 'cluster.inventory', 'cluster.mgr',
    'cluster.orchestrator', 'cluster.osd_commands', 'cluster.ports', 'cluster.sensors',
    'cluster.drive_health', 'cluster.tool_thread', 'cluster.types', 'metrics.endpoint',
    'probe.child', 'probe.client', 'probe.fio_json', 'probe.jobs', 'probe.osd_bench',
    'probe.records', 'probe.run', 'probe.worker',
    'rebalance.campaign_store.CampaignHistory', 'rebalance.campaign_store.campaign_record',
    'rebalance.queued.WaitingOrder', 'rebalance.settings',
    'status'})
EDGE_ROOMS = ('controller', 'report', 'tables')
CLOCKS = frozenset({'time', 'time_ns', 'monotonic', 'monotonic_ns', 'perf_counter', 'sleep',
                    'thread_time', 'process_time', 'now', 'today', 'utcnow'})


def _modules() -> Dict[str, ast.Module]:
    """By name below the package."""
    found: Dict[str, ast.Module] = {}
    for path in PACKAGE.rglob('*.py'):
        parts = path.relative_to(PACKAGE).with_suffix('').parts
        if parts[0] != 'tests':
            name = '.'.join(part for part in parts if part != '__init__')
            found[name] = ast.parse(path.read_text())
    return found


MODULES = _modules()


def _package(name: str) -> List[str]:
    parts = name.split('.') if name else []
    return parts if (PACKAGE.joinpath(*parts) / '__init__.py').exists() else parts[:-1]


def own_imports(name: str) -> Set[str]:
    """Modules of this package that a module imports."""
    found: Set[str] = set()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = _package(name)
            base = package[:len(package) - node.level + 1]
            source = '.'.join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = '.'.join(filter(None, (source, alias.name)))
                found.add(whole if whole in MODULES else source)
    return found


def foreign_imports(name: str) -> Set[str]:
    """First names of what a module imports from elsewhere."""
    found: Set[str] = set()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name.split('.')[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split('.')[0])
    return found


def part_of(name: str) -> str:
    """The folder of a module, or the module itself at the root."""
    return name.split('.')[0]


def in_jobs() -> Iterator[str]:
    return (name for name in MODULES
            if part_of(name) in JOBS and not name.startswith(WORKER) and name != CLIENT)


def edges() -> Iterator[Tuple[str, str]]:
    for name in MODULES:
        for source in own_imports(name):
            yield name, source


def documents() -> Iterator[str]:
    """Names of stored documents, or prefixes of several, that calls of the store name."""
    for name, module in MODULES.items():
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) \
                    and ast.unparse(call.func.value).endswith('store'):
                for part in (each for arg in call.args[:1] for each in ast.walk(arg)):
                    if isinstance(part, ast.Name) and part.id.isupper():
                        yield getattr(importlib.import_module('perfguard.' + name), part.id)


def test_every_document_describes_changes_of_the_cluster_or_is_a_record() -> None:
    found = {name for name in documents() if not name.startswith(VERIFIED)}
    assert len({*documents()}) > 20
    # The mark of the active mgr is read back before each record.
    assert {name.rstrip('/') for name in found} - RECORDS == {'owner'}


def test_every_import_of_the_package_is_known() -> None:
    assert {source for _, source in edges()} <= set(MODULES)
    assert sum(1 for _ in edges()) > 300


@pytest.mark.parametrize('part', PARTS)
def test_parts_import_only_what_lies_below_them(part: str) -> None:
    allowed = {part, 'cluster', *SHARED, *PARTS[part]} | (
        {'status'} if part in ('metrics', 'web') else set())
    wrong = sorted((name, source) for name, source in edges()
                   if part_of(name) == part and part_of(source) not in allowed)
    assert not wrong


def test_shared_modules_import_no_job() -> None:
    wrong = sorted((name, source) for name, source in edges()
                   if name in SHARED and part_of(source) not in SHARED | {'cluster'})
    assert not wrong


def test_no_package_imports_itself_through_others() -> None:
    below: Dict[str, Set[str]] = {}
    for name, source in edges():
        if part_of(name) in PARTS and part_of(source) in PARTS:
            below.setdefault(part_of(name), set()).add(part_of(source))
    left = {part: sources - {part} for part, sources in below.items()}
    while left:
        free = [part for part, sources in left.items() if not sources & set(left)]
        assert free, left
        for part in free:
            del left[part]


def test_only_the_shell_and_the_cluster_know_the_mgr() -> None:
    knowing = {name for name in MODULES if 'mgr_module' in foreign_imports(name)}
    assert {part_of(name) for name in knowing} <= {'cluster', 'module', 'compat', 'too_old'}
    assert 'module' in knowing


def test_only_processes_outside_the_mgr_know_librados() -> None:
    knowing = {name for name in MODULES if 'rados' in foreign_imports(name)}
    assert 'offline.sources' in knowing and any(name.startswith(WORKER) for name in knowing)
    assert all(name == 'offline.sources' or name.startswith(WORKER) for name in knowing)


def test_only_controllers_and_archives_touch_the_store() -> None:
    """Also through a context that has it."""
    touching = {name for name in in_jobs() if 'store' in own_imports(name) or any(
        isinstance(node, ast.Attribute) and ast.unparse(node).endswith('context.store')
        for node in ast.walk(MODULES[name]))}
    assert {name for name in touching if not name.endswith('.controller')} == STORES


def test_only_controllers_and_archives_start_threads() -> None:
    starting = {name for name in in_jobs() if foreign_imports(name) & IO}
    assert {name for name in starting if not name.endswith('.controller')} == THREADS


def test_rules_read_no_clock() -> None:
    """Time is an argument; turning it into the hour of a day is no reading of a clock."""
    reading = [
        (name, node.func.attr) for name in in_jobs() for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name) and node.func.attr in CLOCKS
        and node.func.value.id in ('time', 'date', 'datetime')]
    assert not reading


def test_the_mgr_has_one_clock() -> None:
    """The log of the mons has times of their wall clocks; other processes have clocks of their own.
    """
    reading = {name for name in MODULES for node in ast.walk(MODULES[name])
               if isinstance(node, ast.Attribute) and node.attr in ('time', 'time_ns')
               and isinstance(node.value, ast.Name) and node.value.id == 'time'}
    assert {name for name in reading if not name.startswith((CLIENT, 'offline'))} == {
        'clock', 'cluster.mgr'}


def test_rules_at_the_root_read_no_clock_and_do_no_io() -> None:
    pure = SHARED - {'store', 'compat'}
    assert not [name for name in pure & set(MODULES) if foreign_imports(name) & IO]


def test_no_class_name_occurs_twice() -> None:
    found: Dict[str, List[str]] = {}
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    assert len(found) > 200
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


def _untyped(node: ast.AST, place: str) -> Iterator[str]:
    """Where a module uses Any or Json, except where data is read from JSON or made of it, and for
    fields that are passed on to dataclasses.replace."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if 'json' not in child.name and not child.name.startswith(('load', 'from_dump')):
                child.args.kwarg = None
                yield from _untyped(child, '%s.%s' % (place, child.name))
        elif isinstance(child, ast.ClassDef):
            yield from _untyped(child, '%s.%s' % (place, child.name))
        elif isinstance(child, ast.Name) and child.id in ('Any', 'Json'):
            yield place
        else:
            yield from _untyped(child, place)


def test_only_edges_have_untyped_data() -> None:
    """All else uses types that mypy checks; a Document is stored or shown, and not read."""
    used: Set[str] = set()
    wrong: List[str] = []
    for name, tree in MODULES.items():
        if name.split('.')[-1] in EDGE_ROOMS and '.' in name:
            continue
        for place in _untyped(copy.deepcopy(tree), name):
            parts = place.split('.')
            found = {'.'.join(parts[:size]) for size in range(1, len(parts) + 1)} & EDGES
            used |= found
            if not found:
                wrong.append(place)
    assert not wrong
    assert used == EDGES


def _constants(node: ast.stmt) -> Iterator[Tuple[str, str]]:
    """The public constants that a statement defines, also several in one, and their values."""
    targets = node.targets if isinstance(node, ast.Assign) else \
        [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, 'value', None)
    for target in targets:
        rows = zip(target.elts, value.elts) if isinstance(target, ast.Tuple) and isinstance(
            value, ast.Tuple) else [(target, value)]
        for name, part in rows:
            if isinstance(name, ast.Name) and name.id.isupper() and part is not None \
                    and not name.id.startswith('_'):
                yield name.id, ast.unparse(part)


def test_no_constant_has_two_values() -> None:
    values: Dict[str, Set[str]] = {}
    for tree in MODULES.values():
        for node in tree.body:
            for name, value in _constants(node):
                values.setdefault(name, set()).add(value)
    assert len(values) > 900 and not {name for name, found in values.items() if len(found) > 1}


def test_no_option_of_osds_has_two_constants() -> None:
    places: Dict[str, List[str]] = {}
    for module, tree in MODULES.items():
        for node in tree.body:
            for name, value in _constants(node):
                if value.startswith("'osd_"):
                    places.setdefault(value, []).append('%s.%s' % (module, name))
    assert len(places) > 8 and not {option: found for option, found in places.items()
                                    if len(found) > 1}


# ---- Decisions are data

#: Modules with rules that take a draft of a decision and return the next one, or read it.
DECIDING = sorted(name for name in MODULES if any(
    isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name)
    and node.annotation.id in ('Draft', '_Draft') for node in ast.walk(MODULES[name])))


def _is_dropped(node: ast.AST) -> bool:
    """Whether a statement drops what a function returns; those that refuse return nothing."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    if isinstance(called, ast.Name):
        return not called.id.lstrip('_').startswith('refuse')
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) \
        and called.value.id == 'draft'


@pytest.mark.parametrize('name', DECIDING)
def test_rules_have_no_effect_but_what_they_return(name: str) -> None:
    """A draft is frozen, so only a dropped result could be meant as an effect."""
    assert not [node.lineno for node in ast.walk(MODULES[name]) if _is_dropped(node)]


def test_only_the_loop_journals_and_acts() -> None:
    """The rules of a campaign, and of mitigations, reach neither the store nor commands of the
    cluster."""
    assert len(DECIDING) > 6 and 'mitigation.ladder' in DECIDING
    assert not {source for name in DECIDING for source in own_imports(name)} & {
        'store', 'rebalance.executor', 'cluster.mgr', 'cluster.osd_commands'}


def _calls(name: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(MODULES[name]) if isinstance(node, ast.Call))


def test_groups_of_a_campaign_are_replaced_by_fields_that_they_have() -> None:
    """mypy does not check the arguments of `replace`."""
    fields_of = {group: {field.name for field in fields(kind)}
                 for group, kind in get_type_hints(Campaign).items() if is_dataclass(kind)}
    checked, wrong = 0, []
    for name in MODULES:
        for call in _calls(name):
            if not (isinstance(call.func, ast.Name) and call.func.id == 'replace'):
                continue
            group = call.args[0].attr if isinstance(call.args[0], ast.Attribute) else \
                call.args[0].id if isinstance(call.args[0], ast.Name) else ''
            if group in fields_of and part_of(name) == 'rebalance':
                checked += 1
                wrong += ['%s line %d: %s' % (name, call.lineno, keyword.arg)
                          for keyword in call.keywords if keyword.arg not in fields_of[group]]
    assert checked > 40 and not wrong


def test_drafts_set_fields_that_campaigns_have() -> None:
    """`Draft.set` has no types."""
    known = {field.name for field in fields(Campaign)}
    used = {keyword.arg for name in DECIDING for call in _calls(name)
            if isinstance(call.func, ast.Attribute) and call.func.attr == 'set'
            for keyword in call.keywords if keyword.arg is not None}
    assert 'pinning' in used and used <= known
