# SPDX-License-Identifier: LGPL-2.1-or-later
"""Hostile arguments for every command and every REST route.

Each is answered in one line with an errno or with data, never with an exception, and what is
refused sends nothing to the cluster.
"""
import errno
import inspect
import json
import os
import types
from typing import Any, Dict, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfguard.web.routes import ROUTES, BadField, Route, arguments

from .fakes.driver import Driver
from .fakes.probe_cluster import ProbeCluster, fake_children
from .test_cli import Shell

#: The handlers of cli/, by the method that the REST API calls.
HANDLERS = sorted(route.handler for route in ROUTES)
#: Longest line of a refusal: what is quoted must be cut.
LONGEST = 1000

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

#: For each test: one minute in all, always the same, in the quick tier; ten minutes, other examples
#: each time, at night.
EXAMPLES = int(os.environ.get('PERFGUARD_FUZZ', '60'))
fuzzed = settings(max_examples=EXAMPLES, derandomize='PERFGUARD_FUZZ' not in os.environ,
                  deadline=None, suppress_health_check=list(HealthCheck))


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


def arguments_of(draw: Any, handler: Any) -> Dict[str, Any]:
    found = {}
    for parameter in list(inspect.signature(handler).parameters.values())[1:]:
        optional = parameter.default is not inspect.Parameter.empty
        if optional and not draw(BOOLEANS):
            continue
        kind = parameter.annotation
        kind = next((each for each in getattr(kind, '__args__', ()) if each in GIVEN),
                    kind) if kind not in GIVEN else kind
        found[parameter.name] = draw(GIVEN[kind])
    return found


def check(shell: Shell, handler: str, given_: Dict[str, Any]) -> None:
    new_cluster(shell)
    cluster = shell.driver.cluster
    sent, stored = len(cluster.sent), dict(cluster.config)
    retval, out, error = getattr(shell.module, handler)(**given_)
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
    @fuzzed
    @given(st.data())
    def fuzz(data: Any) -> None:
        check(shell, handler, arguments_of(data.draw, getattr(shell.module, handler).__func__))

    fuzz()


@pytest.mark.parametrize('route', ROUTES, ids=lambda route: route.handler)
def test_routes(route: Route, shell: Shell) -> None:
    @fuzzed
    @given(st.data())
    def fuzz(data: Any) -> None:
        names = [field.name for field in route.fields]
        fields = {name: data.draw(JSON) for name in names if data.draw(BOOLEANS)}
        if data.draw(st.integers(0, 9)) == 0:
            fields[data.draw(TEXTS)] = data.draw(JSON)
        try:
            taken = arguments(route.fields, fields)
        except BadField as bad:
            assert '\n' not in str(bad) and len(str(bad)) <= LONGEST and str(bad).encode()
            return
        check(shell, route.handler, {**taken, 'format': 'json'})

    fuzz()
