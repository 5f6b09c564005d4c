# SPDX-License-Identifier: LGPL-2.1-or-later
"""python3 -m perfguard.offline"""
import sys

from .command import main

sys.exit(main())
