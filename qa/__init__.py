# SPDX-License-Identifier: LGPL-2.1-or-later
"""Quality assurance on real clusters."""
import sys
from pathlib import Path

#: Commands such as "python3 -m qa.sim" find the module of this tree.
MODULES = Path(__file__).resolve().parents[1] / 'src' / 'pybind' / 'mgr'
if str(MODULES) not in sys.path:
    sys.path.append(str(MODULES))
