# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard in two minutes, on every release: one cluster each, one story from first to last.

The tests of a release share its cluster. Each leaves it as the next one needs it: clean, and
without a campaign. The last one disables the module.
"""
import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from qa.cluster import Cluster
from qa.cluster.ports import claim
from qa.lib.joins import crush_weights, join, let_go
from qa.lib.clusters import ClusterFactory
from qa.lib.auditor import Foreign
from qa.lib.guard import USUAL_CONF, Guard
from qa.lib.probes import SHORT, Probes, users
from qa.lib.prometheus import LOOPBACK, fetch
from qa.lib.restapi import READER, Request, RestApi

from .test_probe_worker import POOL, USER, count_with_every_engine, prepared

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle',
                                  quick=('pacific', 'reef', 'tentacle'))

FORMATS = ('plain', 'json', 'json-pretty')
#: Commands that show something without an argument; there may be more.
SHOWN = {'status', 'events', 'osds', 'pools', 'laggy', 'history', 'mitigation ls',
         'campaign status', 'preview', 'campaign ls', 'probe ls'}
#: What cannot be done, and the errno.
REFUSED: Tuple[Tuple[str, Dict[str, Any], int], ...] = (
    ('status', {'format': 'yaml'}, 22), ('events', {'count': 0}, 22),
    ('campaign pause', {}, 2), ('campaign show', {'campaign': 99}, 2),
    ('probe show', {'run': 99}, 2), ('probe run', {'pool': 'nosuch', **SHORT}, 2),
    ('expand', {'what': ['osd.99']}, 2), ('drain', {'what': ['nohost']}, 2),
    ('history', {'what': 'osd.99'}, 2), ('preview', {'change': 'rollback'}, 2),
    ('preview', {'change': 'crushmap'}, 22),
    ('undrain', {'what': ['osd.0'], 'accept': ['UPGRADE']}, 22),
    ('campaign accept', {'code': 'OSD_DOWN'}, 22))
#: Typing errors, which are refused as such while a campaign is active as well.
UNKNOWN: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ('expand', {'what': ['osd.99']}), ('drain', {'what': ['nohost']}),
    ('undrain', {'what': ['osd.99']}), ('replace', {'what': ['osd.99']}),
    ('rule', {'pool': 'p', 'rule': 'nosuch'}), ('pg_num', {'pool': 'nosuch', 'pg_num': 64}),
    ('balance', {'what': ['nosuch']}))


@dataclass(frozen=True)
class Site:
    guard: Guard
    api: RestApi
    #: Of perfguard's metrics, by mgr.
    ports: Dict[str, int]
    #: What was set before perfguard did anything.
    before: Foreign

    @property
    def cluster(self) -> Cluster:
        return self.guard.cluster

    def fail_mgr(self) -> None:
        # Loading modules keeps an mgr that has failed away for a while.
        self.cluster.wait(lambda: self.cluster.mon('mgr dump')['standbys'], 120, 'a standby')
        self.cluster.mgr_fail(60)
        self.guard.wait_ready()

    def served(self, mgr: str) -> Tuple[int, str]:
        return fetch(self.ports[mgr])


@pytest.fixture(scope='module')
def site(release: str, cluster_factory: ClusterFactory) -> Iterator[Site]:
    cluster = cluster_factory(release, osds=6, hosts=3, mgrs=2, conf=USUAL_CONF)
    cluster.pool_create('p', 32)
    cluster.fill('p', 300, 4096)
    block = claim(2)
    ports = {'x': block.first, 'y': block.first + 1}
    cluster.mon('config set', who='mgr', name='mgr/perfguard/metrics_addr', value=LOOPBACK)
    for mgr, port in ports.items():
        cluster.mon('config set', who='mgr', name='mgr/perfguard/%s/metrics_port' % mgr,
                    value=str(port))
    dashboard = cluster.dashboard()
    guard = Guard(cluster)
    dashboard.wait_ready()
    yield Site(guard, RestApi(guard, dashboard), ports, guard.foreign())
    block.close()


def test_commands_and_formats(site: Site) -> None:
    guard, shown = site.guard, shown_without_arguments(site.cluster)
    assert shown >= SHOWN
    for command in sorted(shown):
        for format_ in FORMATS:
            retval, out, error = guard.ask(command, format=format_)
            assert retval == 0 and out.strip() and not error, (command, retval, error)
            # An empty list, of no mappings, is one line in every format.
            assert ((format_ == 'json-pretty') <= ('\n' in out.strip())
                    or out.strip() == '[]'), command
            if format_ != 'plain':
                # Mappings are exported as pgremapper's list.
                assert isinstance(json.loads(out), (dict, list)), command
    for command, args, errno in REFUSED:
        retval, out, error = guard.ask(command, **args)
        assert (retval, out) == (-errno, ''), (command, args, retval, error)
        assert error and '\n' not in error.strip(), (command, error)
    # The release's own ceph command, which parses arguments and prints errors in its own way.
    assert json.loads(ceph(guard, 0, 'status', '--format', 'json')[0])['phase'] == 'IDLE'
    assert ceph(guard, 0, 'status')[0].strip()
    out, error = ceph(guard, 2, 'campaign', 'pause')
    assert not out and len(error.strip().splitlines()) == 1 and 'ENOENT' in error
    assert guard.foreign() == site.before and guard.status()['phase'] == 'IDLE'


def shown_without_arguments(cluster: Cluster) -> 'set[str]':
    """The commands of perfguard that only read, and need no argument.

    Those that follow a change, or show the last probe, are refused where there is none.
    """
    retval, out, error = cluster.mgr('get_command_descriptions')
    assert retval == 0, error
    found = set()
    for row in json.loads(out).values():
        words = [part for part in row['sig'] if isinstance(part, str)]
        needed = [part for part in row['sig'] if isinstance(part, dict)
                  and str(part.get('req', True)).lower() == 'true']
        if words[0] == 'perfguard' and not {'watch', 'show'} & set(words) \
                and words[1:] != ['preview', 'probe'] and row['perm'] == 'r' and not needed:
            found.add(' '.join(words[1:]))
    return found


def ceph(guard: Guard, code: int, *argv: str) -> Tuple[str, str]:
    done = guard.cluster.ceph('perfguard', *argv, check=False)
    assert done.returncode == code, (argv, done)
    return done.stdout, done.stderr


def test_the_ceph_command_completes_the_words_of_commands(site: Site) -> None:
    """Where an argument may stand, it only repeats the word, as for Ceph's own commands."""
    def completed(*words: str) -> List[str]:
        return [word for word in site.cluster.ceph('--completion', *words).stdout.split()
                if word != words[-1]]

    assert completed('perfg') == ['perfguard']
    assert completed('perfguard', 'camp') == ['campaign']
    assert completed('perfguard', 'campaign', 'r') == ['resume', 'rollback']
    assert completed('perfguard', 'probe', 'sch') == ['schedule']
    assert completed('perfguard', 'drain', 'os') == completed('osd', 'out', 'os') == []


def test_a_history_fits_a_terminal(site: Site) -> None:
    shown = [len(ceph(site.guard, 0, 'history', 'cluster', *option)[0].splitlines())
             for option in ((), ('--all',))]
    points = json.loads(ceph(site.guard, 0, 'history', '--format', 'json')[0])['points']
    print('history: %d lines, --all %d, %d points' % (*shown, len(points)))
    # Readings arrive between the commands.
    assert shown[0] <= 24 and shown[1] > len(points) / 2


def test_expand_in_one_epoch_with_a_failover(site: Site) -> None:
    cluster, guard = site.cluster, site.guard
    added = cluster.add_osds(2, weight=0.0)
    join(guard, 'expand', weight='1.0')
    assert {command: guard.ask(command, **args)[0] for command, args in UNKNOWN} \
        == {command: -2 for command, _ in UNKNOWN}
    assert guard.ask('drain', what=['osd.0'])[0] == -16
    cluster.mon('osd unset', key='nobackfill')
    guard.wait_phase('RELEASING', 'FINISHING', 'DONE')
    site.fail_mgr()
    let_go(guard)
    assert guard.status()['id'] == 1
    assert {crush_weights(cluster)[osd] for osd in added} == {1.0}
    assert {osd for pg in cluster.pgs() for osd in pg['acting']} >= set(added)
    assert guard.upmaps() == {} and guard.foreign() == site.before


def test_a_probe_is_remembered_by_the_next_mgr(site: Site) -> None:
    probes = Probes(site.guard)
    site.cluster.wait_clean(60)
    before = probes.traces()
    run = int(probes.measure(pool='p', rw='randwrite', **SHORT)['id'])
    site.guard.get('probe baseline', run=run)
    site.cluster.wait(lambda: probes.row(run)['baseline'], 20, 'the baseline to be listed')
    found = probes.details(run)
    listed = site.guard.get('probe ls')
    site.fail_mgr()
    assert site.guard.get('probe ls') == listed
    assert probes.details(run) == found and probes.ids() == [run]
    assert [row['id'] for row in site.guard.get('probe ls')['baselines']] == [run]
    assert probes.traces() == before


def test_probe_workers_count(site: Site) -> None:
    """One of the engines is compiled on the host, against the release's librados."""
    cluster = site.cluster
    try:
        count_with_every_engine(prepared(cluster))
    finally:
        cluster.mon('auth rm', entity='client.' + USER)
        cluster.mon('osd pool rm', pool=POOL, pool2=POOL, yes_i_really_really_mean_it=True)
    cluster.wait_clean(60)


def test_metrics_of_both_mgrs(site: Site) -> None:
    cluster = site.cluster
    active = cluster.active_mgr()
    standby, = set(site.ports) - {active}
    cluster.wait(lambda: 'ceph_perfguard_info' in site.served(active)[1], 30,
                 'metrics of the active mgr')
    cluster.wait(lambda: site.served(standby) == (200, ''), 120, 'an empty page of the standby')
    status, page = site.served(active)
    assert status == 200
    # A campaign that has ended is history to the mgr that has taken over.
    assert 'ceph_perfguard_campaign_phase{phase="IDLE"} 1' in page
    assert 'ceph_perfguard_probe_success{measured="pool:p",profile="custom"} 1' in page


def test_dashboard(site: Site) -> None:
    api = site.api
    api.dashboard.wait_ready()
    # The sessions of before the failovers are good for the next mgr as well.
    assert api.get('/campaigns')['campaigns'] == \
        site.guard.get('campaign ls')['campaigns']
    before = site.guard.status()
    assert api.send(Request('GET', '/status'), READER).status == 200
    api.refused(Request('POST', '/campaign/prepare', {}), 403, '', user=READER)
    assert site.guard.status() == before and site.guard.foreign() == site.before
    assert api.page().status == 200


def test_disabling_leaves_nothing_behind(site: Site) -> None:
    """Last in this file."""
    cluster, guard = site.cluster, site.guard
    keys = {key.split('/')[0] for key in guard.store_keys()}
    assert not keys & {'campaign', 'crushmap', 'pins', 'requests'}
    assert not guard.tracebacks()
    cluster.mon('mgr module disable', module='perfguard')
    cluster.wait(lambda: guard.ask('status')[0] != 0, 60, 'the commands to go')
    cluster.wait(lambda: [site.served(mgr)[0] for mgr in site.ports] == [0, 0], 120,
                 'the ports of the metrics to be free')
    assert guard.foreign() == site.before and guard.upmaps() == {}
    checks = cluster.mon('health')['checks']
    assert not [code for code in checks if code.startswith(('PERFGUARD_', 'MGR_MODULE_'))]
    assert not [user for user in users(cluster) if 'perfguard' in user]
    assert [pool['pool_name'] for pool in cluster.osd_dump()['pools']
            if 'perfguard' in pool['pool_name']] == []
    assert not events_of(cluster)
    site.api.dashboard.wait_ready()
    site.api.refused(Request('GET', '/status'), 503, 'not enabled')
    assert not guard.tracebacks()


def events_of(cluster: Cluster) -> List[str]:
    """perfguard's progress events in the status of the cluster."""
    events: Dict[str, Any] = cluster.mon('status').get('progress_events', {})
    return [event['message'] for event in events.values() if 'perfguard' in event['message']]
