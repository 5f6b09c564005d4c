# SPDX-License-Identifier: LGPL-2.1-or-later
"""PGs that leave OSDs because these were marked out, reweighted, or lost their CRUSH weight, or are
too full.

Somebody ordered that these OSDs are emptied, mostly because they fail or are too full. Pins cannot
keep data on an OSD that is out or has CRUSH weight 0, so only norebalance would: it must not. An
OSD that is too full may have got a lower CRUSH weight, and pins would keep its data there.
"""
import functools
from typing import (AbstractSet, Callable, Container, Dict, FrozenSet, List, Mapping, Optional,
                    Tuple)

from .crush import CrushRules
from .types import (NO_OSD, OsdMap, OsdSet, Placement, Pool, mask_of, pool_of, seed_of,
                    stable_mod)

#: Remapped PG -> the OSDs that it leaves.
Evacuation = Mapping[str, OsdSet]

#: If a larger share of the OSDs with CRUSH weight is backfillfull, and more than one OSD, that is
#: no order to empty some of them: most changes of CRUSH then add OSDs, and their PGs must not all
#: move at once.
BACKFILLFULL_SHARE = 0.25


def evacuated(osdmap: OsdMap, placement: Callable[[str], Optional[Placement]], crush: CrushRules,
              emptied: Container[int] = (), released: Container[str] = (),
              decided: Optional[Container[str]] = None, leaving: AbstractSet[int] = frozenset(),
              reweights_before: Mapping[int, float] = {}) -> Dict[str, OsdSet]:
    """Remapped PG -> the OSDs that it leaves because these are out, were reweighted, have no CRUSH
    weight, or are too full. PGs that have no other place to go to are left out.

    `emptied`: OSDs whose CRUSH weight 0 is the change of a campaign; `released`: PGs that a
    campaign has released, which may have been on a reweighted OSD by an upmap; `decided`: PGs that
    only a campaign moves, even from OSDs that are too full; None: all PGs are such; `leaving`: OSDs
    that PGs were leaving at the last call. These stay too full until they are not even nearly full:
    the first PG that has left would end the evacuation of the others. `reweights_before`: the
    reweights of OSDs before the campaign. PGs that CRUSH rejects by these as well are there by
    upmaps: they leave because the mons drop these upmaps when CRUSH changes.
    """
    if not osdmap.pg_temp:
        return {}
    weights = crush.weights()
    unusable = {osd.id for osd in osdmap.osds.values() if osd.reweight == 0.0
                or not weights.get(osd.id) and osd.id not in emptied}
    reweighted = {osd.id for osd in osdmap.osds.values()
                  if 0.0 < osd.reweight < reweights_before.get(osd.id, 1.0)}
    full = frozenset() if decided is None else too_full(osdmap, weights) | {
        osd for osd in leaving if osd in osdmap.osds and osdmap.osds[osd].fullness}
    unusable_or_full = unusable | full
    candidates = unusable_or_full | reweighted
    left_by_pg: Dict[str, OsdSet] = {}
    for pgid, acting in osdmap.pg_temp.items():
        if candidates.isdisjoint(acting):
            continue
        pool, place = osdmap.pools.get(pool_of(pgid)), placement(pgid)
        if pool is None or place is None:
            continue
        losing_osds = _osds_that_lose_it(pool, place, candidates)
        unfit = unusable if decided is None or pgid in decided else unusable_or_full
        seed = seed_of(pgid)
        left_osds = tuple([osd for osd in losing_osds if osd in unfit or pgid not in released
                           and rejects(osd, osdmap.osds[osd].reweight, pool, seed)
                           and not rejects(osd, reweights_before.get(osd, 1.0), pool, seed)])
        if left_osds:
            left_by_pg[pgid] = left_osds
    return left_by_pg


def too_full(osdmap: OsdMap, weights: Mapping[int, float]) -> FrozenSet[int]:
    """The OSDs that PGs leave at once if others have changed CRUSH: those that take no writes
    (full), and those that are backfillfull unless too many are (BACKFILLFULL_SHARE). `weights`: OSD
    -> CRUSH weight, of all OSDs in CRUSH."""
    refusing = frozenset(osd.id for osd in osdmap.osds.values() if osd.refuses_backfill)
    weighted = sum(1 for weight in weights.values() if weight > 0.0)
    if len(refusing) <= max(1.0, BACKFILLFULL_SHARE * weighted):
        return refusing
    return frozenset(osd for osd in refusing if osdmap.osds[osd].fullness == 'full')


def _osds_that_lose_it(pool: Pool, place: Placement, candidates: AbstractSet[int]) -> OsdSet:
    """The candidates that the PG leaves for other OSDs. Where CRUSH finds too few OSDs, data stays
    where it is."""
    if pool.erasure:
        return tuple([old for old, new in zip(place.acting, place.up)
                      if old in candidates and old not in place.up and new != NO_OSD])
    if set(place.up) <= {*place.acting, NO_OSD}:
        return ()
    return tuple([osd for osd in place.acting if osd in candidates and osd not in place.up])


def moves_others(pool: Pool, place: Placement, left_osds: OsdSet) -> bool:
    """Whether a PG moves further shards than those that must leave their OSDs."""
    must_be_left = {NO_OSD, *left_osds}
    if pool.erasure:
        return any(old != new and old not in must_be_left
                   for old, new in zip(place.acting, place.up))
    return not must_be_left.union(place.up).issuperset(place.acting)


def by_osd(evacuation: Evacuation) -> Dict[int, List[str]]:
    """OSD -> the PGs that leave it."""
    pgids_by_osd: Dict[int, List[str]] = {}
    for pgid, osds in sorted(evacuation.items()):
        for osd in osds:
            pgids_by_osd.setdefault(osd, []).append(pgid)
    return pgids_by_osd


# ---- The draw by which CRUSH rejects an OSD for a PG (is_out in crush/mapper.c)

_BITS = 0xFFFFFFFF
_SEED = 1315423911


def rejects(osd: int, reweight: float, pool: Pool, seed: int) -> bool:
    """Whether CRUSH does not choose the OSD for the PG because of its reweight."""
    return _hash(_placement_seed(pool, seed), osd) & 0xFFFF >= round(0x10000 * reweight)


def _placement_seed(pool: Pool, seed: int) -> int:
    """The input of CRUSH (pg_pool_t::raw_pg_to_pps)."""
    number = pool.pgp_num or pool.pg_num
    stable = stable_mod(seed, number, mask_of(number))
    return _hash(stable, pool.id) if 'hashpspool' in pool.flags else stable + pool.id


@functools.lru_cache(maxsize=1 << 16)
def _hash(a: int, b: int) -> int:
    """crush_hash32_2 (crush/hash.c): three of Jenkins' mixes of 96 bits, which take 8 us."""
    value = _SEED ^ a ^ b
    a, b, value = _mixed(a, b, value)
    first, a, value = _mixed(231232, a, value)
    return _mixed(b, 1232, value)[2]


def _mixed(a: int, b: int, c: int) -> Tuple[int, int, int]:
    for shift_a, shift_b, shift_c in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = ((a - b - c) & _BITS) ^ (c >> shift_a)
        b = ((b - c - a) & _BITS) ^ ((a << shift_b) & _BITS)
        c = ((c - a - b) & _BITS) ^ (b >> shift_c)
    return a, b, c
