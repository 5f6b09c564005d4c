# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which sets the mon accepts under a CRUSH rule."""
import copy
from typing import Any, Dict, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.crush_rule import Group, Take
from perfguard.cluster.types import NO_OSD, Osd, Pool, UpmapEntry
from perfguard.upmap.pins import after_commit


def bucket(id_, name, type_id, items):
    return {'id': id_, 'name': name, 'type_id': type_id,
            'items': [{'id': item, 'weight': weight, 'pos': 0} for item, weight in items]}


def rule(rule_id, *steps):
    return {'rule_id': rule_id, 'rule_name': 'rule%d' % rule_id, 'steps': list(steps)}


def take(item):
    return {'op': 'take', 'item': item, 'item_name': 'x'}


def step(op, num, type_name):
    return {'op': op, 'num': num, 'type': type_name}


EMIT = {'op': 'emit'}
W = 65536
# default: rack r0 (h0: 0, 1; h1: 2, 3), rack r1 (h2: 4, 5; h3: 6, 7); other: h4: 8, 9 (weight 0).
# The ssd shadow tree has the even OSDs of the racks.
DUMP = {
    'types': [{'type_id': 0, 'name': 'osd'}, {'type_id': 1, 'name': 'host'},
              {'type_id': 3, 'name': 'rack'}, {'type_id': 11, 'name': 'root'}],
    'buckets': [
        bucket(-1, 'default', 11, [(-10, 4 * W), (-11, 4 * W)]),
        bucket(-10, 'r0', 3, [(-20, 2 * W), (-21, 2 * W)]),
        bucket(-11, 'r1', 3, [(-22, 2 * W), (-23, 2 * W)]),
        *[bucket(-20 - h, 'h%d' % h, 1, [(2 * h, W), (2 * h + 1, W)]) for h in range(4)],
        bucket(-2, 'other', 11, [(-24, W)]),
        bucket(-24, 'h4', 1, [(8, W), (9, 0)]),
        bucket(-101, 'default~ssd', 11, [(-110, 2 * W), (-111, 2 * W)]),
        bucket(-110, 'r0~ssd', 3, [(-120, W), (-121, W)]),
        bucket(-111, 'r1~ssd', 3, [(-122, W), (-123, W)]),
        *[bucket(-120 - h, 'h%d~ssd' % h, 1, [(2 * h, W)]) for h in range(4)],
    ],
    'rules': [
        rule(0, take(-1), step('chooseleaf_firstn', 0, 'host'), EMIT),
        rule(1, take(-1), step('choose_indep', 2, 'rack'),
             step('chooseleaf_indep', 2, 'host'), EMIT),
        rule(2, take(-101), step('chooseleaf_firstn', 0, 'host'), EMIT),
        rule(3, {'op': 'set_chooseleaf_tries', 'num': 5}, take(-1),
             step('choose_firstn', 0, 'osd'), EMIT),
        # One replica in each of two trees; the first emit wants one OSD below default.
        rule(4, take(-1), step('chooseleaf_firstn', 1, 'host'), EMIT,
             take(-2), step('chooseleaf_firstn', -1, 'host'), EMIT),
        rule(5, {'op': 'set_msr_descents', 'num': 3}, take(-1), step('choosemsr', 4, 'host'),
             step('choosemsr', 1, 'osd'), EMIT),
        rule(6, take(-1), step('choose_indep', 1, 'rack'),
             step('chooseleaf_indep', 0, 'host'), EMIT),
        rule(7, take(8), EMIT),
        rule(8, take(-10), step('chooseleaf_firstn', 2, 'host'), EMIT,
             take(-11), step('choose_firstn', 1, 'osd'), EMIT,
             take(-2), step('chooseleaf_firstn', 1, 'host'), EMIT),
    ],
}


@pytest.fixture
def crush():
    return CrushRules.from_dump(DUMP)


@pytest.mark.parametrize('rule_id, osds, words', [
    (0, (0, 2, 4), None),
    (0, (0, 2, 3), 'osd.2 and osd.3 are both in host h1'),
    (0, (0, 2, 8), 'osd.8 is not in the CRUSH tree of rule rule0'),
    (0, (0, 2, NO_OSD), 'hole'),
    (0, (0, 2, 5), None),
    (1, (0, 2, 4, 6), None),
    (1, (0, 2, 4, 5), 'osd.4 and osd.5 are both in host h2'),
    (2, (0, 2, 4), None),
    (2, (0, 2, 5), 'osd.5 is not in the CRUSH tree of rule rule2'),
    (3, (0, 1, 2), None),
    (4, (0, 8), None),
    (4, (8, 0), 'osd.8 is not below default'),
    (4, (0, 9), 'osd.9 has CRUSH weight 0'),
    (4, (0, 2), 'osd.2 is not below other'),
    (5, (0, 1, 2, 3), None),
    (5, (0, 1, 2, 8), 'osd.8 is not in the CRUSH tree'),
    (6, (0, 2), None),
    (6, (0, 4), '2 buckets of type rack (r0, r1), the rule allows 1'),
    (7, (8,), None),
    (8, (0, 2, 4, 8), None),
    (8, (0, 4, 2, 8), 'osd.4 is not below r0'),
    (99, (0, 2), 'CRUSH rule 99 does not exist'),
])
def test_violation(crush, rule_id, osds, words):
    for _ in range(2):      # the second answer comes from the cache
        reason = crush.violation(rule_id, len(osds), osds)
        assert (reason is None) if words is None else (words in (reason or '')), reason


def test_osds_that_are_out_are_illegal(crush):
    assert crush.violation(0, 3, (0, 2, 4), {5}) is None
    assert crush.violation(0, 3, (0, 2, 4), {4}) == 'osd.4 is out'


def test_names(crush):
    assert crush.host_of(5) == 'h2' and crush.domain_of(5, 'rack') == 'r1'
    assert crush.domain_of(5, 'root') == 'default' and crush.domain_of(5, 'datacenter') is None
    assert crush.host_of(4) == 'h2', 'not h2~ssd'
    assert crush.host_of(77) is None
    assert crush.weight_of(0, 3) == 1.0 and crush.weight_of(2, 3) == 0.0
    assert [crush.failure_domain(r) for r in (0, 1, 3, 99)] == ['host', 'host', 'osd', None]


def test_a_root_that_is_linked_under_another_remains_the_root_of_its_osds():
    linked = CrushRules.from_dump({**DUMP, 'buckets': [
        *DUMP['buckets'], bucket(-3, 'both', 11, [(-1, 8 * W), (-2, W)])]})
    assert (linked.root_of(0), linked.root_of(8), linked.root_of(77)) == ('default', 'other', '')
    assert linked.topmost_buckets(2) == linked.topmost_buckets(4) == {'both'}


def test_the_topmost_buckets_above_those_that_a_rule_takes(crush):
    assert [sorted(crush.topmost_buckets(rule)) for rule in (0, 2, 4, 8, 99)] == [
        ['default'], ['default'], ['default', 'other'], ['default', 'other'], []]


def test_the_mon_s_verdict_on_a_set_is_the_verdict_on_the_entry(crush):
    pool = Pool(1, 'p', False, 3, 2, 0, 8, 8, 8)
    osds = {i: Osd(i, True, 1.0) for i in range(10)}
    both = UpmapEntry(((0, 3), (2, 1)))
    assert after_commit((0, 2, 4), both, pool, osds, crush) == both
    assert after_commit((0, 2, 4), UpmapEntry(((0, 3),)), pool, osds, crush) == UpmapEntry()


@pytest.mark.parametrize('opcode, is_known', [(12, True), (13, True), (10, True), (99, False)])
def test_a_rule_of_an_edited_map_has_steps_that_a_dump_does_not_name(opcode: int,
                                                                     is_known: bool) -> None:
    """As crushtool --dump of all releases shows "step set_chooseleaf_vary_r 1"."""
    dump = copy.deepcopy(DUMP)
    dump['rules'][0]['steps'].insert(0, {'opcode': opcode, 'arg1': 1, 'arg2': 0})
    crush = CrushRules.from_dump(dump)
    assert crush.violation(0, 3, (0, 2, 4)) is None
    assert crush.violation(0, 3, (0, 2, 3)) is not None
    assert crush.topmost_buckets(0) == {'default'}
    assert crush.failure_domain(0) == 'host'
    assert crush.balances(0, 3) == is_known


def test_a_rule_of_an_edited_map_may_have_no_name() -> None:
    dump = copy.deepcopy(DUMP)
    del dump['rules'][0]['rule_name']
    crush = CrushRules.from_dump(dump)
    assert crush.rule_name(0) == '0'
    assert crush.rule_named('rule1') == 1
    assert 'rule0' not in (crush.violation(0, 3, (0, 2, 8)) or '')
    assert crush.digest['rule 0'] != crush.digest['rule rule1']


def test_tunables_that_place_nothing() -> None:
    """Some only say what the map contains, and an mgr of Squid knows further ones."""
    tunables = {'choose_total_tries': 50, 'chooseleaf_stable': 1, 'has_v2_rules': 0,
                'minimum_required_version': 'jewel'}
    before = CrushRules.from_dump({**DUMP, 'tunables': tunables})

    def has_changed(**others: Any) -> bool:
        now = CrushRules.from_dump({**DUMP, 'tunables': {**tunables, **others}})
        assert (now.tunables == before.tunables) == (now.identity == before.identity)
        return now.tunables != before.tunables

    assert not has_changed(has_v2_rules=1, minimum_required_version='firefly')
    assert not has_changed(msr_descents=100, msr_collision_tries=100, has_msr_rules=0)
    assert has_changed(msr_descents=50)
    assert has_changed(choose_total_tries=100)
    assert has_changed(of_a_later_release=1)


def test_not_a_crush_dump():
    with pytest.raises((KeyError, TypeError)):
        CrushRules.from_dump({'pools': []})


def test_rules_for_a_pool() -> None:
    """A rule of Pacific has a range of sizes, outside which it places nothing."""
    kinds: List[Dict[str, int]] = [
        {'type': 1}, {'type': 3}, {'type': 3, 'min_size': 3, 'max_size': 3}, {'type': 4},
        {'type': 5}]
    rules = CrushRules.from_dump({**DUMP, 'rules': [
        {'rule_id': number, 'rule_name': 'rule%d' % number, 'steps': [], **kind}
        for number, kind in enumerate(kinds)]})
    assert rules.rules_for(True, 6) == [1, 4] and rules.rules_for(True, 3) == [1, 2, 4]
    assert rules.rules_for(False, 3) == [0, 3]
    assert rules.rule_named('rule3') == 3 and rules.rule_named('none') is None
    assert rules.rule_name(2) == 'rule2'


@pytest.mark.parametrize('change', [{'alg': 'straw'}, {'hash': 'other'}, {'name': 'x~hdd'}])
def test_the_identity_of_a_map_is_of_all_that_places_pgs(change: Dict[str, str]) -> None:
    """Also the algorithm of a bucket, and the shadow buckets, whose ids are hashed."""
    shadow: Dict[str, Any] = {**bucket(-2, 'default~hdd', 10, []), 'alg': 'straw2',
                              'hash': 'rjenkins1'}
    dump: Dict[str, Any] = {'buckets': [shadow], 'rules': [],
                            'types': [{'type_id': 10, 'name': 'root'}]}
    other = {**dump, 'buckets': [{**shadow, **change}]}
    moved = {**dump, 'buckets': [{**shadow, 'id': -9}]}
    found = {CrushRules.from_dump(each).identity for each in (dump, other, moved)}
    assert len(found) == 3
    # So they differ in more than weights, which are all that a rollback would restore else.
    assert CrushRules.from_dump(dump).weights_towards(CrushRules.from_dump(other)) is None
    assert CrushRules.from_dump(copy.deepcopy(dump)).identity in found


def in_two_trees(one: int, other: int) -> CrushRules:
    """osd.0 with these weights."""
    return CrushRules.from_dump({'rules': [], 'types': [{'type_id': 10, 'name': 'root'}],
                                 'buckets': [bucket(-1, 'a', 10, [(0, one)]),
                                             bucket(-2, 'b', 10, [(0, other)])]})


@pytest.mark.parametrize('weights', [(W, 0), (0, W)])
def test_an_osd_with_a_weight_in_one_of_its_trees_is_not_to_be_emptied(
        weights: Tuple[int, int]) -> None:
    rules = in_two_trees(*weights)
    assert rules.weights() == {0: 1.0} and not rules.light_osds


def test_weights_that_differ_between_trees_are_restored_with_the_whole_map() -> None:
    rules, drained = in_two_trees, in_two_trees(7, 7)
    assert rules(W, 2 * W).uneven == {0: {'root=a': 1.0, 'root=b': 2.0}} and not drained.uneven
    assert drained.weights_towards(rules(W, W)) == rules(W, 7).weights_towards(rules(W, W)) \
        == {0: 1.0}
    # A weight is given to an OSD in all trees.
    assert drained.weights_towards(rules(W, 2 * W)) is None
    assert rules(7, 2 * W).weights_towards(rules(W, 2 * W)) is None
    assert rules(W, 2 * W).weights_towards(rules(W, 2 * W)) == {}


@pytest.mark.parametrize('alg, counts', [('straw2', False), ('list', True), ('uniform', True)])
def test_the_order_of_items_is_part_of_the_identity_where_it_places_pgs(
        alg: str, counts: bool) -> None:
    def identity(*items: Tuple[int, int]) -> int:
        found = {**bucket(-1, 'default', 10, items), 'alg': alg, 'hash': 'rjenkins1'}
        return CrushRules.from_dump({'buckets': [found], 'rules': [], 'types': []}).identity

    assert (identity((0, 1), (1, 1)) != identity((1, 1), (0, 1))) == counts


def test_the_identity_that_an_earlier_version_has_stored_is_that_of_the_same_map() -> None:
    """Else the next OSD that starts would look like a change of CRUSH to a mgr that takes over."""
    root: Dict[str, Any] = {**bucket(-1, 'default', 10, [(0, 1), (1, 1)]), 'alg': 'straw2',
                            'hash': 'rjenkins1'}
    dump = {'buckets': [root], 'rules': [rule(0, take(-1))], 'types': [],
            'devices': [{'id': 0, 'name': 'osd.0', 'class': 'ssd'}],
            'tunables': {'choose_total_tries': 50}}
    assert CrushRules.from_dump(dump).identity == 163740356


def test_a_cycle_of_buckets_ends_every_walk() -> None:
    """As an edited map may have it."""
    crush = CrushRules.from_dump({
        'devices': [], 'tunables': {}, 'types': DUMP['types'],
        'rules': [rule(0, take(-1), step('chooseleaf_firstn', 0, 'host'), EMIT)],
        'buckets': [bucket(-1, 'a', 11, [(-2, W)]), bucket(-2, 'b', 11, [(-1, W), (0, W)])]})
    assert crush.osds_below('a') == crush.osds_below('b') == {0}
    assert crush.host_of(0) is None and crush.root_of(0) == 'b'
    assert crush.topmost_buckets(0) == {'a'} and crush.failure_domain(0) == 'host'


# ---- custom types: a shelf is below its host, a cell contains hosts of its own

def custom() -> CrushRules:
    dump = {
        'types': [{'type_id': number, 'name': name} for number, name in (
            (0, 'osd'), (1, 'host'), (3, 'rack'), (11, 'root'), (12, 'shelf'), (2, 'cell'))],
        'buckets': [
            bucket(-1, 'default', 11, [(-10, 4 * W), (-30, W)]),
            bucket(-10, 'r0', 3, [(-20, 4 * W)]),
            bucket(-20, 'h0', 1, [(-40, 2 * W), (-41, 2 * W)]),
            bucket(-40, 's0', 12, [(0, W), (1, W)]), bucket(-41, 's1', 12, [(2, W), (3, W)]),
            bucket(-30, 'c0', 2, [(-31, W)]), bucket(-31, 'h1', 1, [(4, W)])],
        'rules': []}
    return CrushRules.from_dump(dump)


@pytest.mark.parametrize('outer, inner, does', [
    ('host', 'shelf', True), ('shelf', 'host', False), ('rack', 'shelf', True),
    ('host', 'host', True), ('shelf', 'osd', True), ('osd', 'osd', True), ('osd', 'host', False),
    ('rack', 'cell', False), ('cell', 'rack', False), ('root', 'cell', True),
    ('row', 'osd', True), ('row', 'host', False)])
def test_which_type_of_bucket_encloses_another(outer: str, inner: str, does: bool) -> None:
    """By the buckets that exist, since ids of custom types have no order."""
    crush = custom()
    assert crush.encloses(outer, inner) is does
    if does and outer != inner and outer != 'row':
        assert crush.type_rank(outer) > crush.type_rank(inner)


def test_a_cycle_of_types_has_an_end() -> None:
    dump = {'types': DUMP['types'], 'rules': [], 'buckets': [
        bucket(-1, 'default', 11, [(-2, W)]), bucket(-2, 'r0', 3, [(-1, W)])]}
    crush = CrushRules.from_dump(dump)
    assert crush.encloses('rack', 'root') and crush.encloses('root', 'rack')


def test_buckets_within_buckets_are_no_osds() -> None:
    """Whatever their ids: the first bucket is not always the root."""
    rules = CrushRules.from_dump({'rules': [], 'types': DUMP['types'], 'buckets': [
        bucket(-2, 'default', 11, [(-1, 3 * W)]), bucket(-1, 'host0', 1, [(0, W), (1, 2 * W)])]})
    assert rules.weights() == {0: 1.0, 1: 2.0}


def test_a_shard_in_each_rack_is_not_kept_to_hosts() -> None:
    """What a rule chooses below a bucket with one shard does not matter."""
    crush = CrushRules.from_dump({**DUMP, 'rules': [
        rule(0, take(-1), step('choose_firstn', 0, 'rack'), step('chooseleaf_firstn', 1, 'host'),
             EMIT)]})
    spread = crush.spread(0, 2)
    assert [sorted(osds) for osds in _by_domain(spread.domain)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize('rule_id, size, osds, number', [
    (0, 3, {0, 1, 2}, 2), (0, 3, range(8), 3), (0, 5, range(8), 4), (0, 3, {8, 9}, 0),
    (1, 4, range(8), 4), (1, 4, {0, 2, 4}, 3), (1, 4, {0, 1, 4}, 2),
    (3, 3, {0, 1}, 2), (3, 3, range(8), 3),
    # One OSD below each take.
    (4, 2, {0, 8}, 2), (4, 2, {0, 2, 4}, 1),
    # It may choose the rack with the fewest OSDs.
    (6, 2, {0, 2, 4}, 1), (6, 2, {0, 2}, 2),
    # Steps of MSR rules choose further buckets for OSDs that are out.
    (5, 4, range(8), 4), (5, 4, {0, 1}, 1), (5, 3, range(8), 3),
    # The take is an OSD.
    (7, 3, set(), 1), (99, 3, range(8), 0)])
def test_the_least_number_of_osds_that_a_rule_finds(crush, rule_id, size, osds, number):
    assert crush.fewest_chosen(rule_id, size, set(osds)) == number


@pytest.mark.parametrize('rule_id, size, osds, words', [
    (1, 4, (0, 2, 4, 6), None),
    (1, 4, (0, 1, 4, 6), '2 OSDs are in h0 (rule rule1 allows 1)'),
    (1, 4, (0, 2, 3, 4), '3 OSDs are in r0 (rule rule1 allows 2)'),
    (6, 2, (0, 2), None),
    (6, 2, (0, 4), '2 buckets of type rack are in default (rule rule6 allows 1)'),
    (5, 4, (0, 1, 2, 4), '2 OSDs are in h0 (rule rule5 allows 1)'),
    (8, 4, (0, 2, 4, 8), None), (8, 4, (0, 1, 4, 8), '2 OSDs are in h0 (rule rule8 allows 1)'),
    # At the position of another step.
    (8, 4, (0, 4, 1, 8), None), (99, 2, (0, 1), None)])
def test_more_osds_in_a_bucket_than_the_rule_allows(crush, rule_id, size, osds, words):
    assert crush.crowding(rule_id, size, osds) == words


@pytest.mark.parametrize('rule_id, osds, like, ordered', [
    (4, (8, 0), (), (0, 8)), (4, (0, 8), (8, 0), (0, 8)),
    # No order is allowed, or every one.
    (4, (0, 2), (), (0, 2)), (0, (4, 0, 2), (0, 2, 4), (4, 0, 2)),
    (8, (8, 4, 2, 0), (), (2, 0, 4, 8)), (8, (8, 4, 2, 0), (0, 2, 6, 8), (0, 2, 4, 8)),
    # More OSDs than positions.
    (8, (8, 4, 2, 0, 6), (), (8, 4, 2, 0, 6)), (99, (8, 0), (), (8, 0))])
def test_the_order_of_osds_under_several_takes(crush, rule_id, osds, like, ordered):
    assert crush.in_order(rule_id, len(osds), osds, like) == ordered


def with_rule(*steps):
    return CrushRules.from_dump({**DUMP, 'rules': [rule(0, *steps)]})


@pytest.mark.parametrize('osds, like, ordered', [
    ((0, 4), (), (4, 0)), ((0, 4), (0, 4), (4, 0)), ((4, 0), (4, 0), (4, 0)),
    ((0, 2), (), (0, 2)), ((0, 2), (2, 0), (2, 0)), ((4, 5), (), (4, 5))])
def test_an_osd_gives_its_position_up_for_one_that_can_have_no_other(osds, like, ordered):
    crush = with_rule(take(-1), step('choose_firstn', 1, 'osd'), EMIT,
                      take(-10), step('choose_firstn', 1, 'osd'), EMIT)
    assert crush.in_order(0, 2, osds, like) == ordered


@pytest.mark.parametrize('osd', [0, 8])
@pytest.mark.parametrize('steps', [[], [step('chooseleaf_firstn', 0, 'host')]])
def test_a_rule_that_takes_an_osd(osd, steps):
    """The mon does not check it; an edited map may even choose below it."""
    crush = with_rule(take(osd), *steps, EMIT)
    assert [crush.weight_of(0, number) for number in (osd, 1)] == [1.0, 0.0]
    assert crush.violation(0, 1, (osd,)) is crush.crowding(0, 1, (osd,)) is None
    assert crush.separation(0, 1) == 'osd' and crush.fewest_chosen(0, 3, set()) == 1
    assert not crush.balances(0, 1)


@pytest.mark.parametrize('steps, size, kept', [
    ([take(-1), step('chooseleaf_firstn', 0, 'host'), EMIT], 3, True),
    ([take(-1), step('choose_indep', 2, 'rack'), step('chooseleaf_indep', 2, 'host'), EMIT], 4,
     True),
    ([take(-1), step('choose_indep', 0, 'rack'), step('choose_indep', 2, 'osd'), EMIT], 2, True),
    # Four hosts are chosen in all.
    ([take(-1), step('choose_indep', 2, 'rack'), step('choose_indep', 2, 'host'),
      step('choose_indep', 1, 'osd'), EMIT], 4, False),
    ([take(-1), step('choose_indep', 1, 'rack'), step('choose_indep', 2, 'host'),
      step('choose_indep', 1, 'osd'), EMIT], 2, True),
    # One host of each of two takes.
    ([take(-1), step('choose_firstn', 1, 'host'), step('choose_firstn', 1, 'osd'), EMIT,
      take(-2), step('choose_firstn', 1, 'host'), step('choose_firstn', 1, 'osd'), EMIT], 2, False),
    ([take(-1), step('choose_firstn', 1, 'rack'), step('choose_firstn', 1, 'osd'), EMIT,
      take(-2), step('choose_firstn', 1, 'host'), step('choose_firstn', 1, 'osd'), EMIT], 2, True)])
def test_rules_under_which_mons_cancel_upmaps(steps, size, kept):
    """They compare the number of a step with the buckets of all OSDs of a PG."""
    crush = with_rule(*steps)
    assert crush.keeps_upmaps(0, size) is kept
    assert crush.keeps_upmaps(99, size)


def test_buckets_that_separate_the_osds_of_a_pg(crush):
    assert [crush.separation(rule_id, 4) for rule_id in (0, 1, 3, 4, 5, 6, 7, 99)] == [
        'host', 'host', 'osd', 'osd', 'host', 'host', 'osd', 'osd']
    several = with_rule(take(-1), step('choose_indep', 2, 'rack'), step('choose_indep', 2, 'osd'),
                        EMIT)
    assert several.separation(0, 4) == 'osd'
    single = with_rule(take(-1), step('choose_indep', 2, 'rack'), step('choose_indep', 1, 'osd'),
                       EMIT)
    assert single.separation(0, 2) == 'rack'


def test_failure_domains_are_those_of_the_last_choice(crush):
    several = with_rule(take(-1), step('choose_indep', 2, 'rack'), step('choose_indep', 2, 'osd'),
                        EMIT)
    assert several.failure_domain(0) == 'rack' and several.buckets_needed(0, 4) == [('rack', 2)]
    assert [several.domains_needed(0, size) for size in (2, 3, 4)] == [1, 2, 2]
    assert crush.buckets_needed(1, 4) == [('rack', 2)] and crush.domains_needed(1, 4) == 4
    assert not crush.buckets_needed(99, 3)
    assert crush.domains_needed(99, 3) == crush.domains_needed(3, 3) == 3
    mixed = with_rule(take(-1), step('chooseleaf_firstn', 1, 'rack'), EMIT,
                      take(-2), step('chooseleaf_firstn', -1, 'host'), EMIT)
    assert mixed.failure_domain(0) == 'host'


@pytest.mark.parametrize('size, shards, places', [(2, [0, 2], 1), (3, [0, 3], 1), (4, [1, 3], 2)])
def test_a_step_may_choose_nothing_in_small_pools(size, shards, places):
    crush = with_rule(take(-1), step('chooseleaf_firstn', -3, 'host'), EMIT,
                      take(-2), step('chooseleaf_firstn', 0, 'host'), EMIT)
    assert [part.shards for part in crush.spread(0, size).takes] == shards
    assert crush.fewest_chosen(0, size, set(range(10))) == places


def test_how_takes_share_the_shards_of_a_pg(crush):
    rack_of = {**dict.fromkeys(range(4), -10), **dict.fromkeys(range(4, 8), -11)}
    assert crush.spread(1, 4).takes == (Take(4, frozenset(range(8)), (Group(2, rack_of),)),)
    assert crush.spread(6, 3).takes == (Take(3, frozenset(range(8)), (Group(3, rack_of),)),)
    assert crush.spread(4, 2).takes == (
        Take(1, frozenset(range(8)), ()), Take(1, frozenset({8, 9}), ()))
    # The first steps fill the positions.
    assert [take.shards for take in crush.spread(8, 3).takes] == [2, 1, 0]
    assert crush.spread(8, 4).domain == {
        0: -20, 1: -20, 2: -21, 3: -21, 4: 4, 5: 5, 6: 6, 7: 7, 8: -24, 9: -24}
    assert [Take(shards, frozenset(), tuple(Group(number, {}) for number in groups)).even
            for shards, groups in ((4, (2,)), (3, (2,)), (8, (4, 2)), (8, (4, 3)), (3, ()))] == [
        True, False, True, False, True]


def test_buckets_whose_osds_are_all_given(crush):
    assert crush.whole_subtrees('host', {0, 1, 2, 3, 4, 8}) == [
        ('host', 'h0'), ('host', 'h1'), ('rack', 'r0')]
    assert crush.whole_subtrees('rack', {0, 1, 2, 3, 8, 9}) == [('rack', 'r0'), ('root', 'other')]
    assert crush.whole_subtrees('datacenter', set(range(10))) == []


def test_types_and_osds_of_buckets(crush):
    assert [crush.type_of(name) for name in ('r0', 'h4', 'default', 'r0~ssd', 'x')] == [
        'rack', 'host', 'root', None, None]
    assert crush.osds_by('rack') == {'r0': {0, 1, 2, 3}, 'r1': {4, 5, 6, 7}}
    assert crush.domains_of({0, 2, 3, 4, 77}, 'host') == {'h0', 'h1', 'h2', None}
    assert crush.domains_of({0, 2}, 'osd') == {0, 2}


def test_other_weights_apply_in_all_trees(crush):
    changed = crush.with_weights({0: 2.5, 8: 0.0})
    assert [changed.weight_of(rule_id, 0) for rule_id in (0, 2)] == [2.5, 2.5]
    assert changed.weights() == {**crush.weights(), 0: 2.5, 8: 0.0}


def _by_domain(domain):
    found: Dict[int, List[int]] = {}
    for osd, bucket_id in domain.items():
        found.setdefault(bucket_id, []).append(osd)
    return sorted(found.values())


def test_the_location_of_an_osd_is_without_shadow_trees() -> None:
    crush = CrushRules.from_dump(DUMP)
    assert crush.location_of(4) == (('host', 'h2'), ('rack', 'r1'), ('root', 'default'))
    assert crush.location_of(77) == ()
