# SPDX-License-Identifier: LGPL-2.1-or-later
"""The process that does a probe's I/O, so that ceph-mgr never waits for it.

Nothing that this file imports needs rados: the mgr imports it to start the process.
"""
import os
from typing import List

#: sys.executable is empty inside ceph-mgr.
PYTHON = '/usr/bin/python3'


def argv() -> List[str]:
    """The command that starts a worker, whatever the environment and the working directory.

    -I: neither PYTHON* variables nor the user's packages count; -B: no .pyc files are left.
    """
    return [PYTHON, '-I', '-B', os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                             '__main__.py')]
