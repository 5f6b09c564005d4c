# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands. Importing this package registers them with Ceph."""
from .probe import ProbeCommands
from .rebalance import RebalanceCommands
from .watch import WatchCommands


class Commands(WatchCommands, RebalanceCommands, ProbeCommands):
    """The handlers; module.Module inherits them."""
