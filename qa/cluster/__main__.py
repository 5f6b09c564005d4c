# SPDX-License-Identifier: LGPL-2.1-or-later
"""python3 -m qa.cluster: see cli.py."""

import sys

from .cli import main

sys.exit(main())
