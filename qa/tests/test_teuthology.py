# SPDX-License-Identifier: LGPL-2.1-or-later
"""What Ceph's own framework would run, on a cluster of ours: qa/tasks and qa/suites."""
import importlib.util
import re
import unittest
from pathlib import Path

import pytest

from qa.lib.guard import Guard
from qa.lib.teuthology import framework

QA = Path(__file__).resolve().parents[1]
TASK = QA / 'tasks' / 'mgr' / 'test_perfguard.py'


@pytest.mark.releases('pacific', 'tentacle', quick=())
@pytest.mark.shares('campaign')
def test_the_task_passes(guard: Guard) -> None:
    with framework(guard.cluster):
        spec = importlib.util.spec_from_file_location('test_perfguard', TASK)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    assert result.testsRun == 3 and not result.skipped
    assert result.wasSuccessful(), result.failures + result.errors


def test_the_suite_names_the_task() -> None:
    suite = (QA / 'suites/rados/mgr/tasks/4-units/perfguard.yaml').read_text()
    named = re.findall(r'- tasks\.(\S+)$', suite, re.MULTILINE)
    assert [QA.joinpath('tasks', *name.split('.')).with_suffix('.py') for name in named] == [TASK]
