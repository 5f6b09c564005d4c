# SPDX-License-Identifier: LGPL-2.1-or-later
"""How often ceph-mgr goes through all PGs, and what is read from the JSON of Ceph."""
from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Mapping

import pytest

from perfguard.cluster.dumps import (NOT_REMAPPED, KnownItems, PgSummary, WrongDump, config_entries,
                                     count_states, health_checks, keep_remapped, keep_sets,
                                     osdmap_from_dump, pg_rows)
from perfguard.cluster.types import (NO_OSD, ConfigEntry, Osd, OsdMap, PgCounts, PgSets, Pool)

PERIOD = 5.0


class Mgr:
    """Each reading takes so many seconds of CPU."""

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.now = self.cpu = 0.0
        self.readings = 0
        self.degraded = {'3': 7, '4': 2}
        self.summary = PgSummary(self, lambda: self.now, lambda: self.cpu)

    def get(self, data_name: str) -> Dict[str, Any]:
        assert data_name == 'pg_summary'
        self.readings += 1
        self.cpu += self.cost
        return {'by_osd': {'1': {'active+clean': 90}, str(NO_OSD): {'active+degraded': 1}, **{
            osd: {'active+undersized+degraded': pgs} for osd, pgs in self.degraded.items()}}}

    def run(self, seconds: int, degraded: int, pools: Mapping[int, int] = {},
            osds: FrozenSet[int] = frozenset()) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.summary.note(PgCounts(total=100, degraded=degraded), {
                pool: PgCounts(total=50, degraded=number) for pool, number in pools.items()}, osds)
            self.summary.degraded(PERIOD)


def test_one_reading_serves_all_and_what_is_cheap_is_read_every_period() -> None:
    mgr = Mgr(cost=0.001)
    mgr.run(100, degraded=9)
    assert mgr.readings == 20
    assert mgr.summary.degraded(PERIOD) == {3, 4}
    assert sorted(mgr.summary.by_osd(PERIOD)) == [1, 3, 4] and mgr.readings == 20


@pytest.mark.parametrize('cost, readings', [(0.2, 40), (0.8, 20), (2.0, 10)])
def test_what_is_costly_is_read_seldom(cost: float, readings: int) -> None:
    """A fiftieth of the time, but each 20 s as long as that is a twentieth of it."""
    mgr = Mgr(cost)
    mgr.run(400, degraded=9)
    assert mgr.readings == pytest.approx(readings, abs=2)
    # Recovery makes the last reading too long, never too short.
    for left in range(9, 0, -1):
        mgr.run(40, degraded=left)
    assert mgr.readings == pytest.approx(1.9 * readings, abs=3)


def test_changes_that_even_out_are_seen_by_pool_and_by_osds() -> None:
    """100,000 PGs, of which one recovers while another one gets degraded."""
    mgr = Mgr(cost=0.8)
    mgr.run(7, 9, {1: 9, 2: 0}, frozenset({1, 3, 4}))
    mgr.degraded['5'] = 1
    mgr.run(1, 9, {1: 8, 2: 1}, frozenset({1, 3, 4}))
    assert mgr.readings == 2 and 5 in mgr.summary.degraded(PERIOD)
    mgr.run(7, 9, {1: 8, 2: 1}, frozenset({1, 3, 4}))
    assert mgr.readings == 2, 'nothing is new'
    mgr.degraded['6'] = 1
    mgr.run(1, 9, {1: 8, 2: 1}, frozenset({1, 3}))
    assert mgr.readings == 3 and 6 in mgr.summary.degraded(PERIOD)


def test_changes_that_nothing_cheap_shows_are_seen_within_20_s() -> None:
    mgr = Mgr(cost=0.8)
    mgr.run(7, 9, {1: 9})
    mgr.degraded['5'] = 1
    mgr.run(20, 9, {1: 9})
    assert 5 in mgr.summary.degraded(PERIOD)


def test_new_trouble_is_read_within_a_period_whatever_it_costs() -> None:
    mgr = Mgr(cost=0.8)
    mgr.run(7, degraded=2)
    mgr.degraded['5'] = 1
    before = mgr.readings
    mgr.run(1, degraded=3)
    assert mgr.readings == before + 1 and mgr.summary.degraded(PERIOD) == {3, 4, 5}
    mgr.degraded['6'] = 1
    mgr.run(1, degraded=4)
    assert mgr.readings == before + 1, 'once a period'
    mgr.run(5, degraded=4)
    assert mgr.readings == before + 2 and mgr.summary.degraded(PERIOD) == {3, 4, 5, 6}


def test_pgs_without_objects_that_may_hold_up_degraded_ones() -> None:
    counts = count_states([
        ('active+undersized+remapped+backfilling', 3),
        ('active+undersized+degraded+remapped+backfilling', 5),
        ('active+undersized+degraded+remapped+backfill_wait', 7),
        ('active+remapped+backfilling', 9), ('active+remapped+backfill_wait', 11)])
    assert (counts.undersized_empty, counts.degraded_waiting) == (3, 7)


def test_degraded_pgs_that_lack_space_wait_for_no_reservation() -> None:
    """More backfills at a time would not help them."""
    counts = count_states([('active+undersized+degraded+remapped+backfill_wait+'
                            'backfill_toofull', 2)])
    assert (counts.degraded, counts.backfill_toofull, counts.degraded_waiting,
            counts.degraded_toofull) == (2, 2, 0, 2)
    assert count_states([('active+remapped+backfill_toofull', 3)]).degraded_toofull == 0


@pytest.mark.parametrize('state, counts', [
    ('active+clean', PgCounts(active_clean=1)),
    ('active+clean+scrubbing', PgCounts(active_clean=1)),
    ('active+clean+scrubbing+deep', PgCounts(active_clean=1, deep_scrubbing=1)),
    ('active+clean+snaptrim', PgCounts(active_clean=1, snaptrim=1)),
    ('active+clean+remapped', PgCounts(active_clean=1, remapped=1, remapped_clean=1)),
    ('active+remapped+backfilling', PgCounts(remapped=1, backfilling=1)),
    ('active+clean+wait', PgCounts(active_clean=1, wait=1)),
    ('active+clean+laggy', PgCounts(active_clean=1, laggy=1)),
    ('active+recovery_wait', PgCounts(recovery_wait=1)), ('active+recovering', PgCounts(
        recovering=1)),
    ('active+recovering+degraded', PgCounts(recovering=1, degraded=1, degraded_recovering=1)),
    ('active+undersized+degraded+remapped+backfilling', PgCounts(
        degraded=1, remapped=1, backfilling=1, degraded_recovering=1)),
    ('active+undersized+remapped+backfilling', PgCounts(
        remapped=1, backfilling=1, undersized_empty=1)),
    ('undersized+remapped+backfilling+peered', PgCounts(
        inactive=1, remapped=1, backfilling=1, undersized_empty=1, inactive_empty=1)),
    ('undersized+degraded+remapped+backfilling+peered', PgCounts(
        inactive=1, degraded=1, remapped=1, backfilling=1, degraded_recovering=1)),
    # The rest is what the last primary reported, before it went down.
    ('stale+active+clean', PgCounts(inactive=1)),
    ('stale+active+undersized+degraded+laggy', PgCounts(inactive=1)),
    ('stale+active+clean+wait', PgCounts(inactive=1)),
    ('stale+active+undersized+degraded+remapped+backfill_wait', PgCounts(inactive=1)),
    ('stale+active+recovery_wait+degraded', PgCounts(inactive=1)),
    ('stale+active+clean+scrubbing+deep', PgCounts(inactive=1)),
    ('stale+active+clean+snaptrim', PgCounts(inactive=1)),
    ('stale+peering', PgCounts(inactive=1)),
    ('peering', PgCounts(inactive=1, in_transition=1)),
    ('activating', PgCounts(inactive=1, in_transition=1)),
    ('creating+peering', PgCounts(inactive=1, in_transition=1)),
    ('unknown', PgCounts(inactive=1, in_transition=1, unreported=1)),
    ('down', PgCounts(inactive=1))])
def test_the_conditions_of_a_state(state: str, counts: PgCounts) -> None:
    assert count_states([(state, 1)]) == replace(counts, total=1)
    # Of ten PGs, seven are not reported.
    assert count_states([(state, 2), (state, 1)], 10) == PgCounts(**{
        name: 3 * number + 7 * (name in ('total', 'inactive', 'in_transition', 'unreported'))
        for name, number in vars(replace(counts, total=1)).items()})


def test_an_osdmap() -> None:
    dump: Dict[str, Any] = {
        'epoch': 7, 'flags': 'noout,,sortbitwise', 'fsid': 'f', 'crush_version': 9,
        'require_min_compat_client': 'luminous', 'require_osd_release': 'squid',
        'nearfull_ratio': 0.8, 'full_ratio': 0.9,
        'osds': [{'osd': 0, 'up': 1, 'weight': 0.5, 'state': ['exists', 'full', 'nearfull'],
                  'primary_affinity': 0.25, 'up_thru': 5, 'uuid': 'u'},
                 {'osd': 1, 'up': 0, 'weight': 0, 'state': ['destroyed', 'backfillfull']}],
        'pools': [
            {'pool': 1, 'pool_name': 'rep', 'type': 1, 'size': 3, 'min_size': 2, 'crush_rule': 4,
             'pg_num': 32, 'pg_num_target': 64, 'pg_num_pending': 31, 'pg_autoscale_mode': 'on',
             'flags_names': 'hashpspool,full_quota', 'quota_max_bytes': 5, 'quota_max_objects': 6,
             'object_hash': 1, 'pg_placement_num': 30, 'pg_placement_num_target': 64,
             'options': {'pg_num_min': 8, 'pg_num_max': 128}, 'read_tier': 2, 'tier_of': -1},
            {'pool': 2, 'pool_name': 'ec', 'type': 3, 'size': 6, 'min_size': 5, 'crush_rule': 5,
             'pg_num': 8, 'erasure_code_profile': 'gone', 'tier_of': 0}],
        'pg_upmap_items': [{'pgid': '1.a', 'mappings': [{'from': 0, 'to': 1}]}],
        'pg_upmap': [{'pgid': '1.b', 'osds': [1, 0]}],
        'pg_temp': [{'pgid': '2.0', 'osds': [0, NO_OSD]}],
        'pg_upmap_primaries': [{'pgid': '1.c', 'primary_osd': 1}]}
    assert osdmap_from_dump(dump) == OsdMap(
        7, frozenset({'noout', 'sortbitwise'}),
        {1: Pool(1, 'rep', False, 3, 2, 4, 32, 64, 31, 'on', 1,
                 frozenset({'hashpspool', 'full_quota'}), 5, 6, 1, 30, 64, 8, 128, cached=True),
         2: Pool(2, 'ec', True, 6, 5, 5, 8, 8, 8, caches=True, local_groups=True)},
        {0: Osd(0, True, 0.5, fullness='full', primary_affinity=0.25),
         1: Osd(1, False, 0.0, destroyed=True, fullness='backfillfull')},
        {'1.a': ((0, 1),)}, {'1.b': (1, 0)}, {'2.0': (0, NO_OSD)}, 'f', 'luminous', 'squid', 0.8,
        0.9, 9,
        {'1.c': 1})
    osds = osdmap_from_dump(dump).osds
    assert [(osd.up_thru, osd.uuid) for osd in osds.values()] == [(5, 'u'), (0, '')]
    del dump['epoch']
    with pytest.raises(WrongDump) as raised:
        osdmap_from_dump(dump)
    assert str(raised.value) == 'not the output of "ceph osd dump -f json" (no \'epoch\')'


def test_health_checks_and_options() -> None:
    assert health_checks({'checks': {
        'OSD_DOWN': {'summary': {'message': '1 osds down'}, 'muted': False},
        'SLOW_OPS': {'muted': True}, 'PG_DEGRADED': {}}}) == (
            {'OSD_DOWN': '1 osds down', 'PG_DEGRADED': ''}, {'SLOW_OPS'})
    assert health_checks({}) == ({}, frozenset())
    assert config_entries([{'section': 'osd', 'mask': 'class:ssd', 'name': 'a', 'value': 1},
                           {'section': 'global', 'name': 'b', 'value': 'x'}]) == (
        ConfigEntry('osd', 'class:ssd', 'a', '1'), ConfigEntry('global', '', 'b', 'x'))


def test_rows_of_a_pg_dump() -> None:
    rows = [{'pgid': '1.0'}]
    dumps: List[Any] = [rows, {'pg_stats': rows}, {'pg_map': {'pg_stats': rows}}, {'pg_map': rows}]
    assert [pg_rows(dump) for dump in dumps] == [rows] * 4
    wrong_dumps: List[Any] = [{}, {'pg_map': {}}, 'x', {'pg_stats': {}}]
    for dump in wrong_dumps:
        with pytest.raises(WrongDump):
            pg_rows(dump)
    moving = {'pgid': '1.0', 'up': [1, 2], 'acting': [1, 3], 'state': 'active+remapped', 'x': 1}
    assert keep_remapped(moving) == keep_sets(moving) == PgSets(
        '1.0', (1, 2), (1, 3), 'active+remapped')
    settled = {'pgid': '1.0', 'up': [1, 3], 'acting': [1, 3]}
    assert keep_remapped(settled) is NOT_REMAPPED
    assert keep_sets(settled) == PgSets('1.0', (1, 3), (1, 3), '')
    others: List[Dict[str, Any]] = [
        {'up': [1], 'acting': [1]}, {'pgid': '1.0', 'up': [1]}, {'pg_stats': []}]
    for other in others:
        assert keep_remapped(other) is other


def test_upmap_items_are_known_from_one_osdmap_to_the_next() -> None:
    rows = [{'pgid': '1.%d' % number, 'mappings': [{'from': old, 'to': new} for old, new in pairs]}
            for number, pairs in enumerate(([(1, 2)], [(1, 2), (3, 4)], [(1, 2)]))]
    known = KnownItems()
    first, second = known.read(rows), known.read(rows)
    assert first == second == {'1.0': ((1, 2),), '1.1': ((1, 2), (3, 4)), '1.2': ((1, 2),)}
    assert all(first[pgid] is second[pgid] for pgid in first) and first['1.0'] is first['1.2']


def test_osds_and_hosts_that_are_not_marked_out() -> None:
    """As "ceph osd set-group noout host1 osd.2 hdd" leaves it on Pacific and Tentacle."""
    dump: Dict[str, Any] = {
        'epoch': 1, 'flags_set': [], 'pools': [], 'pg_upmap_items': [], 'pg_upmap': [],
        'pg_temp': [], 'crush_node_flags': {'host1': ['noout'], 'host2': ['noup']},
        'device_class_flags': {'hdd': ['noout'], 'ssd': ['noin']},
        'osds': [{'osd': 1, 'up': 1, 'weight': 1.0, 'state': ['exists', 'up']},
                 {'osd': 2, 'up': 1, 'weight': 1.0, 'state': ['noout', 'exists', 'up']}]}
    osdmap = osdmap_from_dump(dump)
    assert (osdmap.noout, osdmap.noout_classes) == ({'host1', 'osd.2'}, {'hdd'})


@pytest.mark.parametrize('profile, shards', [
    ({'plugin': 'jerasure', 'k': '4', 'm': '2'}, 4),
    ({'plugin': 'lrc', 'k': '4', 'm': '2', 'l': '3'}, 4),
    # As the mons store it for a profile that was given layers.
    ({'plugin': 'lrc', 'k': '-1', 'm': '-1', 'l': '-1', 'mapping': '__DD__DD',
      'layers': '[["_cDD_cDD",""],["cDDD____",""],["____cDDD",""]]'}, 4),
    ({'plugin': 'lrc', 'mapping': '__DD', 'layers': '[["_cDD",""],["cDDD",""]]'}, 2),
    ({}, 1)])
def test_data_shards_of_a_code_with_layers_are_those_of_its_mapping(
        profile: Mapping[str, str], shards: int) -> None:
    pool = {'pool': 1, 'pool_name': 'ec', 'type': 3, 'size': 8, 'min_size': 5, 'crush_rule': 0,
            'pg_num': 32, 'erasure_code_profile': 'layered'}
    osdmap = osdmap_from_dump({
        'epoch': 1, 'flags': '', 'pools': [pool], 'osds': [], 'pg_upmap': [],
        'pg_upmap_items': [], 'pg_temp': [], 'erasure_code_profiles': {'layered': profile}})
    assert osdmap.pools[1].data_shards == shards
