# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which upmaps become pins, and how imports are read and judged, without a cluster."""
import errno
import json
from dataclasses import replace
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from perfguard.cluster.types import (NO_OSD, Balancing, Osd, OsdMap, OsdSet, PgCounts, Pool,
                                     Signals, Space, UpmapEntry)
from perfguard.errors import Refused
from perfguard.observation import Observation, Settings
from perfguard.rebalance.adopting import (
    AMBIGUOUS, BALANCED, IN_FORCE, LACKING, MOST_BYTES, MOST_PAIRS, NAMED_PGS, NO_OTHER,
    NOT_COVERED, NOT_MODELLED, VECTOR, Adoption, Imported, _chain, _condition, _goal, _full_osd,
    _applied, _PoolUpmaps, exported, parsed, plan_adoption, plan_import)
from perfguard.rebalance.moves import Move
from perfguard.rebalance.types import PinRecord

from ..fakes.driver import OPTIONS
from ..upmap.test_evening_steps import rules

NOTHING = UpmapEntry()
#: Four OSDs under rule 0; nothing is known of rule 7.
CRUSH = rules((0, 1, 2, 3), (4, 5))
POOL = Pool(1, 'p', False, 2, 1, 0, 8, 8, 8)
#: OSD 3 is new and has one of the four PGs that are its share; upmaps keep three others on 0.
UPS: Dict[str, OsdSet] = {
    '1.0': (0, 1), '1.1': (0, 2), '1.2': (0, 1), '1.3': (0, 2), '1.4': (1, 0), '1.5': (2, 0),
    '1.6': (1, 2), '1.7': (2, 3)}
PINNED = {'1.0': ((3, 0),), '1.1': ((3, 0),), '1.2': ((3, 0),)}


def a_map(items: Mapping[str, Tuple[Tuple[int, int], ...]] = PINNED,
          pools: Sequence[Pool] = (POOL,), vectors: Mapping[str, OsdSet] = {},
          remapped: Collection[str] = (), **osds: Osd) -> OsdMap:
    """`osds`: "osd3": a row in place of the usual one."""
    rows = {osd: osds.get('osd%d' % osd, Osd(osd, True, 1.0)) for osd in range(6)}
    return OsdMap(5, frozenset(), {pool.id: pool for pool in pools}, rows, items, vectors,
                  dict.fromkeys(remapped, (0, 1)))


def judged(osdmap: OsdMap, ups: Mapping[str, OsdSet] = UPS, raws: Mapping[str, OsdSet] = {},
           balancing: Balancing = Balancing(), uncovered: bool = False,
           own: Collection[str] = ()) -> Adoption:
    return plan_adoption(osdmap, CRUSH, lambda pool_id: ups if pool_id == 1 else {}, balancing,
                         frozenset(own), uncovered, raws)


# ---- upmaps of others

def test_upmaps_that_keep_shards_from_a_new_osd_become_pins() -> None:
    found = judged(a_map())
    assert found.pins == {pgid: PinRecord(NOTHING, UpmapEntry(items))
                          for pgid, items in PINNED.items()}
    assert found.left_out == {} and found.balancing == 0
    # Those of perfguard, and of pools that are gone, are none of others.
    assert judged(a_map({**PINNED, '9.1': ((3, 0),)}), own=['1.1']).pins.keys() == {'1.0', '1.2'}


@pytest.mark.parametrize('fields, left', [
    ({'osd3': Osd(3, False, 1.0)}, 'osd.3 lacks PGs, but is down'),
    ({'osd3': Osd(3, True, 0.5)}, None), ({'osd3': Osd(3, True, 1.0, fullness='nearfull')},
                                          'osd.3 lacks PGs, but is nearfull')])
def test_an_osd_that_cannot_take_what_it_lacks(fields: Any, left: Optional[str]) -> None:
    found = judged(a_map(**fields))
    assert found.pins == {}
    if left is not None:
        assert found.left_out == dict.fromkeys(PINNED, left)
    else:
        # Its share is smaller: with half of the weight it lacks one PG.
        assert set(found.left_out.values()) == {'osd.3 lacks PGs, but is reweighted'}


@pytest.mark.parametrize('balancing, uncovered, pins, balanced, left', [
    (Balancing(deviation=5.0), False, 0, 3, 0), (Balancing(deviation=3.0), False, 0, 3, 0),
    (Balancing(deviation=2.9), False, 3, 0, 0),
    (Balancing(upmap=False, deviation=5.0), False, 0, 0, 3),
    (Balancing(upmap=False, deviation=5.0), True, 3, 0, 0),
    (Balancing(pools=frozenset({2})), False, 0, 0, 3)])
def test_upmaps_of_a_pool_that_is_balanced_or_not_covered(
        balancing: Balancing, uncovered: bool, pins: int, balanced: int, left: int) -> None:
    found = judged(a_map(), balancing=balancing, uncovered=uncovered)
    assert (len(found.pins), found.balancing, len(found.left_out)) == (pins, balanced, left)
    assert set(found.left_out.values()) <= {NOT_COVERED}


def test_a_pool_under_an_unknown_rule() -> None:
    found = judged(a_map(pools=[replace(POOL, crush_rule=7)]))
    assert found.left_out == dict.fromkeys(PINNED, NOT_MODELLED)


@pytest.mark.parametrize('items, ups, fields, left', [
    ({'1.9': ((3, 0),)}, {}, {}, 'the PG does not exist'),
    ({'1.7': ((3, 0),)}, {}, {'pools': [replace(POOL, pg_num_pending=7)]}, 'merge'),
    ({'1.0': ((3, 0),)}, {'1.0': (0,)}, {'osd5': Osd(5, False, 1.0)}, LACKING),
    ({'1.0': ((3, 0), (2, 0))}, {}, {}, AMBIGUOUS),
    ({'1.0': ((2, 1),)}, {}, {}, BALANCED),
    ({}, {}, {'vectors': {'1.0': (0, 1)}}, VECTOR)])
def test_upmaps_that_are_no_pins(items: Any, ups: Any, fields: Any, left: str) -> None:
    found = judged(a_map(items, **fields), {**UPS, **ups})
    assert found.pins == {}
    if left == BALANCED:
        assert found.balancing == 1 and found.left_out == {}
    else:
        text, = found.left_out.values()
        assert left in text and found.balancing == 0


def test_vectors_become_pins_where_crush_is_known() -> None:
    vectors = {'1.0': (0, 1), '1.6': (1, 2)}
    found = judged(a_map({}, vectors=vectors), raws={'1.0': (3, 1), '1.6': (2, 1)})
    assert found.pins == {'1.0': PinRecord(NOTHING, UpmapEntry(vector=(0, 1)), (3, 1))}
    # What only exchanges shards belongs to a balanced state.
    assert found.balancing == 1


@pytest.mark.parametrize('erasure, raw, up, pairs', [
    (False, (3, 1), (1, 0), ((3, 0),)), (True, (3, 1), (0, 1), ((3, 0),)),
    (True, (3, 1), (1, 0), ()), (True, (3, 1), (1, 3), ()),
    (False, (3, 2), (0, 1), ((3, 0), (2, 1)))])
def test_a_vector_as_pairs(erasure: bool, raw: OsdSet, up: OsdSet,
                           pairs: Tuple[Tuple[int, int], ...]) -> None:
    pool = replace(POOL, erasure=erasure)
    upmaps = _PoolUpmaps(a_map(), CRUSH, pool, UPS, {})
    assert upmaps._pairs(raw, up) == pairs


@pytest.mark.parametrize('source, counts, target_counts, reason', [
    # OSDs have a share of four.
    (3, 3, 4, None), (3, 4, 4, BALANCED), (3, 3, 3, 'neither osd.3 nor osd.0 has its share of PGs'),
    (9, 0, 4, BALANCED)])
def test_why_a_pair_is_no_pin(source: int, counts: int, target_counts: int,
                              reason: Optional[str]) -> None:
    upmaps = _PoolUpmaps(a_map(), CRUSH, POOL, UPS, {})
    upmaps._balance = replace(upmaps._balance, before={source: counts, 0: target_counts})
    assert upmaps._why_no_pin(source, 0) == reason


def test_an_osd_without_a_row_or_shards() -> None:
    upmaps = _PoolUpmaps(a_map(), CRUSH, POOL, UPS, {})
    upmaps._balance = replace(upmaps._balance, before={})
    assert upmaps._why_no_pin(3, 0) == 'neither osd.3 nor osd.0 has its share of PGs'
    # An OSD beyond the rule has no share.
    assert upmaps._why_no_pin(3, 5) is None
    upmaps._osdmap = replace(upmaps._osdmap, osds={})
    assert upmaps._why_no_pin(3, 0) == 'osd.3 lacks PGs, but is down'


@pytest.mark.parametrize('source, items, raw, chain', [
    (5, ((5, 6), (6, 7), (7, 0)), (5, 6, 7), ((5, 6), (6, 7), (7, 0))),
    (5, ((5, 6), (6, 7), (7, 0)), (5, 7), ((5, 6),)), (5, ((5, 6),), (5, 6), ((5, 6),)),
    (5, ((5, 6), (6, 5)), (5, 6), ((5, 6), (6, 5)))])
def test_the_pairs_that_pass_a_shard_on(source: int, items: Any, raw: OsdSet, chain: Any) -> None:
    assert _chain(source, items, raw) == chain


@pytest.mark.parametrize('row, text', [
    (None, 'down'), (Osd(1, False, 1.0, fullness='full'), 'down'),
    (Osd(1, True, 0.5, fullness='full'), 'full'), (Osd(1, True, 0.5), 'reweighted')])
def test_the_condition_of_an_osd(row: Optional[Osd], text: str) -> None:
    assert _condition(row) == text


@pytest.mark.parametrize('row, takes', [
    (Osd(0, True, 1.0), True), (Osd(0, False, 1.0), False), (Osd(0, True, 0.0), False),
    (Osd(0, True, 1.0, fullness='nearfull'), False), (Osd(0, True, 0.5), True)])
def test_osds_that_can_take_a_pg(row: Osd, takes: bool) -> None:
    upmaps = _PoolUpmaps(a_map(osd0=row), CRUSH, POOL, UPS, {})
    assert upmaps._takes(0) is takes and upmaps._takes(9) is False
    assert upmaps._is_drained(5) is True and upmaps._takes(5) is False


@pytest.mark.parametrize('drained, fields, pin', [
    # OSD 3 has a weight: the PG goes there.
    ({0: 0.0001}, {}, NOTHING),
    ({0: 0.0001}, {'osd3': Osd(3, True, 1.0, fullness='nearfull')},
     'osd.3 lacks PGs, but is nearfull'),
    # It is drained as well: only the shard on OSD 0 moves, to the one that is left.
    ({0: 0.0001, 3: 0.0001}, {}, UpmapEntry(((3, 2),))),
    ({0: 0.0001, 3: 0.0001}, {'osd2': Osd(2, False, 1.0)}, NO_OTHER),
    ({0: 0.0001, 3: 0.0001}, {'osd2': Osd(2, True, 1.0, fullness='full')}, NO_OTHER),
    # OSD 0 has more than twice the least weight.
    ({0: 0.00025, 3: 0.0001}, {}, BALANCED)])
def test_a_pg_that_its_upmap_keeps_on_a_drained_osd(drained: Mapping[int, float], fields: Any,
                                                    pin: Any) -> None:
    ups = {'1.0': (0, 1), '1.6': (1, 2), '1.7': (2, 1), '1.8': (1, 2)}
    upmaps = _PoolUpmaps(a_map({'1.0': ((3, 0),)}, **fields), CRUSH.with_weights(drained), POOL,
                         ups, {})
    found = upmaps.judged('1.0')
    if isinstance(pin, UpmapEntry):
        assert found == PinRecord(pin, UpmapEntry(((3, 0),)))
    else:
        assert found == pin
    assert upmaps.why_not(Balancing(deviation=9.0), False, ['1.0']) == (
        BALANCED if pin == BALANCED else '')
    assert upmaps.why_not(Balancing(deviation=9.0), False, []) == BALANCED


def test_a_pg_of_which_only_one_shard_can_leave_its_drained_osd() -> None:
    items = (3, 0), (2, 1)
    crush = CRUSH.with_weights({0: 0.0001, 1: 0.0001})
    osdmap = a_map({'1.0': items}, osd2=Osd(2, True, 1.0, fullness='nearfull'))
    upmaps = _PoolUpmaps(osdmap, crush, POOL, {'1.0': (0, 1), '1.1': (0, 1)}, {})
    assert upmaps.judged('1.0') == 'osd.2 lacks PGs, but is nearfull'


def test_shards_that_leave_a_drained_osd_go_where_most_pgs_are_lacking() -> None:
    crush = rules(range(5)).with_weights({0: 0.0001, 4: 0.0001})
    ups = {'1.%x' % number: (0, 1) for number in range(3)}
    upmaps = _PoolUpmaps(a_map(dict.fromkeys(ups, ((4, 0),))), crush, POOL, ups, {})
    # By turns: what goes to the first one counts for the others.
    assert [upmaps.judged(pgid) for pgid in sorted(ups)] == [
        PinRecord(UpmapEntry(((4, osd),)), UpmapEntry(((4, 0),))) for osd in (2, 3, 2)]


def observe(osdmap: OsdMap, pool_bytes: int = 800) -> Observation:
    return Observation(50.0, Signals(PgCounts(), pool_bytes={1: pool_bytes} if pool_bytes else {}),
                       Settings(osdmap, None), lambda pgid: None, CRUSH)


def test_the_moves_of_an_adoption() -> None:
    found = plan_adoption(a_map(), CRUSH, lambda pool_id: UPS, Balancing(), frozenset({'1.1'}),
                          pool_bytes={1: 800})
    assert [(move.pgid, move.sources, move.targets, move.bytes) for move in found.moves] == [
        ('1.0', (0,), (3,), 100), ('1.2', (0,), (3,), 100)]
    unknown = plan_adoption(a_map(), CRUSH, lambda pool_id: UPS, Balancing())
    assert [move.bytes for move in unknown.moves] == [0, 0, 0]


MOVE = Move('1.0', (0,), (3,), 0, 100)
PIN = PinRecord(NOTHING, UpmapEntry(((3, 0),)))


@pytest.mark.parametrize('adoption, text', [
    (Adoption(), ''), (Adoption(balancing=1), '; 1 upmap is part of a balanced state'),
    (Adoption(balancing=2, left_out={'1.2': 'b', '1.1': 'a'}), '; 2 upmaps are part of a balanced '
     'state; 2 unclear cases, such as PG 1.1: a')])
def test_nothing_to_adopt(adoption: Adoption, text: str) -> None:
    with pytest.raises(Refused) as refused:
        adoption.risks()
    assert (refused.value.errno, str(refused.value)) == (
        errno.ENOENT, 'no upmap keeps data away from the OSDs where CRUSH and the balance place it'
        + text)
    assert replace(adoption, pins={'1.0': PIN}).risks() == []


def test_upmaps_that_change_during_the_computation() -> None:
    adoption = Adoption({'1.0': PIN, '1.5': PIN}, moves=(MOVE, MOVE._replace(pgid='1.5')))
    found = adoption.still_valid(a_map())
    assert found.pins == {'1.0': PIN} and found.moves == (MOVE,)
    with pytest.raises(Refused) as refused:
        adoption.still_valid(a_map({}))
    assert refused.value.errno == errno.EAGAIN
    taken = Imported({'1.0': PIN})
    assert taken.still_valid(a_map()) is taken
    with pytest.raises(Refused) as refused:
        Imported({'1.0': PIN, '1.5': PIN}).still_valid(a_map())
    assert refused.value.errno == errno.EAGAIN


def test_the_answer_of_an_adoption() -> None:
    kept = replace(PIN, before=UpmapEntry(((1, 2),)), entry=UpmapEntry(((1, 2), (3, 0))))
    pins = {'2.%x' % number: PIN for number in range(NAMED_PGS)}
    left = {'1.%02x' % number: 'why' for number in range(NAMED_PGS + 1)}
    shown = Adoption({**pins, '1.1': kept}, left, 3, (MOVE,)).as_json(4)
    assert shown['pgs'] == NAMED_PGS + 1 and len(shown['taken']) == NAMED_PGS
    assert shown['taken'][0] == {'pgid': '1.1', 'pairs': [[3, 0]]}
    assert (shown['verb'], shown['campaign'], shown['balancing_pgs'], shown['left_out_pgs']) == (
        'adopt', 4, 3, NAMED_PGS + 1)
    assert shown['left_out'] == [{'pgid': pgid, 'reason': 'why'}
                                 for pgid in sorted(left)[:NAMED_PGS]]
    assert (shown['shards'], shown['bytes'], shown['primaries_moving']) == (1, 100, 0)


# ---- exports and imports

def test_an_export() -> None:
    osdmap = a_map({'1.2': ((1, 2),), '1.1': ((3, 0), (2, 1))}, vectors={'1.3': (0, 1)})
    assert exported(osdmap) == {'vectors': 1, 'mappings': [
        {'pgid': '1.1', 'mapping': {'from': 3, 'to': 0}},
        {'pgid': '1.1', 'mapping': {'from': 2, 'to': 1}},
        {'pgid': '1.2', 'mapping': {'from': 1, 'to': 2}}]}
    assert parsed(json.dumps(exported(osdmap)['mappings']).encode()) == {
        '1.1': [(3, 0), (2, 1)], '1.2': [(1, 2)]}


def row(pgid: Any = '1.1', source: Any = 1, target: Any = 2) -> Any:
    return {'pgid': pgid, 'mapping': {'from': source, 'to': target}}


@pytest.mark.parametrize('document, text', [
    (b'', 'not a list'), (b'5', 'not a list'), (b'[5]', 'not a list'), (b'[{}]', 'not a list'),
    (json.dumps([row('x')]).encode(), 'not a list'), (json.dumps([row(source='1')]).encode(),
                                                      "'1' is not an OSD ID"),
    (json.dumps([row(target=True)]).encode(), 'True is not an OSD ID'),
    (b'[' * 100000, 'not a list'), (b'[]', 'the file has 0 mappings (must be 1 to 20000)'),
    (json.dumps([row()] * (MOST_PAIRS + 1)).encode(),
     'the file has 20001 mappings (must be 1 to 20000)')],
    ids=['empty', 'number', 'numbers', 'object', 'pg', 'text', 'bool', 'deep', 'none', 'many'])
def test_files_that_are_refused(document: bytes, text: str) -> None:
    with pytest.raises(Refused) as refused:
        parsed(document)
    assert refused.value.errno == errno.EINVAL and text in str(refused.value)


def test_the_limits_of_a_file() -> None:
    many = json.dumps([row()] * MOST_PAIRS).encode()
    assert len(parsed(many + b' ' * (MOST_BYTES - len(many)))['1.1']) == MOST_PAIRS
    with pytest.raises(Refused) as refused:
        parsed(b' ' * (MOST_BYTES + 1))
    assert (refused.value.errno, str(refused.value)) == (
        errno.E2BIG, 'the file has %d bytes (limit %d)' % (MOST_BYTES + 1, MOST_BYTES))


@pytest.mark.parametrize('up, pairs, osds', [
    ((0, 1), [(0, 2)], (2, 1)), ((0, 1), [(1, 0)], (0, 1)), ((0, 1), [(3, 2)], (0, 1)),
    ((0, 1), [(0, 2), (2, 3)], (3, 1))])
def test_the_set_that_pairs_lead_to(up: OsdSet, pairs: List[Tuple[int, int]],
                                    osds: OsdSet) -> None:
    assert _applied(pairs, up) == osds


@pytest.mark.parametrize('pgid, up, pairs, fields, goal', [
    ('1.6', (1, 2), [(2, 3)], {}, UpmapEntry(((2, 3),))), ('9.6', (1, 2), [(2, 3)], {}, 'exist'),
    ('1.6', None, [(2, 3)], {}, 'the PG does not exist'),
    ('1.6', (1, 2), [(2, 3)], {'remapped': ['1.6']}, 'the PG is remapped'),
    ('1.6', (1, 2), [(2, 3)], {'pools': [replace(POOL, pg_num_pending=6)]}, 'merge'),
    ('1.6', (1, 2), [(0, 3)], {}, 'osd.0 is not in its up set, or osd.3 is already'),
    ('1.6', (1, 2), [(1, 2)], {}, 'osd.1 is not in its up set, or osd.2 is already'),
    ('1.6', (1, 2), [(2, 3)], {'osd3': Osd(3, False, 1.0)}, 'osd.3 is down'),
    ('1.0', (0, 1), [(3, 0)], {}, IN_FORCE), ('1.0', (0, 1), [(2, 0)], {}, IN_FORCE),
    ('1.6', (1, 2), [(2, 4)], {}, 'osd.4')])
def test_where_an_import_leads_a_pg(pgid: str, up: Optional[OsdSet], pairs: List[Tuple[int, int]],
                                    fields: Any, goal: Any) -> None:
    osdmap = a_map(**fields)
    found = _goal(observe(osdmap), pgid, up, pairs, None, osdmap.absent, osdmap.out)
    if isinstance(goal, UpmapEntry) or goal == IN_FORCE:
        assert found == goal
    else:
        assert isinstance(found, str) and found and goal in found


def test_an_import() -> None:
    calls: List[int] = []

    def pool_up(pool_id: int) -> Dict[str, OsdSet]:
        calls.append(pool_id)
        return UPS

    found = plan_import(observe(a_map()), pool_up, {
        '1.6': [(2, 3)], '1.5': [(2, 3)], '1.0': [(3, 0)], '9.1': [(1, 2)], '1.9': [(1, 2)]})
    assert calls == [1] and found.in_force == 1
    assert found.left_out == {'9.1': 'the PG does not exist', '1.9': 'the PG does not exist'}
    assert found.pins == {
        pgid: PinRecord(NOTHING, NOTHING, goal=UpmapEntry(((2, 3),))) for pgid in ('1.6', '1.5')}
    assert [(move.pgid, move.sources, move.targets, move.bytes) for move in found.moves] == [
        ('1.6', (2,), (3,), 100), ('1.5', (2,), (3,), 100)]
    shown = found.as_json(None)
    assert shown == {'verb': 'import', 'campaign': None, 'pgs': 2, 'shards': 2, 'bytes': 200,
                     'primaries_moving': 1, 'in_force_pgs': 1, 'left_out_pgs': 2, 'left_out': [
                         {'pgid': pgid, 'reason': 'the PG does not exist'}
                         for pgid in ('1.9', '9.1')]}
    assert plan_import(observe(a_map(), 0), pool_up, {'1.6': [(2, 3)]}).moves[0].bytes == 0
    many = replace(found, left_out={'1.%02x' % number: 'w' for number in range(NAMED_PGS + 1)})
    assert len(many.as_json(None)['left_out']) == NAMED_PGS


SPACE = {3: Space(1000, 700)}


@pytest.mark.parametrize('found, errno_, text', [
    (Imported(in_force=2), errno.ENOENT, 'nothing to import: the mappings of 2 PGs are in force'),
    (Imported(left_out={'1.2': 'b', '1.1': 'a'}), errno.ENOENT,
     'nothing to import: no mapping can be carried out, such as those of PG 1.1: a')])
def test_nothing_to_import(found: Imported, errno_: int, text: str) -> None:
    with pytest.raises(Refused) as refused:
        found.risks(observe(a_map()), SPACE, OPTIONS)
    assert (refused.value.errno, str(refused.value)) == (errno_, text)


def test_the_risks_of_an_import() -> None:
    found = Imported({'1.0': PIN}, moves=(MOVE,))
    assert found.risks(observe(a_map()), SPACE, OPTIONS) == []
    left = replace(found, left_out={'1.1': 'a'})
    codes = [risk.code for risk in left.risks(observe(a_map()), {3: Space(1000, 751)}, OPTIONS)]
    assert codes == ['LEFT_OUT', 'TARGET_FULL']
    most = replace(OPTIONS, max_pins=1)
    assert found.risks(observe(a_map()), SPACE, most) == []
    two = replace(found, pins={'1.0': PIN, '1.1': PIN})
    risk, = two.risks(observe(a_map()), SPACE, most)
    assert (risk.code, risk.errno) == ('PIN_LIMIT', errno.E2BIG)


@pytest.mark.parametrize('space, moves, full', [
    ({3: Space(1000, 750)}, 1, False), ({3: Space(1000, 751)}, 1, True),
    ({3: Space(1000, 651)}, 2, True), ({3: Space(0, 751)}, 1, False), ({}, 1, False),
    ({0: Space(1000, 999)}, 1, False)])
def test_osds_that_an_import_fills(space: Mapping[int, Space], moves: int, full: bool) -> None:
    found = _full_osd([MOVE._replace(pgid='1.%d' % number) for number in range(moves)], space, 0.85)
    assert [(risk.code, risk.errno) for risk in found] == (
        [('TARGET_FULL', errno.ENOSPC)] if full else [])
    if full and moves == 1:
        assert found[0].text == ('not enough space: osd.3 would hold 851 B of 1000 B with the PGs '
                                 'that it receives (nearfull is 85 %)')
    assert NO_OSD not in space
