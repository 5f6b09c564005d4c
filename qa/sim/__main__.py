# SPDX-License-Identifier: LGPL-2.1-or-later
"""/usr/bin/python3 -m qa.sim"""

import sys

from .cli import main

sys.exit(main())
