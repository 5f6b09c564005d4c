# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard: keeps client I/O fast while a Ceph cluster changes."""
import importlib.util
import sys

from .version import OLDEST_PYTHON, TOO_OLD, VERSION  # noqa: F401

# ceph-mgr imports this package and looks for an MgrModule in it. Everywhere else, in the offline
# tool above all, there is no ceph_module (ceph-mgr builds it in; it is no file), and the pure
# packages must import without it. An error in .module itself is not caught: ceph-mgr reports it.
_IN_MGR = 'ceph_module' in sys.modules or importlib.util.find_spec('ceph_module') is not None

# This file, version.py and too_old.py must also compile on older releases of Python.
if sys.version_info < OLDEST_PYTHON:
    if not _IN_MGR:
        sys.exit(TOO_OLD)
    from .too_old import TooOld  # noqa: F401
elif _IN_MGR:
    from .module import Module, StandbyModule  # noqa: F401
