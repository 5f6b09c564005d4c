# SPDX-License-Identifier: LGPL-2.1-or-later
"""Takes the place of the module in a ceph-mgr whose Python cannot compile the other files."""
from typing import Tuple

from mgr_module import MgrModule

from .version import TOO_OLD


class TooOld(MgrModule):
    @staticmethod
    def can_run() -> Tuple[bool, str]:
        """`ceph mgr module ls` and `enable` show the reason."""
        return False, TOO_OLD
