# SPDX-License-Identifier: LGPL-2.1-or-later
"""Hostile arguments for every command and every REST route.

Each is answered within a second, in one line with an errno or with data, never with an exception,
and what is refused sends nothing to the cluster. What was found once is an example of its own.
"""
import errno
import inspect
import json
import os
import time
import types
from typing import Any, Callable, Dict, List, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perfguard.web.routes import ROUTES, BadField, Route, arguments

from .fakes.driver import Driver
from .fakes.probe_cluster import ProbeCluster, fake_children
from .test_cli import Shell

#: The handlers of cli/, by the method that the REST API calls.
HANDLERS = sorted(route.handler for route in ROUTES)
#: Longest line of a refusal: what is quoted must be cut.
LONGEST = 1000
#: CPU time of a command, which is less than wall-clock time on a busy machine. The slowest of
#: 24,000 took 0.05 s.
ANSWER_SECONDS = 1.0

HOSTILE = (
    '', ' ', '-', '--', '0', '-1', '1e999', 'nan', 'inf', '1_0', '٣', '4k', '-4k', '99999999999t',
    '0x10', 'true', 'all', 'osd.', 'osd.-1', 'osd.0', 'osd.99999999999999999999', '0', 'h0',
    '../../etc/passwd', 'a/b', '%s%n', '%(x)s', '{0.__class__}', '$(reboot)', '`id`', ';', '\n',
    'a\nb', '\x00', '\x1b[2J', '"><script>', "'", '"', '\\', '\ud800', '\U0001f4a9', 'a' * 5000,
    '.mgr', 'rbd', '[global]\nrw=read', '[a]\nioengine=libaio\nfilename=/dev/sda\n',
    'LAGGY_PGS', 'None', '[]', '{}', '{"a": 1}', '9' * 5000)
TEXTS = st.one_of(st.sampled_from(HOSTILE),
                  st.text(st.characters(blacklist_categories=()), max_size=20))
INTEGERS = st.one_of(st.sampled_from((0, 1, -1, 2 ** 31, 2 ** 63 - 1, -2 ** 63)),
                     st.integers(-2 ** 63, 2 ** 63 - 1))
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
BOOLEANS = st.booleans()
LISTS = st.lists(TEXTS, max_size=4)
#: Annotation of a parameter -> what ceph-mgr may hand over.
GIVEN: Dict[Any, Any] = {str: TEXTS, int: INTEGERS, float: FLOATS, bool: BOOLEANS,
                         List[str]: LISTS}
#: Any JSON, for a field of the REST API.
JSON = st.recursive(st.one_of(st.none(), BOOLEANS, INTEGERS, FLOATS, TEXTS),
                    lambda each: st.one_of(st.lists(each, max_size=3),
                                           st.dictionaries(TEXTS, each, max_size=2)),
                    max_leaves=4)

#: For each test: one minute in all, always the same, in the quick tier; ten minutes, those of
#: PERFGUARD_SEED, at night.
EXAMPLES = int(os.environ.get('PERFGUARD_FUZZ', '60'))
fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


def fuzz(of: st.SearchStrategy, found: Sequence[Any], try_: Callable[[Any], None]) -> None:
    """Try what was found before, and more of the kind."""
    test = given(of)(lambda each: try_(each))
    for each in found:
        test = example(each)(test)
    fuzzed(test)()


#: Method -> arguments that it has not answered as it should.
FOUND: Dict[str, List[Dict[str, Any]]] = {
    # An unpaired surrogate in a file.
    'crushmap': [{'inbuf': '# begin crush map\n\ud800\n'}, {'inbuf': '\ud800'}],
    'import_mappings': [{'inbuf': '[{"pgid": "\ud800"}]'}, {'inbuf': '\ud800'}],
    # Quoted as a whole, and in several lines.
    'drain': [{'what': ['a' * 5000]}, {'what': ['a\nb']}],
    'why': [{'what': 'a' * 5000}, {'what': '\x1b[2J'}]}


@pytest.fixture
def shell(mgr_stub: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> Shell:
    from perfguard.cli import shell
    monkeypatch.setattr(shell, 'MOST_PATIENCE_SECONDS', 0.0)
    fake_children(monkeypatch)
    return Shell(Driver(ProbeCluster()))


def new_cluster(shell: Shell) -> None:
    """Nothing is left of the last example. Orders are answered in this thread."""
    shell.driver = Driver(ProbeCluster())
    loop = shell.module.loop = shell.driver.loop
    setattr(loop, 'ask', lambda order, again=False: shell.driver.give(order))


def arguments_of(handler: Any) -> st.SearchStrategy:
    required: Dict[str, Any] = {}
    optional: Dict[str, Any] = {}
    for parameter in list(inspect.signature(handler).parameters.values())[1:]:
        kind = parameter.annotation
        kind = next((each for each in getattr(kind, '__args__', ()) if each in GIVEN),
                    kind) if kind not in GIVEN else kind
        (required if parameter.default is inspect.Parameter.empty
         else optional)[parameter.name] = GIVEN[kind]
    return st.fixed_dictionaries(required, optional=optional)


def check(shell: Shell, handler: str, given_: Dict[str, Any]) -> None:
    new_cluster(shell)
    cluster = shell.driver.cluster
    sent, stored = len(cluster.sent), dict(cluster.config)
    begin = time.process_time()
    retval, out, error = getattr(shell.module, handler)(**given_)
    assert time.process_time() - begin <= ANSWER_SECONDS
    # What ceph-mgr cannot encode is a traceback of its own.
    assert out.encode() is not None and error.encode() is not None
    if retval == 0:
        assert not error
        if given_.get('format', 'plain') != 'plain':
            json.loads(out)
    else:
        assert -retval in errno.errorcode and not out
        assert error.strip() and error.isprintable() and len(error) <= LONGEST, error
        assert len(cluster.sent) == sent and cluster.config == stored
    # Nor does what was accepted end the loop.
    shell.driver.run(2)


@pytest.mark.parametrize('handler', HANDLERS)
def test_commands(handler: str, shell: Shell) -> None:
    fuzz(arguments_of(getattr(shell.module, handler).__func__), FOUND.get(handler, ()),
         lambda given_: check(shell, handler, given_))


def test_what_was_found_is_about_commands_that_exist() -> None:
    assert set(FOUND) <= set(HANDLERS)


@pytest.mark.parametrize('route', ROUTES, ids=lambda route: route.handler)
def test_routes(route: Route, shell: Shell) -> None:
    def try_(fields: Dict[str, Any]) -> None:
        try:
            taken = arguments(route.fields, fields)
        except BadField as bad:
            assert '\n' not in str(bad) and len(str(bad)) <= LONGEST and str(bad).encode()
            return
        check(shell, route.handler, {**taken, 'format': 'json'})

    fields: Dict[Any, Any] = {field.name: JSON for field in route.fields}
    known = st.fixed_dictionaries({}, optional=fields)
    others = st.integers(0, 9).flatmap(lambda number: st.dictionaries(
        TEXTS, JSON, min_size=1, max_size=1) if number == 0 else st.just({}))
    fuzz(st.tuples(known, others).map(lambda both: {**both[0], **both[1]}),
         FOUND.get(route.handler, ()), try_)
