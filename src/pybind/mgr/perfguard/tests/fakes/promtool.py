# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prometheus' own word on rules and metrics."""
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*argv: str, cwd: Path = Path('.'), given: bytes = b'') -> str:
    """Its output; the test fails if promtool reports an error or is not installed: a skipped test
    would go unnoticed."""
    if shutil.which('promtool') is None:
        pytest.fail("promtool is missing: run install-deps.sh, or install Debian's package "
                    'prometheus', pytrace=False)
    done = subprocess.run(['promtool', *argv], cwd=cwd, input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    printed = done.stdout.decode('utf-8', 'replace')
    assert done.returncode == 0, printed
    return printed
