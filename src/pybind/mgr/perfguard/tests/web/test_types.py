# SPDX-License-Identifier: LGPL-2.1-or-later
"""The types of the page (web/src/types.ts) name keys that perfguard's answers have."""
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest

from perfguard.cluster.types import PgCounts, UnreadablePg
from perfguard.ledger import Held, Ledger, Owner, Row, to_json
from perfguard.mitigation.report import listing, listing_json
from perfguard.mitigation.types import (LadderStep, MitigationState, Rung, Setting, SettingKind,
                                        StepStage)
from perfguard.probe.report import Probed
from perfguard.probe.types import Target
from perfguard.rebalance.types import Phase
from perfguard.status import Published, overview
from perfguard.watch.controller import Watched as WatchedState
from perfguard.watch.load import LoadGrowth, PoolUse, Rates
from perfguard.why.causes import Cause, as_json, parsed

from ..fakes.driver import Driver
from ..probe import test_curve, test_scaling
from ..probe.test_report import PROBED
from ..watch.test_controller import PERIOD, Watched

SOURCE = (Path(__file__).resolve().parents[2] / 'web' / 'src' / 'types.ts').read_text()
#: Added by module.dashboard_overview and by the dashboard's controller.
ADDED: Dict[str, Any] = {'name': 'x', 'fsid': 'f', 'user': 'admin',
                         'may': {'update': True, 'create': True, 'delete': True}}
PLAIN = {'number': (int, float), 'string': (str,), 'boolean': (bool,),
         'Value': (int, float, type(None)), 'Phase': (str,)}


def interfaces() -> Dict[str, Dict[str, str]]:
    """By name: the type of each key, those of the interface that it extends first."""
    found: Dict[str, Dict[str, str]] = {}
    for name, base, body in re.findall(
            r'export interface (\w+)(?: extends (\w+))? \{\n(.*?)\n\}', SOURCE, re.S):
        found[name] = {**found.get(base, {}),
                       **dict(re.findall(r'^    (\w+\??): (.*);$', body, re.M))}
    return found


TYPES = interfaces()


def keys_of(kind: str) -> List[Tuple[str, str]]:
    """Of a type that is written in place, as in "{ probes: ProbeSummary[]; kept_in: string }"."""
    assert kind.startswith('{ ') and kind.endswith(' }'), kind
    return re.findall(r'(\w+\??): ([^;]*)(?:; | \})', kind[2:])


def check(kind: str, value: Any, where: str, checked: Set[str]) -> None:
    """Raise AssertionError where `value` is not what the page expects."""
    if kind.endswith(' | null'):
        if value is not None:
            check(kind[:-len(' | null')], value, where, checked)
    elif kind.endswith('[]'):
        assert isinstance(value, list), where
        for each in value:
            check(kind[:-2], each, where + '[]', checked)
    elif kind.startswith('Partial<'):
        if value:
            check(kind[len('Partial<'):-1], value, where, checked)
    elif kind.startswith('Record<string, '):
        for key, each in value.items():
            check(kind[len('Record<string, '):-1], each, where + '.' + key, checked)
    elif kind in PLAIN:
        assert isinstance(value, PLAIN[kind]), (where, kind, value)
    else:
        checked.add(kind)
        for key, inner in TYPES.get(kind, {}).items() or keys_of(kind):
            if not key.endswith('?'):
                assert key in value, where + '.' + key
                check(inner, value[key], where + '.' + key, checked)


@pytest.fixture(scope='module')
def driver() -> Watched:
    """With laggy PGs, so that there are suspects, events and reasons."""
    driver = Watched()
    driver.osds.trouble = {'laggy': 3}
    driver.osds.change = {'osd_counts': {osd: PgCounts(total=6, laggy=3 if osd == 2 else 1)
                                         for osd in range(4)},
                          'unreadable': {1: (UnreadablePg('1.3', 4.0, 9),)}}
    for _ in range(6):
        driver.turn(PERIOD)
    return driver


@pytest.fixture
def answer(driver: Watched) -> Any:
    published = driver.loop.published
    found = json.loads(json.dumps(overview(published, PROBED, driver.loop.drawn(0.0, []), 0.0,
                                           published.turned)))
    state = MitigationState((LadderStep(1, Rung.SLOW, StepStage.HELD, 1.0, 'why', settings=(
        Setting(SettingKind.CONFIG, 'osd_max_backfills', 'osd', Held('4', '1')),)),))
    return {**found, **ADDED, 'mitigation': listing_json(listing(state, 'act', (), 0.0))}


def test_the_overview_has_what_the_page_reads(answer: Any) -> None:
    checked: Set[str] = set()
    check('Overview', answer, 'overview', checked)
    missing = {'Overview', 'Status', 'Signals', 'Pool', 'Reason', 'Campaign', 'Mitigation',
               'Rung', 'RungSetting', 'Laggy', 'LaggyPg', 'Suspect', 'Event', 'ProbeSummary',
               'Schedule', 'May'} - checked
    assert not missing


def test_the_pools_that_use_most_of_what_they_serve_come_first() -> None:
    """Without those of which no share is known."""
    curve = test_curve.record([
        test_curve.measure(replace(test_curve.JOB, iodepth=depth), test_curve.ideal(depth))
        for depth in test_curve.DEPTHS])
    uses = tuple(PoolUse(number, 'p%d' % number, 32, 4.0, Rates(0.0, 100.0 * number),
                         Rates(0.0, 100.0 * number), 0.0, LoadGrowth(1)) for number in range(14))
    probed = replace(PROBED, records=tuple(
        replace(curve, id=50 + number, target=Target('pool', 'p%d' % number))
        for number in range(13)))
    published = Published(watched=WatchedState(uses=uses))
    rows = json.loads(json.dumps(overview(published, probed, {}, 0.0, 1.0)))['capacity']
    assert [row['pool'] for row in rows] == ['p%d' % number for number in range(12, 2, -1)]
    checked: Set[str] = set()
    for row in rows:
        check('CapacityRow', row, 'capacity', checked)
    assert 'CapacityRow' in checked


@pytest.mark.parametrize('path', ['status.mode', 'rebalance.limits', 'laggy.pgs_count'])
def test_a_key_that_is_gone_is_found(answer: Any, path: str) -> None:
    part, key = path.split('.')
    found = {**answer, part: {name: value for name, value in answer[part].items() if name != key}}
    with pytest.raises(AssertionError, match=path):
        check('Overview', found, 'overview', set())


def test_the_bill_of_a_campaign_has_what_the_page_reads() -> None:
    driver = Driver()
    driver.to_releasing()
    checked: Set[str] = set()
    check('Campaign', {**json.loads(json.dumps(driver.status)), 'unpinnable_count': 0}, 'campaign',
          checked)
    assert checked >= {'Bill', 'SlowOps', 'BorrowedSetting'}


def test_osds_have_what_the_page_reads(driver: Watched) -> None:
    rows = json.loads(json.dumps(driver.rows))
    assert rows
    for row in rows:
        check('Osd', row, 'osd', set())


def test_curves_and_scaling_have_what_the_page_reads() -> None:
    checked: Set[str] = set()
    depths = test_curve.record([test_curve.measure(replace(test_curve.JOB, iodepth=depth),
                                                   test_curve.ideal(depth))
                                for depth in test_curve.DEPTHS])
    numbers = test_scaling.record(lambda count: 1000.0)
    for measured in (depths, numbers):
        check('ProbeDetails', json.loads(json.dumps(
            Probed(records=(measured,)).details(measured.id))), 'details', checked)
    assert checked >= {'Curve', 'CurvePoint', 'Measure', 'Price', 'Scaling', 'ScalePoint'}


def test_phases() -> None:
    listed = re.search(r'export type Phase = (.*?);', SOURCE, re.S)
    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed.group(1))) == {phase.value for phase in Phase} | {
        'IDLE'}


def test_what_is_asked_for_has_what_the_page_reads() -> None:
    held = to_json(Ledger((Row(Owner.CAMPAIGN, 'norebalance', None, 'set', 1.0,
                               'ceph osd unset norebalance'),)))
    checked: Set[str] = set()
    check('Borrowed[]', held['held'], 'held', checked)
    causes = [Cause('LATENCY', 'slow', share=0.5), Cause('PAUSED', 'by')]
    answer = as_json(parsed('campaign'), causes)
    check('Cause[]', answer['causes'], 'why', checked)
    assert checked == {'Borrowed', 'Cause'}
