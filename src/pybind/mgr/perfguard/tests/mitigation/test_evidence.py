# SPDX-License-Identifier: LGPL-2.1-or-later
"""What counts as trouble, and what as movement."""
import inspect
import re
from dataclasses import replace
from typing import List, Mapping, Set, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Osd, OsdMap, PgCounts, Pool, Signals
from perfguard.errors import Reason
from perfguard.mitigation.evidence import evidence, futile, mixed_osds, untouched_pools
from perfguard.mitigation.types import Evidence
from perfguard.observation import Clients, Observation, PoolClients, Settings
from perfguard.watch import causes, slow_parts
from perfguard.watch.osds import OsdReads

from ..cluster.test_crush import DUMP


def found(counts: PgCounts = PgCounts(), laggy: bool = False,
          late: Tuple[Tuple[str, int], ...] = (), slow: Mapping[str, int] = {}) -> Evidence:
    signals = Signals(counts, slow_daemons=slow, slow_ops=sum(slow.values()))
    return evidence(signals, laggy, late, {}, False)


@pytest.mark.parametrize('seen,code,text', [
    (found(PgCounts(laggy=1)), 'LAGGY', '1 PG is laggy'),
    (found(laggy=True), 'LAGGY_LATELY', 'PGs were laggy within the last three reports'),
    (found(PgCounts(wait=4), laggy=True), 'LEASES', '4 PGs are waiting for read leases to expire'),
    (found(slow={'osd.3': 2, 'osd.4': 1, 'mon.a': 7}), 'SLOW_OPS', '3 slow operations'),
    (found(late=(('reads of pool rbd', 7),)), 'SLOW_POOL', 'reads of pool rbd are '
     'slower than their baseline')])
def test_trouble(seen: Evidence, code: str, text: str) -> None:
    pools = frozenset({7} if code == 'SLOW_POOL' else ())
    number = {'LEASES': 4, 'SLOW_OPS': 2}.get(code, 1)
    assert seen.trouble == seen.of_movement == (Reason(code, text, pools, number),)


@pytest.mark.parametrize('seen', [
    found(), found(PgCounts(wait=4)), found(slow={'mon.a': 3}),
    found(PgCounts(degraded=3, remapped=2))])
def test_no_trouble(seen: Evidence) -> None:
    """Leases that end after peering, mons, and movement as such."""
    assert seen.trouble == ()


@pytest.mark.parametrize('check, left', [
    ('PERFGUARD_LAGGY_PGS', ['SLOW_OPS', 'SLOW_POOL']), ('SLOW_OPS', ['LAGGY', 'SLOW_POOL']),
    ('PERFGUARD_LATENCY', ['LAGGY', 'SLOW_OPS']), ('OSD_DOWN', ['LAGGY', 'SLOW_OPS', 'SLOW_POOL'])])
def test_muted_checks_are_no_evidence(check: str, left: List[str]) -> None:
    signals = Signals(PgCounts(laggy=1), slow_daemons={'osd.1': 3}, slow_ops=3,
                      muted=frozenset({check}))
    seen = evidence(signals, True, (('reads of pool rbd', 7),), {}, False)
    assert [reason.code for reason in seen.trouble] == left


@pytest.mark.parametrize('check, muted', [
    ('PERFGUARD_SLOW_OSD', True), ('PERFGUARD_OSD_CHRONIC', False)])
def test_whether_slow_osds_are_muted(check: str, muted: bool) -> None:
    signals = Signals(PgCounts(), muted=frozenset({check}))
    assert evidence(signals, False, (), {}, False).slow_osds_muted is muted


@pytest.mark.parametrize('muted', [(), ('PERFGUARD_LATENCY',)])
def test_acknowledged_conditions_are_reported_while_they_last(muted: Tuple[str, ...]) -> None:
    signals = Signals(PgCounts(laggy=1), muted=frozenset(muted))
    seen = evidence(signals, True, (('reads of pool rbd', 7),), {}, False, waived=('SLOW_POOL',))
    assert [reason.code for reason in seen.accepted] == ['SLOW_POOL']


def test_acknowledged_conditions_are_no_evidence() -> None:
    signals = Signals(PgCounts(), slow_daemons={'osd.1': 3}, slow_ops=3)
    for waived, left in (((), ['LAGGY_LATELY', 'SLOW_OPS', 'SLOW_POOL']),
                         (('LAGGY', 'SLOW_OPS'), ['SLOW_POOL']),
                         (('SLOW_POOL', 'DEGRADED'), ['LAGGY_LATELY', 'SLOW_OPS'])):
        seen = evidence(signals, True, (('reads of pool rbd', 7),), {}, False, waived=waived)
        assert [reason.code for reason in seen.trouble] == left


@pytest.mark.parametrize('counts,moving,rebalancing', [
    (PgCounts(remapped=1), True, True), (PgCounts(backfilling=1), True, True),
    (PgCounts(backfill_wait=1), True, True), (PgCounts(recovering=1), True, False),
    # CRUSH finds too few OSDs.
    (PgCounts(remapped=3, remapped_clean=3), False, False),
    (PgCounts(remapped=4, remapped_clean=3), True, True),
    (PgCounts(degraded=1), False, False), (PgCounts(active_clean=1), False, False)])
def test_movement(counts: PgCounts, moving: bool, rebalancing: bool) -> None:
    seen = found(counts)
    assert (seen.moving, seen.rebalancing) == (moving, rebalancing)
    assert seen.degraded == counts.degraded


# ---- other device classes

def observed(classes: Mapping[int, str], rates: Mapping[int, float], rule: int,
             erasure: bool = False) -> Observation:
    """Pool 1 has the rule of this number, pool 2 takes all OSDs."""
    crush = CrushRules.from_dump({**DUMP, 'devices': [
        {'id': osd, 'class': name} for osd, name in classes.items()]})
    pools = {number: Pool(number, 'p', erasure, 3, 2, rule if number == 1 else 0, 8, 8, 8)
             for number in rates}
    osdmap = OsdMap(1, frozenset(), pools, {osd: Osd(osd, True, 1.0) for osd in range(8)}, {}, {},
                    {})
    return Observation(
        1000.0, Signals(PgCounts()), Settings(osdmap, None), lambda pgid: None, crush,
        clients=Clients(pools={number: PoolClients('p', 8, rate)
                               for number, rate in rates.items()}))


#: OSDs with an even id are in the tree of rule 2.
CLASSES = {osd: 'hdd' if osd % 2 else 'ssd' for osd in range(8)}


@pytest.mark.parametrize('seen, mixed', [
    (observed(CLASSES, {1: 100.0}, 0), {2, 3}), (observed(CLASSES, {1: 100.0}, 2), set()),
    (observed(CLASSES, {1: 100.0}, 0, erasure=True), set()),
    (observed(dict.fromkeys(CLASSES, 'ssd'), {1: 100.0}, 0), set()), (observed({}, {}, 0), set()),
    # A pool of a service hardly counts, except on OSDs that have no other.
    (observed(CLASSES, {1: 100.0, 2: 1.0}, 2), {3}),
    (observed(CLASSES, {1: 100.0, 2: 50.0}, 2), {2, 3}),
    (observed(CLASSES, {1: 0.0}, 0), {2, 3}), (observed(CLASSES, {1: 0.0}, 2), set()),
    (replace(observed(CLASSES, {1: 100.0}, 0), clients=Clients()), {2, 3})])
def test_osds_in_whose_place_other_device_classes_would_lead(seen: Observation,
                                                             mixed: Set[int]) -> None:
    assert mixed_osds(seen, {2, 3, 99}) == mixed
    assert mixed_osds(seen, ()) == set()


def test_pools_of_one_rule_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 tenants, on 10,000 OSDs, of which one has a slow pool while data of all moves."""
    seen = observed(CLASSES, dict.fromkeys(range(2, 50), 9.0), 0)
    counts = {pool: PgCounts(backfilling=1) for pool in seen.osdmap.pools}
    calls: List[int] = []
    weight_of = CrushRules.weight_of

    def counted(rules: CrushRules, rule: int, osd: int) -> float:
        calls.append(osd)
        return weight_of(rules, rule, osd)

    monkeypatch.setattr(CrushRules, 'weight_of', counted)
    seen = replace(seen, signals=Signals(PgCounts(), pool_counts=counts))
    assert untouched_pools(seen, {2}) == frozenset() and len(calls) == len(CLASSES)


# ---- affinities that would not help

@pytest.mark.parametrize('codes, text', [
    (('object',), 'most of its operations are on one object'), (('client',), 'one client sends'),
    (('pool',), 'it serves more operations of one pool'),
    (('load',), 'it serves more operations than its peers'),
    (('deep_scrub', 'load'), 'it serves more operations than its peers'),
    (('snaptrim', 'compaction'), 'it removes deleted snapshots'),
    (('restart',), 'its cache is cold after a restart'), (('full', 'restart'), ''),
    # The most significant one.
    (('snaptrim', 'object'), 'it removes deleted snapshots'),
    # Another primary has another drive, host and network.
    (('network', 'load'), ''), (('host', 'object'), ''), (('drive',), ''), (('cpu', 'client'), ''),
    (('full', 'load'), ''), (('deep_scrub',), ''), ((), '')])
def test_causes_that_another_primary_would_inherit(codes: Tuple[str, ...], text: str) -> None:
    found = futile({3: codes}, {3: OsdReads(led=100)})
    assert found.keys() == ({3} if text else set())
    assert found.get(3, '').startswith(text)


@pytest.mark.parametrize('reads, text', [
    (OsdReads(1, 2, 97), '99 % of its reads are of erasure-coded pools, which need it in any case'),
    (OsdReads(0, 0, 20),
     '100 % of its reads are of erasure-coded pools, which need it in any case'),
    (OsdReads(30, 70, 0), '70 % of its reads are of PGs that it does not lead'),
    (OsdReads(49, 26, 25), '51 % of its reads are of PGs that it does not lead'),
    (OsdReads(50, 25, 25), ''), (OsdReads(100, 0, 0), ''), (OsdReads(0, 0, 19), ''),
    (OsdReads(), '')])
def test_reads_that_do_not_depend_on_the_primary(reads: OsdReads, text: str) -> None:
    assert futile({3: ('drive',)}, {3: reads}) == ({3: text} if text else {})
    assert futile({}, {3: reads, 4: OsdReads(led=99)}) == ({3: text} if text else {})


def test_codes_of_causes_are_those_of_the_watch() -> None:
    from perfguard.mitigation.evidence import _FUTILE, _OF_OSD
    source = inspect.getsource(causes) + inspect.getsource(slow_parts)
    for code in {*_FUTILE, *_OF_OSD}:
        assert re.search(r"['(\[]%s'" % code, source), code
