# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands. Importing this package registers them with Ceph."""
from .campaign import CampaignCommands
from .changes import ChangeCommands
from .probe import ProbeCommands
from .watch import WatchCommands


class Commands(WatchCommands, ChangeCommands, CampaignCommands, ProbeCommands):
    """The handlers; module.Module inherits them."""
