# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether each standby mgr could take over: it needs this module, in this version. Pure."""
from typing import Any, Dict, List, Sequence

from ..cluster.inventory import StandbyMgr
from ..errors import warning
from ..tables import plural

CHECK = 'PERFGUARD_STANDBY_MGR'
WAY_OUT = ('Install the version of the active mgr on these hosts and restart their mgrs. A '
           'failover to one of them stops campaigns and the watch.')


def problems(standbys: Sequence[StandbyMgr], version: str) -> List[str]:
    """One line for each standby that could not take over."""
    found: List[str] = []
    for standby in sorted(standbys, key=lambda standby: standby.name):
        if standby.version is None:
            found.append('mgr.%s does not have the module' % standby.name)
        elif standby.error:
            found.append('mgr.%s cannot run the module: %s' % (standby.name, standby.error))
        elif standby.version != version:
            found.append('mgr.%s has version %s (active mgr: %s)' % (
                standby.name, standby.version or 'unknown', version))
    return found


def checks(standbys: Sequence[StandbyMgr], version: str) -> Dict[str, Any]:
    """The health check; empty where every standby could take over."""
    found = problems(standbys, version)
    return {CHECK: warning('%s cannot take over with perfguard %s' % (
        plural(len(found), 'standby mgr'), version), [*found, WAY_OUT])} if found else {}
