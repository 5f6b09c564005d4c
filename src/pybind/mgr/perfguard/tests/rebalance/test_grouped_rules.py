# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs on drained OSDs, under a rule that chooses several OSDs in each of some hosts."""
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import Balancing, Osd, OsdMap, OsdSet, Pool, UpmapEntry
from perfguard.rebalance.adopting import NO_OTHER, VECTOR, Adoption, plan_adoption
from perfguard.rebalance.types import TINY_WEIGHT
from perfguard.upmap.semantics import apply_entry

from ..fakes.crushmaps import Map, place

#: Three OSDs in each of four hosts, of which osd.2 is drained.
DRAINED, PGS = 2, 64
HOSTS = [[{osd: TINY_WEIGHT if osd == DRAINED else 1.0 for osd in range(first, first + 3)}
          for first in range(0, 12, 3)]]


class Grouped(NamedTuple):
    crush: CrushRules
    osdmap: OsdMap
    #: Up sets, and where CRUSH alone places the PGs that have upmaps.
    ups: Mapping[str, OsdSet]
    raws: Mapping[str, OsdSet]

    def adopted(self, **osds: Any) -> Adoption:
        osdmap = replace(self.osdmap, osds={**self.osdmap.osds, **{
            int(osd[1:]): row for osd, row in osds.items()}})
        return plan_adoption(osdmap, self.crush, lambda pool: self.ups, Balancing(deviation=9.0),
                             raws=self.raws)


def exchanged(raw: OsdSet, drained: int) -> OsdSet:
    """The groups have changed places, and one shard is on the drained OSD instead."""
    first, second = raw[:2], raw[2:]
    swap: Dict[int, int] = {next(osd for osd in raw if osd // 3 == drained // 3): drained}
    return tuple(swap.get(osd, osd) for osd in (*second, *first))


@pytest.fixture
def grouped(tmp_path: Path) -> Grouped:
    crush, raws = place(Map(HOSTS, ('choose indep 2 type host', 'choose indep 2 type osd')), 4,
                        PGS, tmp_path)
    pool = Pool(1, 'ec', True, 4, 3, 0, PGS, PGS, PGS, data_shards=2)
    ups = {'1.%x' % seed: raw for seed, raw in enumerate(raws)}
    hidden = {pgid: raw for pgid, raw in ups.items() if {0, 1} <= set(raw)}
    vectors = {pgid: exchanged(raw, DRAINED) for pgid, raw in hidden.items()}
    osds = {osd: Osd(osd, True, 1.0) for osd in range(12)}
    return Grouped(crush, OsdMap(7, frozenset(), {1: pool}, osds, {}, vectors, {}),
                   {**ups, **vectors}, hidden)


def differing(one: OsdSet, other: OsdSet) -> int:
    return sum(a != b for a, b in zip(one, other))


def released(grouped: Grouped, adoption: Adoption) -> Dict[str, Tuple[OsdSet, OsdSet]]:
    """Up sets before and after the release."""
    return {pgid: (grouped.ups[pgid], apply_entry(grouped.raws[pgid], pin.before, ()))
            for pgid, pin in adoption.pins.items()}


def test_only_shards_on_drained_osds_move_although_groups_have_changed_places(
        grouped: Grouped) -> None:
    """No pair of a raw OSD that is missing and one that is there instead exists."""
    adoption = grouped.adopted()
    assert len(grouped.raws) > 8 and adoption.pins.keys() == grouped.raws.keys()
    assert not adoption.left_out and not adoption.balancing
    for before, after in released(grouped, adoption).values():
        assert DRAINED not in after and differing(before, after) == 1


def test_no_other_osd_of_the_host_may_take_its_place(grouped: Grouped) -> None:
    """Then the PG moves to where CRUSH places it, unless an OSD there cannot take it either."""
    full = grouped.adopted(_0=Osd(0, True, 1.0, fullness='nearfull'),
                           _1=Osd(1, True, 1.0, fullness='nearfull'))
    assert not full.pins and set(full.left_out.values()) == {NO_OTHER}
    assert full.left_out.keys() == grouped.raws.keys()
    # Their vectors are such that osd.2 is in the place of osd.0 or osd.1.
    one = grouped.adopted(_1=Osd(1, True, 1.0, fullness='nearfull'))
    assert one.pins and one.left_out
    assert one.pins.keys() | one.left_out.keys() == grouped.raws.keys()


def test_what_is_not_known_is_named(grouped: Grouped) -> None:
    adoption = grouped._replace(raws={}).adopted()
    assert not adoption.pins and set(adoption.left_out.values()) == {VECTOR}


def test_a_pair_onto_a_drained_osd_beside_others(grouped: Grouped) -> None:
    """The pair from an OSD that is full is no pin, and the PG is named."""
    entry, (pgid, raw) = UpmapEntry(((0, DRAINED),)), next(iter(grouped.raws.items()))
    found = grouped._replace(
        osdmap=replace(grouped.osdmap, upmap_vectors={}, upmap_items={pgid: entry.items}),
        ups={**grouped.ups, **grouped.raws, pgid: apply_entry(raw, entry, ())}, raws={})
    assert found.adopted().pins.keys() == {pgid}
    full = found.adopted(_0=Osd(0, True, 1.0, fullness='nearfull'))
    assert full.left_out.keys() == {pgid} and 'nearfull' in full.left_out[pgid]
