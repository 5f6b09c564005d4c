# SPDX-License-Identifier: LGPL-2.1-or-later
"""Begins a worker; see argv() of this package. The messages are in protocol.py."""
import os
import sys

# The folder that holds perfguard is searched for this one import only: among the mgr modules
# beside it may be names that the standard library has as well.
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *['..'] * 3)))
import perfguard  # noqa: E402,F401
del sys.path[0]

from perfguard.probe.worker.work import main  # noqa: E402

main()
