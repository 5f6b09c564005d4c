# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard's own version, also that of the packages, and the oldest Python that runs it."""
import sys

VERSION = '0.1.0'
#: That of Ceph's own containers from Reef on.
OLDEST_PYTHON = (3, 9)
#: What users of an older one read.
TOO_OLD = 'perfguard requires Python %d.%d or later; this is %s' % (
    *OLDEST_PYTHON, '.'.join(map(str, sys.version_info[:3])))
