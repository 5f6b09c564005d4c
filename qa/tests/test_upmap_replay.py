# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard.upmap against real mons: random upmap entries, legal and illegal, and real pins."""
import json
import random
import re
import subprocess
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.dumps import osdmap_from_dump
from perfguard.cluster.types import Items, OsdMap, OsdSet, PgSets, UpmapEntry, pool_of
from perfguard.offline.plans import plan_pins
from perfguard.upmap.pins import Pin, after_commit, plan_pin
from perfguard.upmap.semantics import apply_entry, raw_from_up
from qa.cluster import Cluster
from qa.lib.joins import add_rule
from qa.lib.tiers import RELEASES

#: Each release's mons have their own code for upmaps.
pytestmark = pytest.mark.releases(*RELEASES, quick=RELEASES)

OSDS, HOSTS, RACKS = 17, 9, 3
OUT, NO_WEIGHT, ELSEWHERE = 14, 15, 16
PG_NUM = 128
ROUNDS = 3
#: Least number of random cases of each kind of pool.
CASES = 300

#: Two racks with three hosts each.
CHOOSE_RULE = '''
rule choose {
    id 77
    type erasure
    step set_chooseleaf_tries 5
    step set_choose_tries 100
    step take default
    step choose indep 2 type rack
    step chooseleaf indep 3 type host
    step emit
}
'''


@pytest.fixture(scope='module')
def cluster(cluster_factory: Callable[..., Cluster], release: str) -> Iterator[Cluster]:
    with cluster_factory(release, osds=OSDS, hosts=HOSTS, racks=RACKS) as c:
        c.mon('osd set-require-min-compat-client', version='luminous')
        c.mon('osd crush set', id=ELSEWHERE, weight=1.0, args=['root=elsewhere', 'host=far'])
        c.mon('osd crush reweight', name='osd.%d' % NO_WEIGHT, weight=0.0)
        c.mon('osd out', ids=[str(OUT)])
        c.pool_create('rep', PG_NUM)
        c.pool_create('ec', PG_NUM, erasure=(4, 2))
        add_choose_pool(c)
        for pool in ('rep', 'ec', 'choose'):
            c.fill(pool, 600, 512)
        c.wait_clean(30)
        c.mon('osd set', key='norebalance')
        yield c


def add_choose_pool(c: Cluster) -> None:
    add_rule(c, CHOOSE_RULE)
    c.mon('osd pool create', pool='choose', pg_num=PG_NUM // 2, pgp_num=PG_NUM // 2,
          pool_type='erasure', erasure_code_profile='ec-profile', rule='choose',
          autoscale_mode='off')
    c.wait_active(30)


#: A line of osdmaptool: "1.0 raw ([1,2,3], p1) up ([1,2,3], p1) acting ([3,2,1], p3)".
MAPPED = re.compile(r'^(\S+)\s+raw \(\[(.*?)\].*up \(\[(.*?)\].*acting \(\[(.*?)\]')


class Seen:
    """One OSDMap, and what Ceph itself makes of it.

    Not the mgr's PG stats: after a change of primary they show the interval before for seconds.
    """

    def __init__(self, c: Cluster) -> None:
        dump = c.osd_dump()
        self.map: OsdMap = osdmap_from_dump(dump)
        self.crush = CrushRules.from_dump(c.mon('osd crush dump'))
        self.out = self.map.out
        self.raw: Dict[str, OsdSet] = {}
        self.up: Dict[str, OsdSet] = {}
        self.acting: Dict[str, OsdSet] = {}
        for line in mapped(c, self.map.epoch).splitlines():
            match = MAPPED.match(line)
            if match:
                pgid = match[1]
                self.raw[pgid], self.up[pgid], self.acting[pgid] = (
                    tuple(map(int, group.split(','))) for group in match.groups()[1:])

    def sets(self) -> List[PgSets]:
        return [PgSets(pgid, up, self.acting[pgid]) for pgid, up in self.up.items()]

    def complete(self, pgid: str) -> bool:
        """Whether CRUSH found enough OSDs."""
        return len(set(self.up[pgid])) == self.map.pools[pool_of(pgid)].size and all(
            osd in self.map.osds for osd in self.up[pgid])


def mapped(c: Cluster, epoch: int) -> str:
    path = c.directory / 'osdmap'
    c.ceph('osd', 'getmap', str(epoch), '-o', str(path))
    return subprocess.run(
        c.release.argv(['osdmaptool', str(path), '--test-map-pgs-dump-all'], c.directory),
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def wait_remapped(c: Cluster) -> Seen:
    """The cluster when peering is over: no PG becomes remapped, or ceases to be, any more."""
    c.wait_active(30)
    looks = [Seen(c)]

    def steady() -> bool:
        time.sleep(.5)
        looks.append(Seen(c))
        return looks[-1].map.pg_temp == looks[-2].map.pg_temp

    c.wait(steady, 20, 'no PG peers')
    return looks[-1]


def random_items(rng: random.Random, raw: OsdSet) -> Items:
    """One to four pairs: mostly from the raw set, with chains, swaps and stale ones in between."""
    pairs: List[Tuple[int, int]] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, min(4, len(raw))))):
        source = rng.choice(raw) if rng.random() < .85 else rng.randrange(OSDS)
        if pairs and rng.random() < .25:
            target = rng.choice(pairs)[0]       # a chain, or the way back
        else:
            target = rng.choice(raw) if rng.random() < .15 else rng.randrange(OSDS)
        if source != target and (source, target) not in pairs:
            pairs.append((source, target))
    return tuple(pairs)


def random_vector(rng: random.Random, raw: OsdSet) -> OsdSet:
    vector = list(raw)
    if rng.random() < .5:
        rng.shuffle(vector)
    for _ in range(rng.randrange(3)):
        vector[rng.randrange(len(vector))] = rng.randrange(OSDS)
    return tuple(dict.fromkeys(vector))         # the command ignores an OSD named twice


def random_entry(rng: random.Random, raw: OsdSet, min_size: int) -> UpmapEntry:
    if rng.random() < .7:
        return UpmapEntry(random_items(rng, raw))
    vector = random_vector(rng, raw)
    return UpmapEntry(vector=vector) if len(vector) >= min_size else UpmapEntry()


def set_commands(pgid: str, entry: UpmapEntry) -> List[Dict[str, Any]]:
    commands: List[Dict[str, Any]] = []
    if entry.vector is not None:
        commands.append({'prefix': 'osd pg-upmap', 'pgid': pgid, 'id': list(entry.vector)})
    if entry.items:
        commands.append({'prefix': 'osd pg-upmap-items', 'pgid': pgid,
                         'id': [osd for pair in entry.items for osd in pair]})
    return commands


def remove_commands(pgid: str, entry: UpmapEntry) -> List[Dict[str, Any]]:
    commands = []
    if entry.vector is not None:
        commands.append({'prefix': 'osd rm-pg-upmap', 'pgid': pgid})
    if entry.items:
        commands.append({'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid})
    return commands


def burst(c: Cluster, commands: List[Dict[str, Any]]) -> None:
    for command, (ret, _, status) in zip(commands, c.burst(commands)):
        assert ret == 0, (command, status)


def clear(c: Cluster) -> None:
    osdmap = osdmap_from_dump(c.osd_dump())
    burst(c, [command for pgid in {*osdmap.upmap_items, *osdmap.upmap_vectors}
              for command in remove_commands(pgid, osdmap.entry(pgid))])
    osdmap = osdmap_from_dump(c.osd_dump())
    assert not osdmap.upmap_items and not osdmap.upmap_vectors


def another_epoch(c: Cluster) -> None:
    c.mon('osd set', key='noscrub')
    c.mon('osd unset', key='noscrub')


def settled(raw: OsdSet, entry: UpmapEntry, seen: Seen, pgid: str) -> UpmapEntry:
    """The mon cleans with every epoch, and what it left of an entry once may be illegal."""
    pool = seen.map.pools[pool_of(pgid)]
    while True:
        left = after_commit(raw, entry, pool, seen.map.osds, seen.crush, pgid)
        if left == entry:
            return entry
        entry = left


def verdict(entry: UpmapEntry, left: UpmapEntry) -> str:
    kind = 'vector ' if entry.vector is not None else 'items '
    return kind + ('kept' if left == entry else 'simplified' if left else 'cancelled')


def test_remapped_pgs_are_pinned(cluster: Cluster) -> None:
    """Random upmaps and a CRUSH change on top: pins make up = acting again."""
    c, rng = cluster, random.Random(7)
    start = Seen(c)
    entries = {pgid: random_entry(rng, up, start.map.pools[pool_of(pgid)].min_size)
               for pgid, up in start.up.items() if start.complete(pgid) and rng.random() < .5}
    burst(c, [command for pgid, entry in entries.items()
              for command in set_commands(pgid, entry)])
    burst(c, [{'prefix': 'osd crush reweight', 'name': 'osd.%d' % osd, 'weight': weight}
              for osd, weight in ((0, .3), (3, .5), (5, 2.0))])
    pin_and_check(c, wait_remapped(c))


def pin_and_check(c: Cluster, before: Seen) -> None:
    plan = plan_pins(before.map, before.sets(), before.crush)
    remapped = [pg.pgid for pg in before.sets() if pg.up != pg.acting]
    assert len(remapped) > 100 and len(plan.entries) > 100
    burst(c, [command for pgid, entry in plan.entries.items()
              for command in replace_commands(before.map.entry(pgid), entry, pgid, 'rm')])
    burst(c, [command for pgid, entry in plan.entries.items()
              for command in replace_commands(before.map.entry(pgid), entry, pgid, 'set')])
    after = Seen(c)
    wrong: List[Tuple[Any, ...]] = []
    forms: "Counter[str]" = Counter()
    for pgid, entry in plan.entries.items():
        erasure = after.map.pools[pool_of(pgid)].erasure
        up, acting = after.up[pgid], before.acting[pgid]
        if up != acting and (erasure or set(up) != set(acting)):
            wrong.append((pgid, before.map.entry(pgid), before.up[pgid], acting, entry,
                          after.map.entry(pgid), up))
        forms['%s %s' % ('ec' if erasure else 'rep', 'vector' if entry.vector else
                         'items' if entry.items else 'removed')] += 1
        forms['exact order'] += up == acting
        forms['same primary'] += up[0] == acting[0]
    print(c.release.name, len(remapped), 'remapped', dict(forms), Counter(
        plan.unpinnable.values()).most_common(3))
    assert not wrong, '%d of %d: %s' % (len(wrong), len(plan.entries), wrong[:5])
    assert not plan.unpinnable, list(plan.unpinnable.items())[:5]


def replace_commands(present: UpmapEntry, wanted: UpmapEntry, pgid: str,
                     step: str) -> List[Dict[str, Any]]:
    if step == 'set':
        return set_commands(pgid, wanted)
    return remove_commands(pgid, UpmapEntry(() if wanted.items else present.items,
                                            None if wanted.vector else present.vector))


def test_exact_pins_keep_the_order(cluster: Cluster) -> None:
    """For joins: replicated PGs get acting's very order back, by a vector where need be."""
    c, rng = cluster, random.Random(3)
    clear(c)
    before = Seen(c)
    assert all(before.raw[pgid] == up for pgid, up in before.up.items())
    pool = next(pool for pool in before.map.pools.values() if pool.name == 'rep')
    pins: Dict[str, Tuple[Pin, OsdSet]] = {}
    for pgid, up in before.up.items():
        if pool_of(pgid) == pool.id and len(pins) < 40:
            wanted = tuple(rng.sample(up, len(up)))
            pin = plan_pin(pool, up, wanted, before.map.entry(pgid), before.map.osds,
                           before.crush, exact=True)
            assert isinstance(pin, Pin)
            pins[pgid] = pin, wanted
    burst(c, [command for pgid, (pin, _) in pins.items()
              for command in set_commands(pgid, pin.entry)])
    after = Seen(c)
    assert {pgid: after.up[pgid] for pgid in pins} == {
        pgid: wanted for pgid, (_, wanted) in pins.items()}


def test_random_entries(cluster: Cluster, record_property: Any) -> None:
    """What the mon stores of an entry and where the PG goes is what the planner predicts."""
    c, rng = cluster, random.Random(20260101)
    clear(c)
    start = Seen(c)
    raws = {pgid: raw for pgid, raw in start.raw.items() if start.complete(pgid)}
    counts: 'Counter[str]' = Counter()
    verdicts: 'Counter[str]' = Counter()
    for _ in range(ROUNDS):
        entries = {pgid: random_entry(rng, raw, start.map.pools[pool_of(pgid)].min_size)
                   for pgid, raw in raws.items()}
        entries = {pgid: entry for pgid, entry in entries.items() if entry}
        burst(c, [command for pgid, entry in entries.items()
                  for command in set_commands(pgid, entry)])
        another_epoch(c)
        seen = Seen(c)
        wrong = []
        for pgid, entry in entries.items():
            left = settled(raws[pgid], entry, seen, pgid)
            up = apply_entry(raws[pgid], left, seen.out)
            if (left, up) != (seen.map.entry(pgid), seen.up[pgid]):
                wrong.append((pgid, raws[pgid], entry, 'predicted', left, up, 'real',
                              seen.map.entry(pgid), seen.up[pgid]))
            assert seen.raw[pgid] == raws[pgid]
            assert raw_from_up(seen.up[pgid], left, seen.out) in (raws[pgid], None)
            counts[seen.map.pools[pool_of(pgid)].name] += 1
            verdicts[verdict(entry, left)] += 1
        assert not wrong, '%d of %d: %s' % (len(wrong), len(entries), wrong[:5])
        clear(c)
    record_property('cases', json.dumps(counts))
    print(c.release.name, dict(counts), dict(verdicts))
    assert counts['rep'] >= CASES and counts['ec'] >= CASES
    assert {'items kept', 'items simplified', 'items cancelled', 'vector kept',
            'vector cancelled'} <= set(verdicts)


def test_refused_commands(cluster: Cluster) -> None:
    pgid = '%d.0' % next(pool.id for pool in osdmap_from_dump(cluster.osd_dump()).pools.values()
                         if pool.name == 'rep')
    too_many = {'prefix': 'osd pg-upmap-items', 'pgid': pgid, 'id': [0, 1, 1, 2, 2, 3, 3, 4]}
    unknown = {'prefix': 'osd pg-upmap-items', 'pgid': pgid, 'id': [0, 999]}
    assert [reply[0] for reply in cluster.burst([too_many, unknown])] == [-22, -2]
