# SPDX-License-Identifier: LGPL-2.1-or-later
"""The process that does the I/O of a probe, so that ceph-mgr never waits for it.

The mgr imports this file to start the process: nothing that it imports needs rados.
"""
import os
from typing import List

#: sys.executable is empty inside ceph-mgr.
PYTHON = '/usr/bin/python3'
HERE = os.path.dirname(os.path.abspath(__file__))


def argv() -> List[str]:
    """The command that starts a worker, independent of environment and working directory.

    -I: neither PYTHON* variables nor the user's packages count; -B: no .pyc files are left.
    """
    return [PYTHON, '-I', '-B', os.path.join(HERE, '__main__.py')]
