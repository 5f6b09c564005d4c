# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules whose upmaps no mon checks: what is planned keeps their failure domain all the same."""
from typing import Any, Dict, List, Set, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg
from perfguard.cluster.types import Osd, Pool, UpmapEntry
from perfguard.rebalance.join_plan import plan_join
from perfguard.upmap.pins import Unpinnable, plan_pin

from ..cluster.test_crush import DUMP, EMIT, rule, step, take
from ..fakes.cluster import FakeCluster
from ..rebalance.test_goals import balanced

MSR = [take(-1), step('choosemsr', 3, 'host'), step('choosemsr', 1, 'osd'), EMIT]


def host_of(osd: int) -> int:
    return osd % 5


class MsrCluster(FakeCluster):
    """Its mons check weights only, as those of Squid and later do under an MSR rule."""

    def crush(self, version: int) -> CrushRules:
        mon = next(iter(self.pg.values())).mon
        apart, mon.osds = mon.osds, {
            osd: toy._replace(host=host_of(osd)) for osd, toy in mon.osds.items()}
        try:
            dump: Dict[str, Any] = mon.crush_dump()
        finally:
            mon.osds = apart
        dump['rules'][0]['steps'] = MSR
        return CrushRules.from_dump(dump)

    def crowded(self) -> Set[str]:
        """PGs with two shards on one host, which this model's CRUSH did not choose itself."""
        return {pgid for pgid, pg in self.pg.items()
                if len({host_of(osd) for osd in pg.up}) < 3 and list(pg.up) != pg.mon.raw}


def test_a_balanced_end_never_puts_two_shards_on_a_host() -> None:
    cluster = MsrCluster(pgs=48)
    assert not cluster.crowded()
    driver = balanced(cluster)
    driver.ask('start')
    driver.run_to('DONE')
    assert cluster.crowded() == set() and cluster.clean() and cluster.moved
    # An expansion of such a pool ends where CRUSH puts its PGs.
    assert cluster.entries() == {}


@pytest.mark.parametrize('steps, osds, words', [
    (MSR, (0, 2, 4), None), (MSR, (0, 1, 4), '2 OSDs are in h0 (rule rule20 allows 1)'),
    ([take(-1), step('choosemsr', 2, 'host'), step('choosemsr', 2, 'osd'), EMIT],
     (0, 1, 4, 5), None),
    # CRUSH gives the shard of an OSD that is out to a third host, or to a third rack.
    ([take(-1), step('choosemsr', 2, 'host'), step('choosemsr', 2, 'osd'), EMIT],
     (0, 1, 4, 6), None),
    ([take(-1), step('choosemsr', 1, 'rack'), step('choosemsr', 2, 'host'),
      step('choosemsr', 1, 'osd'), EMIT], (0, 4), None),
    ([take(-1), step('choosemsr', 1, 'rack'), step('choosemsr', 2, 'host'),
      step('choosemsr', 1, 'osd'), EMIT], (0, 2, 4, 6), None),
    ([take(-1), step('choosemsr', 2, 'rack'), step('choosemsr', 1, 'host'),
      step('choosemsr', 1, 'osd'), EMIT], (0, 2), '2 OSDs are in r0 (rule rule20 allows 1)'),
    # A classic rule, whose hosts the mon counts without looking into them.
    ([take(-1), step('choose_indep', 3, 'host'), step('choose_indep', 1, 'osd'), EMIT],
     (0, 1, 4), '2 OSDs are in h0'),
    ([take(-1), step('choose_indep', 2, 'rack'), step('chooseleaf_indep', 1, 'host'), EMIT],
     (0, 2), '2 OSDs are in r0'),
    # One OSD of each tree, twice the same tree.
    ([take(-1), step('chooseleaf_firstn', 1, 'host'), EMIT, take(-1),
      step('chooseleaf_firstn', -1, 'host'), EMIT], (0, 2, 4), None),
    ([take(-1), step('choose_firstn', 0, 'osd'), EMIT], (0, 1, 2), None)])
def test_crowding(steps: List[Any], osds: Tuple[int, ...], words: Any) -> None:
    crush = CrushRules.from_dump({**DUMP, 'rules': [rule(20, *steps)]})
    reason = crush.crowding(20, len(osds), osds)
    assert (reason is None) if words is None else (words in (reason or '')), reason
    pool = Pool(1, 'p', True, len(osds), 2, 20, 8, 8, 8)
    up = tuple(osd + 1 if osd % 2 == 0 and osd + 1 not in osds else osd for osd in osds)
    there = {osd: Osd(osd, True, 1.0) for osd in range(10)}
    assert isinstance(plan_pin(pool, up, osds, UpmapEntry(), there, crush),
                      Unpinnable) == (words is not None)


def test_an_upmap_from_before_is_not_put_back_where_it_breaks_the_rule() -> None:
    """No mon cancels it when CRUSH moves the PG's other shard onto that host."""
    crush = CrushRules.from_dump({**DUMP, 'rules': [rule(0, *MSR)]})
    cluster = FakeCluster()
    cluster.add_upmap('1.2', cluster.pg['1.2'].data[0], 5)
    osdmap = cluster.map_view().osdmap
    entry = osdmap.entry('1.2')
    source = entry.items[0][0]
    raw = (source, 4, 0) if source not in (4, 5, 0) else (source, 4, 2)
    planned = plan_join(osdmap, Future({'1.2': FuturePg((5, 2, 0), raw)}, crush))
    assert planned.pins['1.2'].before == UpmapEntry()
    # Without a change of its own it is left alone.
    untouched = plan_join(osdmap, Future({'1.2': FuturePg((5, 4, raw[2]), raw)}, crush))
    assert not untouched.pins


def test_steps_that_are_not_known_are_not_balanced() -> None:
    crush = CrushRules.from_dump({**DUMP, 'rules': [
        rule(0, take(-1), step('chooseleaf_firstn', 0, 'host'), EMIT), rule(1, *MSR),
        rule(2, {'op': 'choose_somehow', 'num': 1, 'type': 'host'}, take(-1), EMIT)]})
    assert [crush.balances(number, 3) for number in (0, 1, 2, 3)] == [True, False, False, False]
    assert [crush.failure_domain(number) for number in (0, 1)] == ['host', 'host']
    assert crush.domains_needed(0, 3) == 3
