# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools under MSR rules (Squid and later), whose upmaps the mons do not check."""
import subprocess
from collections import Counter
from typing import Dict, Set

import pytest

from qa.cluster import Cluster
from qa.cluster.patience import patient
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.joins import order, wait_reported

pytestmark = pytest.mark.releases('tentacle')

#: OSDs of one PG that the rule allows on a host, and hosts that it asks for.
PER_HOST, HOSTS = 2, 3
PROFILE = ['k=4', 'm=2', 'crush-failure-domain=host', 'crush-osds-per-failure-domain=%d' % PER_HOST,
           'crush-num-failure-domains=%d' % HOSTS]


def msr_cluster(make: ClusterFactory, release: str) -> Cluster:
    """15 OSDs on 5 hosts with an erasure coded pool."""
    cluster = make(release, osds=15, hosts=5, conf=FAST_CONF)
    # Clients of an older release do not know such rules, and are not let in.
    cluster.connect_as_release()
    cluster.mon('osd set-require-min-compat-client', version='squid', yes_i_really_mean_it=True)
    cluster.mon('osd erasure-code-profile set', name='msr', profile=PROFILE)
    cluster.mon('osd pool create', pool='msr', pg_num=64, pgp_num=64, pool_type='erasure',
                erasure_code_profile='msr')
    cluster.mon('osd pool application enable', pool='msr', app='qa')
    subprocess.run(cluster.release.argv(
        ['rados', '-c', str(cluster.conf_path), '-p', 'msr', 'bench', '3', 'write', '-b', '16384',
         '--no-cleanup'], cluster.directory), check=True, stdout=subprocess.DEVNULL,
        timeout=patient(60))
    cluster.wait_clean(60)
    return cluster


def crowded(cluster: Cluster, pool: str = 'msr') -> Dict[str, Set[str]]:
    """PGs with more OSDs on one host than the rule allows."""
    hosts, prefix = cluster.osd_hosts(), prefix_of(cluster, pool)
    found = {pg['pgid']: Counter(hosts[osd] for osd in pg['up'] if osd in hosts)
             for pg in cluster.pgs()}
    return {pgid: {host for host, count in on.items() if count > PER_HOST}
            for pgid, on in found.items() if pgid.startswith(prefix)
            and (max(on.values(), default=0) > PER_HOST or len(on) > HOSTS)}


def prefix_of(cluster: Cluster, name: str) -> str:
    """The IDs of its PGs begin with it."""
    return '%d.' % next(pool['pool'] for pool in cluster.osd_dump()['pools']
                        if pool['pool_name'] == name)


def test_the_failure_domain_outlives_an_expansion(release: str,
                                                  make_cluster: ClusterFactory) -> None:
    cluster = msr_cluster(make_cluster, release)
    guard = Guard(cluster, {'target': 'balanced'})
    rules = {rule['rule_id']: rule for rule in cluster.mon('osd crush dump')['rules']}
    rule_id = next(pool['crush_rule'] for pool in cluster.osd_dump()['pools']
                   if pool['pool_name'] == 'msr')
    assert 'choosemsr' in {step['op'] for step in rules[rule_id]['steps']}
    assert crowded(cluster) == {}
    guard.hold(lambda: cluster.add_osds(3, hosts=['host5']))
    assert crowded(cluster) == {}
    pinned = guard.status()['pinned']
    guard.do('start')
    done = guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(60)
    upmaps = guard.upmaps()
    print('%s: %d PGs were pinned, %d released, %d upmaps left, crowded: %s' % (
        release, pinned, done['released'], len(upmaps), crowded(cluster)))
    assert crowded(cluster) == {} and done['released'] > 0
    assert not [pgid for pgid in upmaps if pgid.startswith(prefix_of(cluster, 'msr'))]
    assert not guard.tracebacks()


@pytest.mark.releases('tentacle', quick=())
def test_a_pool_gets_an_msr_rule(release: str, make_cluster: ClusterFactory) -> None:
    """All its PGs move to where the rule places them, a few at a time."""
    cluster = msr_cluster(make_cluster, release)
    cluster.mon('osd erasure-code-profile set', name='flat', profile=[
        'k=4', 'm=2', 'crush-failure-domain=osd'])
    cluster.mon('osd pool create', pool='flat', pg_num=16, pgp_num=16, pool_type='erasure',
                erasure_code_profile='flat')
    cluster.wait_clean(60)
    guard = Guard(cluster, {'target': 'balanced', 'max_pgs_in_flight': '4'})
    wait_reported(guard)
    shown = order(guard, 'rule', pool='flat', rule='msr', dry_run=True)
    assert crowded(cluster, 'flat') and 'MSR steps' in str(shown['warnings'])
    order(guard, 'rule', pool='flat', rule='msr')
    done = guard.wait_phase('DONE', timeout=180)
    cluster.wait_clean(60)
    print('%s: %d PGs moved to a pool with an MSR rule: %s' % (
        release, done['released'], shown['warnings']))
    assert crowded(cluster, 'flat') == {} and guard.upmaps() == {}
    assert not guard.tracebacks()
