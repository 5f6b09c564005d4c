# SPDX-License-Identifier: LGPL-2.1-or-later
"""Alert rules and dashboard ask for nothing but what perfguard serves, in words that Prometheus
understands."""
import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest

from perfguard.metrics.catalogue import CATALOGUE, METRIC_PREFIX
from qa.lib import reference

from .fakes.promtool import promtool

CHECKOUT = Path(__file__).resolve().parents[5]
MONITORING = CHECKOUT / 'monitoring'
#: The manual on a host with the package.
INSTALLED = '/usr/share/doc/ceph-mgr-perfguard/perfguard'
RULES = MONITORING / 'perfguard_alerts.yml'
DASHBOARD: Dict[str, Any] = json.loads((MONITORING / 'grafana' / 'perfguard.json').read_text())
LABELS = {METRIC_PREFIX + metric.name: set(metric.labels) for metric in CATALOGUE}
#: What Ceph itself exports on each release, for panels only.
OF_CEPH = {'ceph_osd_stat_bytes': {'ceph_daemon'}, 'ceph_osd_stat_bytes_used': {'ceph_daemon'}}
SHOWN = {**LABELS, **OF_CEPH}
#: What Prometheus adds to what is scraped, or provides itself.
OF_PROMETHEUS = {'job', 'instance', 'cluster'}
#: Grafana's own variables, as something that Prometheus can read.
GRAFANA = {'$__range': '1h'}
COLUMNS = 24


def panels() -> Iterator[Dict[str, Any]]:
    for panel in DASHBOARD['panels']:
        yield panel
        yield from panel.get('panels', [])


def targets() -> List[Dict[str, Any]]:
    return [target for panel in panels() for target in panel.get('targets', [])]


def rules() -> List[Tuple[str, str]]:
    """Each rule with its name."""
    parts = re.split(r'^ +- alert: (\w+)$', RULES.read_text(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2]))


def used(text: str) -> Set[str]:
    """Metrics; of the labels and their values some begin as they do."""
    return set(re.findall(r'\bceph_\w+', text)) - {'ceph_daemon', 'ceph_default', 'ceph_version'}


# ---- alert rules

def test_rules() -> None:
    promtool('check', 'rules', str(RULES))


def test_each_rule_fires_when_it_should_and_only_then() -> None:
    promtool('test', 'rules', 'test_alerts.yml', cwd=MONITORING)


def test_every_rule_is_tested_both_ways() -> None:
    tested = (MONITORING / 'test_alerts.yml').read_text()
    for name, _ in rules():
        assert 'ALERTS{alertname="%s",alertstate="firing",' % name in tested, name
        quiet = 'ALERTS{alertname="%s",alertstate="firing"}\n        eval_time: ' % name
        assert re.search(re.escape(quiet) + r'\d+m\n        exp_samples: \[\]', tested), name


@pytest.mark.parametrize('name,rule', rules(), ids=[name for name, _ in rules()])
def test_rules_ask_for_what_there_is(name: str, rule: str) -> None:
    assert used(rule) and used(rule) <= set(LABELS)
    known = set.union(*(LABELS[metric] for metric in used(rule))) | OF_PROMETHEUS
    assert set(re.findall(r'(\w+)!?=~?"', rule)) <= known
    assert set(re.findall(r'\$labels\.(\w+)', rule)) <= known
    assert re.search(r'severity: (critical|warning|info)\n', rule)
    # One that is about one place would end and begin anew at a failover.
    assert 'without (instance, pod' in rule or 'absent(' in rule


def test_no_label_is_one_that_prometheus_sets() -> None:
    """Prometheus would rename it, or lose its own (honor_labels)."""
    assert not [metric.name for metric in CATALOGUE if OF_PROMETHEUS & set(metric.labels)]


def test_no_rule_about_unclean_pgs_recommends_a_pause() -> None:
    """A pause sets norebalance, which keeps the PGs in flight unclean."""
    about = {name: rule for name, rule in rules() if re.search(r'\b(un)?clean\b', rule)}
    assert 'PerfguardUntrimmedOSDMaps' in about
    for name, rule in about.items():
        assert 'ceph perfguard campaign pause' not in ' '.join(rule.split()), name
    assert 'ceph pg dump_stuck unclean' in ' '.join(about['PerfguardUntrimmedOSDMaps'].split())


# ---- the dashboard

def test_panels_have_numbers_of_their_own() -> None:
    numbers = [panel['id'] for panel in panels()]
    assert len(set(numbers)) == len(numbers)
    assert len({panel['title'] for panel in panels()}) == len(numbers)


def test_panels_do_not_overlap() -> None:
    places = [(panel['title'], panel['gridPos']) for panel in panels()]
    for title, place in places:
        assert 0 <= place['x'] < place['x'] + place['w'] <= COLUMNS and place['h'] > 0, title
    for (one, a), (other, b) in combinations(places, 2):
        apart = (a['x'] + a['w'] <= b['x'] or b['x'] + b['w'] <= a['x']
                 or a['y'] + a['h'] <= b['y'] or b['y'] + b['h'] <= a['y'])
        assert apart, (one, other)


def test_it_asks_the_data_source_that_the_user_chooses() -> None:
    chosen = {'type': 'prometheus', 'uid': '${datasource}'}
    for panel in panels():
        if panel['type'] != 'row':
            assert panel['datasource'] == chosen and panel['targets'], panel['title']
    assert all(target['datasource'] == chosen for target in targets())
    # Nothing of the Grafana that it was made with.
    assert DASHBOARD['id'] is None and '__inputs' not in DASHBOARD
    assert set(re.findall(r'"uid": "([^"]+)"', json.dumps(DASHBOARD))) == {
        '${datasource}', '-- Grafana --', DASHBOARD['uid']}
    assert 'http' not in json.dumps(DASHBOARD)


def test_its_variables_are_defined() -> None:
    variables = DASHBOARD['templating']['list']
    names = {variable['name'] for variable in variables}
    asked = [target['expr'] for target in targets()] + [
        variable['query']['query'] for variable in variables if variable['type'] == 'query']
    wanted = set(re.findall(r'\$(\w+)', ' '.join(asked)))
    assert wanted <= names | {name[1:] for name in GRAFANA}
    assert names == {'datasource', 'cluster', 'job', 'pool'}
    assert used(' '.join(asked)) <= set(SHOWN)


@pytest.mark.parametrize('panel', [panel for panel in panels() if panel['type'] != 'row'],
                         ids=lambda panel: panel['title'])
def test_panels_ask_for_what_there_is(panel: Dict[str, Any]) -> None:
    assert len({target['refId'] for target in panel['targets']}) == len(panel['targets'])
    assert panel['description'].endswith('.')
    for target in panel['targets']:
        expr = target['expr']
        assert used(expr) and used(expr) <= set(SHOWN), expr
        known = set.union(*(SHOWN[metric] for metric in used(expr))) | OF_PROMETHEUS
        assert set(re.findall(r'(\w+)!?=~?"', expr)) <= known, expr
        grouped = re.findall(r'\bby \(([^)]*)\)', expr)
        assert set(re.findall(r'\w+', ' '.join(grouped))) <= known, expr
        assert set(re.findall(r'\{\{(\w+)\}\}', target['legendFormat'])) <= known
        assert target['instant'] == (panel['type'] in ('stat', 'table'))


def test_every_panel_shows_the_chosen_cluster() -> None:
    """One Prometheus may scrape several clusters."""
    for expr in (target['expr'] for target in targets()):
        metrics = [word for word in re.findall(r'\bceph_\w+', expr) if word in SHOWN]
        assert expr.count('cluster=~"$cluster"') == len(metrics), expr


def annotations() -> List[str]:
    return [each['expr'] for each in DASHBOARD['annotations']['list'] if 'expr' in each]


def test_annotations_ask_for_what_there_is() -> None:
    assert len(annotations()) == 2
    assert all(used(expr) and used(expr) <= set(LABELS) for expr in annotations())


def anchors(page: str) -> Set[str]:
    """The sections of a page of the manual, as Sphinx names them in its HTML."""
    titles = re.findall(r'^(\w.*)\n(?:-{4,}|~{4,})$', reference.pages()[page], re.MULTILINE)
    return {re.sub('[^a-z0-9]+', '-', title.lower()).strip('-') for title in titles}


@pytest.mark.parametrize('name,rule', rules(), ids=[name for name, _ in rules()])
def test_each_alert_links_to_what_to_do(name: str, rule: str) -> None:
    """In the manual that the packages install."""
    link = re.search(r'documentation: file://%s/(\S+)#(\S+)' % INSTALLED, rule)
    assert link is not None and link.group(2) in anchors(link.group(1))
    # The section of the health check which says the same, where there is one.
    checks = {check.lower().replace('_', '-') for check in re.findall(r'\bPERFGUARD_[A-Z_]+', rule)}
    if checks or link.group(1) == 'monitoring.rst':
        assert {link.group(2)} == (checks or {name.lower()})


def test_the_packages_install_the_manual_where_alerts_say() -> None:
    assert 'doc/mgr/perfguard' in (CHECKOUT / 'debian' / 'docs').read_text().split()
    # dh_compress would compress it.
    assert 'dh_compress -X.rst' in (CHECKOUT / 'debian' / 'rules').read_text()
    spec = (CHECKOUT / 'packaging' / 'ceph-mgr-perfguard.spec').read_text()
    assert 'doc/mgr/perfguard' in re.findall(r'^%doc (.+)$', spec, re.MULTILINE)[0].split()


def test_the_packages_install_what_the_manual_names() -> None:
    manual = reference.pages()['monitoring.rst']
    for path in ('perfguard_alerts.yml', 'grafana/perfguard.json', 'snmp/perfguard-mib.txt'):
        assert '``%s``' % Path(path).name in manual
        for package in ('debian/rules', 'packaging/ceph-mgr-perfguard.spec'):
            assert 'install -D -m 644 monitoring/%s ' % path in (CHECKOUT / package).read_text()
        assert '/monitoring/%s"' % path.split('/')[0] in (
            CHECKOUT / 'packaging' / 'build.sh').read_text()


def test_critical_alerts_are_defined_for_the_snmp_gateway() -> None:
    mib = (MONITORING / 'snmp' / 'perfguard-mib.txt').read_text()
    branch = re.findall(r'^promPerfguard +OBJECT IDENTIFIER ::= { prometheus (\d+) }$', mib, re.M)
    defined = re.findall(r'^prom(Perfguard\w+) NOTIFICATION-TYPE$[^{]*{ promPerfguard (\d+) }$',
                         mib, re.M)
    base = '1.3.6.1.4.1.50495.1.2.1.%s.' % branch[0]
    alerts = {name: re.findall(r'^ +oid: (\S+)$', rule, re.M) for name, rule in rules()
              if 'severity: critical\n' in rule or 'oid:' in rule}
    assert alerts == {name: [base + number] for name, number in defined}


def test_prometheus_understands_what_panels_ask_for(tmp_path: Path) -> None:
    lines = ['groups:', '- name: panels', '  rules:']
    for number, expr in enumerate([*(target['expr'] for target in targets()), *annotations()]):
        for name, value in GRAFANA.items():
            expr = expr.replace(name, value)
        lines += ['  - record: panel:%d' % number, '    expr: %s' % json.dumps(expr)]
    (tmp_path / 'panels.yml').write_text('\n'.join(lines))
    promtool('check', 'rules', str(tmp_path / 'panels.yml'))


# ---- their jsonnet source, and cephadm

MIXIN = MONITORING / 'mixin'


def jsonnet(*argv: str) -> str:
    if shutil.which('jsonnet') is None:
        pytest.skip('jsonnet is missing, so the mixin is not compared with what is shipped: run '
                    './install-deps.sh nightly')
    return subprocess.run(['jsonnet', *argv], cwd=MIXIN, check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout


def test_the_mixin_generates_the_alert_rules() -> None:
    yaml: Any = pytest.importorskip('yaml')
    assert yaml.safe_load(jsonnet('-S', 'alerts.jsonnet')) == yaml.safe_load(RULES.read_text())


def test_the_mixin_generates_the_dashboard() -> None:
    assert json.loads(jsonnet('dashboards.jsonnet')) == {'perfguard.json': DASHBOARD}


def test_a_site_changes_what_the_dashboard_shows_in_one_place() -> None:
    found = jsonnet('-e', "((import 'mixin.libsonnet') + {_config+:: {matchers: 'site=\"a\"'}})"
                    ".grafanaDashboards['perfguard.json'].panels")
    queries = [target['expr'] for panel in json.loads(found) for target in panel.get('targets', [])]
    assert queries and all('job=~' not in query for query in queries)
    assert any('site="a"' in query for query in queries)


def cephadm_spec(given: str) -> 'subprocess.CompletedProcess[str]':
    grafana = MONITORING / 'grafana'
    return subprocess.run([str(grafana / 'cephadm-spec.sh'), str(grafana / 'perfguard.json')],
                          input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)


def test_cephadm_provisions_the_dashboard() -> None:
    yaml: Any = pytest.importorskip('yaml')
    given = 'service_type: grafana\nservice_name: grafana\nplacement:\n  count: 1\n'
    done = cephadm_spec(given)
    spec = yaml.safe_load(done.stdout)
    config, = spec.pop('custom_configs')
    assert spec == yaml.safe_load(given)
    assert config['mount_path'] == '/etc/grafana/dashboards/ceph-dashboard/perfguard.json'
    assert json.loads(config['content']) == DASHBOARD


@pytest.mark.parametrize('given', [
    '', 'service_type: mgr\n', 'service_type: grafana\ncustom_configs:\n  - mount_path: /x\n'])
def test_a_specification_that_cannot_be_extended_is_refused(given: str) -> None:
    done = cephadm_spec(given)
    assert done.returncode == 1 and done.stdout == '' and done.stderr
