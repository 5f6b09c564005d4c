# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prometheus' own word on rules and metrics."""
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*argv: str, cwd: Path = Path('.'), given: bytes = b'') -> str:
    """What it prints; the test fails if it is not content, or not there: a test that is skipped
    where a tool is missing is one that nobody misses."""
    if shutil.which('promtool') is None:
        pytest.fail("promtool is missing: run install-deps.sh, or install Debian's package "
                    'prometheus', pytrace=False)
    done = subprocess.run(['promtool', *argv], cwd=cwd, input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    printed = done.stdout.decode('utf-8', 'replace')
    assert done.returncode == 0, printed
    return printed
