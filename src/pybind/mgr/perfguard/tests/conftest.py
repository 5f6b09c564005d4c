# SPDX-License-Identifier: LGPL-2.1-or-later
"""A stub of the modules that only ceph-mgr has; and no test fails because the machine is busy.

Hypothesis draws the same examples in each run, so that a failure is repeatable. With PERFGUARD_FUZZ
or PERFGUARD_STORIES, it draws others: they depend on a seed that is printed, PERFGUARD_SEED.
"""
import sys
import types
from typing import Any, Iterator

import pytest
from hypothesis import HealthCheck, core, settings

from .fakes import mgr_module
from .fakes.seeds import FRESH, SEED, VARIABLE
from .fakes.zones import in_zone

settings.register_profile('perfguard', deadline=None, derandomize=not FRESH, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile('perfguard')

#: Modules that import mgr_module, and those that import one of them.
IMPORTING = tuple('perfguard.' + name for name in (
    'cli', 'compat', 'module', 'cluster.mgr',
    'cluster.osd_commands', 'cluster.sensors'))


def pytest_configure(config: pytest.Config) -> None:
    # As --hypothesis-seed does, which replaces it.
    if core.global_force_seed is None:
        setattr(core, 'global_force_seed', SEED)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FRESH:
        terminalreporter.write_line('%s=%d' % (VARIABLE, SEED))


@pytest.fixture(scope='module')
def mgr_stub() -> Iterator[types.ModuleType]:
    """mgr_module while the tests of one file run; what imports it is imported anew."""
    saved = {name: sys.modules.pop(name, None) for name in ('mgr_module', *IMPORTING)}
    sys.modules['mgr_module'] = module = mgr_module.made()
    yield module
    for name, before in saved.items():
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before


@pytest.fixture
def utc() -> Iterator[None]:
    """Local time is UTC."""
    with in_zone('UTC'):
        yield
