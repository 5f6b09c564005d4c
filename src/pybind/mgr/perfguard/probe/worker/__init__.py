# SPDX-License-Identifier: LGPL-2.1-or-later
"""The process that does the I/O of a probe, so that ceph-mgr never waits for it.

The mgr imports this file to start the process: nothing that it imports needs rados.
"""
import os
import re
from typing import List

#: sys.executable is empty inside ceph-mgr.
PYTHON = '/usr/bin/python3'
HERE = os.path.dirname(os.path.abspath(__file__))


def argv() -> List[str]:
    """The command that starts a worker, independent of environment and working directory.

    -I: neither PYTHON* variables nor the user's packages count; -B: no .pyc files are left.
    """
    return [PYTHON, '-I', '-B', os.path.join(HERE, '__main__.py')]


def installed_version(path: str = os.path.join(HERE, '..', '..', 'version.py')) -> str:
    """The version that a worker has if it is started now: that of the installed files, which an
    upgrade replaces before the mgr is restarted; '' if unknown."""
    try:
        with open(path, encoding='utf-8') as file:
            found = re.search(r"^VERSION = '([^']*)'", file.read(), re.MULTILINE)
    except (OSError, ValueError):
        return ''
    return found[1] if found else ''
