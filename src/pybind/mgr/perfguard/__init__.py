# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard: keeps client I/O fast while a Ceph cluster changes."""
import importlib.util
import sys

from .version import VERSION  # noqa: F401

# ceph-mgr imports this package and looks for an MgrModule in it. Everywhere else, in the offline
# tool above all, there is no ceph_module (ceph-mgr builds it in; it is no file), and the pure
# packages must import without it. An error in .module itself is not caught: ceph-mgr reports it.
if 'ceph_module' in sys.modules or importlib.util.find_spec('ceph_module') is not None:
    from .module import Module, StandbyModule  # noqa: F401
