# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real Ceph clusters on the loopback address, for tests and benches."""

from .cluster import Cluster
from .errors import ClusterError, CommandError, WaitTimeout
from .load_control import Load

__all__ = ['Cluster', 'ClusterError', 'CommandError', 'Load', 'WaitTimeout']
