# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics on every release: a real Prometheus scrapes both mgrs through campaign and failover."""
import json
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

import pytest

from qa.cluster import Cluster
from qa.cluster.ports import claim
from qa.lib.clusters import ClusterFactory
from qa.lib.guard import FAST_CONF, Guard
from qa.lib.probes import PATIENT_CLIENTS, SHORT, Probes
from qa.lib.prometheus import LOOPBACK, Prometheus, fetch

MONITORING = Path(__file__).resolve().parents[2] / 'monitoring'
RULES = MONITORING / 'perfguard_alerts.yml'
DASHBOARD = MONITORING / 'grafana' / 'perfguard.json'
#: Panels that have nothing to show while all is well, or in the first minutes: baselines are
#: learned, and OSDs asked for their histograms one after the other. The fill is in metrics of Ceph
#: itself, which are not scraped here.
MAY_BE_EMPTY = {'Fill of all OSDs', 'Time left', 'Health checks', 'Mitigations',
                'PGs with problems', 'Latency as a multiple of the baseline', 'p99 of the cluster'}
#: What a pool may be called; it ends labels and lines of those who do not expect it.
HOSTILE = 'a"b\\c{d="e"} 1'

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')


@dataclass
class Scraped:
    guard: Guard
    prometheus: Prometheus
    #: Of perfguard's and of the prometheus module's endpoint, by mgr.
    ports: Dict[str, int]
    module_ports: Dict[str, int]
    spare_port: int

    @property
    def cluster(self) -> Cluster:
        return self.guard.cluster

    def page(self) -> str:
        """Of the active mgr."""
        status, text = fetch(self.ports[self.cluster.active_mgr()])
        assert status == 200, text
        return text

    def listen(self, mgr: str, port: int) -> None:
        self.cluster.mon('config set', who='mgr', name='mgr/perfguard/%s/metrics_port' % mgr,
                         value=str(port))

    def wait_served(self, port: int, served: bool = True) -> None:
        self.cluster.wait(lambda: (fetch(port)[0] == 200) == served, 30,
                          'port %d to be %s' % (port, 'served' if served else 'free'))

    def reasons(self) -> str:
        return '\n'.join(self.guard.get('status')['reasons'])


@pytest.fixture(scope='module')
def scraped(release: str, cluster_factory: ClusterFactory,
            tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    cluster = cluster_factory(release, osds=6, hosts=3, mgrs=2, conf=FAST_CONF)
    block = claim(6)
    ports = {'x': block.first, 'y': block.first + 1}
    module_ports = {'x': block.first + 2, 'y': block.first + 3}
    options = {'perfguard/metrics_addr': LOOPBACK, 'prometheus/server_addr': LOOPBACK,
               'prometheus/scrape_interval': '2'}
    if release != 'pacific':
        # From Quincy on, daemons called ceph-exporter do this.
        options['prometheus/exclude_perf_counters'] = 'false'
    options.update({'perfguard/%s/metrics_port' % mgr: str(port) for mgr, port in ports.items()})
    options.update({'prometheus/%s/server_port' % mgr: str(port)
                    for mgr, port in module_ports.items()})
    for name, value in options.items():
        cluster.mon('config set', who='mgr', name='mgr/' + name, value=value)
    cluster.mon('mgr module enable', module='prometheus')
    # Slowdowns are shown early, and name no OSD: these tests are about something else.
    guard = Guard(cluster, {'slow_osd_seconds': '5', 'slow_osd_factor': '100', **PATIENT_CLIENTS})
    cluster.pool_create('rbd', 32)
    cluster.pool_create(HOSTILE, 8)
    # Longer than all tests take; the end of the cluster is that of its clients.
    cluster.load('rbd', rate=100, runtime=900)
    directory = tmp_path_factory.mktemp('prometheus')
    with Prometheus(directory, block.first + 4, ['%s:%d' % (LOOPBACK, port)
                                                 for port in ports.values()],
                    impatient_rules(directory)) as prometheus:
        yield Scraped(guard, prometheus, ports, module_ports, block.first + 5)
    block.close()
    cluster.down()


def impatient_rules(directory: Path) -> Path:
    """The alert rules, but for how long they wait until they fire."""
    rules, count = re.subn(r'for: \d+[mh]$', 'for: 2s', RULES.read_text(), flags=re.MULTILINE)
    assert count > 10
    (directory / RULES.name).write_text(rules)
    return directory / RULES.name


def promtool(*argv: str, given: str = '') -> None:
    done = subprocess.run(['promtool', *argv], input=given, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert (done.returncode, given and done.stdout) == (0, ''), done.stdout


def test_both_mgrs_are_scraped(scraped: Scraped) -> None:
    cluster, prometheus = scraped.cluster, scraped.prometheus
    cluster.wait(lambda: prometheus.targets() == ['up', 'up'], 30, 'both targets to be up')
    cluster.wait(lambda: set(prometheus.rules().values()) == {'ok'}, 10, 'all rules evaluated')
    standby, = set(scraped.ports) - {cluster.active_mgr()}
    assert fetch(scraped.ports[standby]) == (200, '')
    prometheus.wait('count(ceph_perfguard_osd_latency_seconds{op="write"} > 0)',
                    lambda value: value == 6, 30)
    prometheus.wait('count(ceph_perfguard_osd_slowdown_ratio > 0)', lambda value: value == 6, 30)
    promtool('check', 'metrics', given=scraped.page())
    promtool('check', 'config', str(prometheus.config))
    labels = dict(prometheus.query('ceph_perfguard_info')[0][0])
    assert labels['ceph_daemon'] == 'mgr.' + cluster.active_mgr() and labels['version']
    print('%s: a page of %d bytes' % (cluster.release.name, len(scraped.page())))


def test_pools_of_any_name(scraped: Scraped) -> None:
    found = {labels['name']: labels['pool_id'] for labels, _ in scraped.prometheus.query(
        'ceph_perfguard_pool_slow{op="read"}')}
    pools = {pool['pool_name']: str(pool['pool'])
             for pool in scraped.cluster.osd_dump()['pools']}
    assert found == pools and HOSTILE in found
    scraped.prometheus.wait('ceph_perfguard_pool_latency_seconds{name="rbd",op="write"}',
                            lambda value: value is not None and 0 < value < 1, 30)


def test_probes(scraped: Scraped) -> None:
    probes, prometheus = Probes(scraped.guard), scraped.prometheus
    run = probes.begin(pool='rbd', rw='randwrite', **SHORT)
    prometheus.wait('ceph_perfguard_probe_running', lambda value: value == 1, 20)
    probes.wait_state(run, 'done')
    scraped.guard.get('probe baseline', run=run)
    target = '{measured="pool:rbd",profile="custom"}'
    prometheus.wait('ceph_perfguard_probe_regression' + target, lambda value: value == 0, 10)
    assert prometheus.value('ceph_perfguard_probe_success' + target) == 1
    prometheus.wait('ceph_perfguard_probe_running', lambda value: value == 0, 10)
    # The metrics equal the values in fio's JSON; each job has one direction here.
    job, = probes.details(run)['jobs']
    measured = {name: prometheus.value('ceph_perfguard_probe_%s{op="write"}' % name)
                for name in ('ops_per_second', 'latency_p99_seconds')}
    assert measured['ops_per_second'] == pytest.approx(job['write']['iops'])
    assert measured['latency_p99_seconds'] == pytest.approx(
        job['write']['clat_ns']['percentile']['99.000000'] / 1e9)


def test_a_campaign(scraped: Scraped) -> None:
    guard, prometheus = scraped.guard, scraped.prometheus
    guard.option('max_pgs_in_flight', '2')
    status = guard.hold(lambda: scraped.cluster.add_osds(2))
    phase = 'ceph_perfguard_campaign_phase{phase="%s"}'
    prometheus.wait(phase % 'PINNED', lambda value: value == 1, 10)
    prometheus.wait('ceph_perfguard_campaign_pgs{state="pinned"}',
                    lambda value: value == status['pinned'] > 0, 10)
    assert prometheus.value('sum(ceph_perfguard_campaign_phase)') == 1
    guard.do('start')
    guard.wait_moving()
    guard.do('pause')
    prometheus.wait('ceph_perfguard_campaign_paused', lambda value: value == 1, 10)
    scraped.cluster.wait(lambda: prometheus.alerts().get('PerfguardCampaignPaused') == 'firing',
                         15, 'the alert')
    guard.do('resume')
    guard.do('finish', keep=True)
    done = guard.wait_phase('DONE', timeout=60)
    prometheus.wait(phase % 'DONE', lambda value: value == 1, 10)
    prometheus.wait('sum(ceph_perfguard_campaign_limited_ratio)',
                    lambda value: value is not None and abs(value - 1) < 0.01, 10)
    prometheus.wait('ceph_perfguard_campaign_active', lambda value: value == 0, 10)
    for state in ('released', 'kept'):
        assert prometheus.value('ceph_perfguard_campaign_pgs{state="%s"}' % state) \
            == done[state] > 0
    in_flight = prometheus.value(
        'max_over_time(ceph_perfguard_campaign_pgs{state="in_flight"}[5m])')
    assert in_flight is not None and in_flight > 0
    # What alerts ask for is up to 5 s old.
    scraped.cluster.wait(lambda: 'PerfguardCampaignPaused' not in prometheus.alerts(), 15,
                         'the alert to end')
    assert 'PerfguardHangs' not in prometheus.alerts()


def test_the_dashboard_shows_it(scraped: Scraped) -> None:
    empty = set()
    for panel in json.loads(DASHBOARD.read_text())['panels']:
        # The first is what the panel is about.
        for target in panel.get('targets', [])[:1]:
            expr = target['expr'].replace('$__range', '5m')
            if not scraped.prometheus.query(re.sub(r'\$(cluster|job|pool)', '.*', expr)):
                empty.add(panel['title'])
    assert empty <= MAY_BE_EMPTY


def test_the_port_is_changed_at_run_time(scraped: Scraped) -> None:
    active = scraped.cluster.active_mgr()
    port = scraped.ports[active]
    scraped.listen(active, scraped.spare_port)
    scraped.wait_served(scraped.spare_port)
    assert fetch(port)[0] == 0
    scraped.listen(active, 0)
    scraped.wait_served(scraped.spare_port, served=False)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, port))
        other.listen()
        scraped.listen(active, port)
        scraped.cluster.wait(lambda: 'in use' in scraped.reasons(), 20, 'the reason')
        reason, = re.findall('cannot serve metrics.*', scraped.reasons())
        assert '%s:%d' % (LOOPBACK, port) in reason
    scraped.wait_served(port)
    scraped.cluster.wait(lambda: 'metrics' not in scraped.reasons(), 20, 'the reason to go')


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_failover_moves_the_metrics(scraped: Scraped) -> None:
    cluster, prometheus = scraped.cluster, scraped.prometheus
    before = cluster.active_mgr()
    # What the next mgr cannot read raises a health check, which the alert is about.
    cluster.mon('config-key set', key='mgr/perfguard/campaign/head', val='{"broken')
    after = cluster.mgr_fail()
    assert after != before
    instance = 'ceph_perfguard_campaign_phase{phase="IDLE",instance="%s:%d"}'
    prometheus.wait(instance % (LOOPBACK, scraped.ports[after]),
                    lambda value: value is not None, 30)
    cluster.wait(lambda: prometheus.targets() == ['up', 'up'], 30, 'both targets to be up')
    # The metrics of the mgr that failed are gone.
    prometheus.wait('count(ceph_perfguard_info)', lambda value: value == 1, 10)
    prometheus.wait('ceph_perfguard_health_check{name="PERFGUARD_INTERRUPTED"}',
                    lambda value: value == 1, 20)
    cluster.wait(lambda: prometheus.alerts().get('PerfguardStateLost') == 'firing', 15,
                 'the alert')
    assert 'PerfguardLostDuringCampaign' not in prometheus.alerts()


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_metrics_of_the_prometheus_module(scraped: Scraped) -> None:
    """Of perfguard: its health checks, such as the one that the failover above has raised."""
    cluster = scraped.cluster
    port = scraped.module_ports[cluster.active_mgr()]
    raised = re.compile(r'^ceph_health_detail\{.*name="PERFGUARD_INTERRUPTED".*\} 1',
                        re.MULTILINE)
    cluster.wait(lambda: raised.search(fetch(port)[1]), 30, 'the health check')
    _, text = fetch(port)
    assert 'ceph_perfguard' not in text
    # What perfguard's pools are joined with.
    assert 'ceph_pool_metadata{pool_id=' in text
    # What the dashboard shows of Ceph.
    for name in ('ceph_osd_stat_bytes', 'ceph_osd_stat_bytes_used'):
        cluster.wait(lambda: re.search(r'^%s\{ceph_daemon="osd.0".*\} \d' % name, fetch(port)[1],
                                       re.MULTILINE), 60, name)
    assert not scraped.guard.tracebacks()
