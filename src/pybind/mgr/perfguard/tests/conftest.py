# SPDX-License-Identifier: LGPL-2.1-or-later
"""A stub in place of what only ceph-mgr has; and no test fails because the machine is busy."""
import sys
import types
from typing import Iterator

import pytest
from hypothesis import HealthCheck, settings

from .fakes import mgr_module

settings.register_profile('perfguard', deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile('perfguard')

#: Modules that import mgr_module, and those that import one of them.
IMPORTING = tuple('perfguard.' + name for name in (
    'cli', 'compat', 'module', 'cluster.mgr',
    'cluster.osd_commands', 'cluster.sensors'))


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
