# SPDX-License-Identifier: LGPL-2.1-or-later
"""Three mons of a test cluster: the leader, its death, and the mon of the mgr."""
from qa.cluster import Cluster

MONS = 'abc'
#: Seconds until the mons have a quorum with another leader, several elections included.
ELECTION_SECONDS = 90.0


def leader(cluster: Cluster) -> str:
    """The mon that leads the quorum, '' while there is none."""
    return str(cluster.mon('quorum_status')['quorum_leader_name'])


def kill_leader(cluster: Cluster) -> str:
    """Kill the leading mon; returns its id when the others have a quorum."""
    victim = leader(cluster)
    cluster.kill('mon.' + victim)
    cluster.wait(lambda: leader(cluster) not in ('', victim), ELECTION_SECONDS, 'another leader')
    return victim


def bring_back_mons(cluster: Cluster) -> None:
    for mon in MONS:
        if cluster.pid('mon.' + mon) is None:
            cluster.start('mon.' + mon)
    cluster.wait(lambda: len(cluster.mon('quorum_status')['quorum']) == len(MONS), ELECTION_SECONDS,
                 'all mons in quorum')
    cluster.wait(lambda: 'MON_DOWN' not in cluster.mon('health')['checks'], 30, 'their health')


def mon_of_the_mgr(cluster: Cluster) -> str:
    """The mon that the mgr sends its commands to, '' while it looks for one."""
    mgr = 'mgr.%d' % cluster.mon('mgr dump')['active_gid']
    for mon in MONS:
        if cluster.pid('mon.' + mon) is not None and mgr in [
                session['name'] for session in cluster.tell('mon.' + mon, 'sessions')]:
            return mon
    return ''


def move_the_mgr_to_a_peon(cluster: Cluster) -> None:
    """While the first mon, the natural leader, is away the mgr finds another."""
    first = leader(cluster)
    if mon_of_the_mgr(cluster) == first:
        kill_leader(cluster)
        cluster.wait(lambda: mon_of_the_mgr(cluster) not in ('', first), 60, 'another mon')
        bring_back_mons(cluster)
    assert mon_of_the_mgr(cluster) not in ('', leader(cluster))
