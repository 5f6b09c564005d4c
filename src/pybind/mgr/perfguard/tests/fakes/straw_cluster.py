# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster in memory with a CRUSH of its own, and an auditor of what perfguard sends to it."""
import hashlib
import math
from functools import lru_cache
from typing import AbstractSet, Any, Dict, List, Mapping, Optional, Set

from perfguard.cluster.evacuation import rejects
from perfguard.cluster.types import OsdSet, Pool, UpmapEntry, pool_of, seed_of

from .cluster import BALANCER, FakeCluster, FakeReply
from .mon_model import HOLE, ToyOsd


@lru_cache(maxsize=None)
def straw(*drawn_for: object) -> float:
    """The shorter, the better; the same for the same arguments in every process."""
    digest = hashlib.blake2b(repr(drawn_for).encode(), digest_size=8).digest()
    return -math.log((int.from_bytes(digest, 'big') + 1) / 2.0 ** 64)


class StrawCluster(FakeCluster):
    """PGs are placed by weight: one more OSD, or another weight, remaps as little as can be."""

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        domains: Dict[int, Dict[int, float]] = {}
        for osd, toy in toys.items():
            if toy.crush_weight * toy.reweight > 0.0:
                domains.setdefault(toy.domain, {})[osd] = toy.crush_weight * toy.reweight
        raw: List[int] = []
        for position in range(3):
            if domains:
                best = min(domains, key=lambda each: straw(pgid, 'domain', each, position)
                           / sum(domains[each].values()))
                osds = domains.pop(best)
                raw.append(min(osds, key=lambda osd: straw(pgid, osd) / osds[osd]))
            elif pool_of(pgid) == 2:
                raw.append(HOLE)
        return raw

    def _first_raw(self, pool: int, seed: int) -> OsdSet:
        return tuple(self.raw_under('%d.%x' % (pool, seed), self.toys))

    def place(self) -> None:
        """By weights that are new."""
        self._place()
        self._crush_changed()

    def _place(self) -> None:
        for pgid, pg in self.pg.items():
            pg.mon.raw = self.raw_under(pgid, self.toys)

    def _weigh(self, osd: int, weight: float) -> None:
        self.toys[osd] = self.toys[osd]._replace(crush_weight=weight)
        self.crush_version_ += 1
        self._place()

    def weigh(self, osd: int, weight: float) -> None:
        """Another admin changes a CRUSH weight."""
        self._weigh(osd, weight)
        self.place()

    def add_osds(self, count: int, weight: float) -> None:
        self._new_osds(count, weight)
        self.place()

    def mark_out(self, osd: int) -> None:
        self.toys[osd] = self.toys[osd]._replace(reweight=0.0)
        self.place()

    def revive(self, osd: int) -> None:
        super().revive(osd)
        self.place()


class RetryingCluster(StrawCluster):
    """As CRUSH, it tries another host where the OSD is out, or rejected for its reweight, and whose
    host keeps its weight: other OSDs than without that host, and those of a replicated PG in
    another order."""

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        weights: Dict[int, Dict[int, float]] = {}
        for osd, toy in toys.items():
            if toy.crush_weight > 0.0:
                weights.setdefault(toy.domain, {})[osd] = toy.crush_weight
        by_position = pool_of(pgid) == 2
        raw: List[int] = []
        domains: Set[int] = set()
        for position in range(3):
            for attempt in range(position, 150, 3 if by_position else 1):
                domain = min(weights, key=lambda each: straw(pgid, 'domain', each, attempt)
                             / sum(weights[each].values()))
                osds = weights[domain]
                osd = min(osds, key=lambda each: straw(pgid, each) / osds[each])
                if domain not in domains and not self.rejects(osd, pgid, toys[osd].reweight):
                    domains.add(domain)
                    raw.append(osd)
                    break
            else:
                raw += [HOLE] if by_position else []
        return raw

    def rejects(self, osd: int, pgid: str, reweight: Optional[float] = None) -> bool:
        """Whether it does not choose the OSD for the PG, because of its reweight."""
        pool = Pool(pool_of(pgid), '', False, 3, 2, 0, self.pgs, self.pgs, self.pgs)
        return rejects(osd, self.toys[osd].reweight if reweight is None else reweight, pool,
                       seed_of(pgid))

    def reweigh(self, osd: int, reweight: float) -> None:
        """Another admin runs "ceph osd reweight"."""
        self.toys[osd] = self.toys[osd]._replace(reweight=reweight)
        self.place()


class AuditedCluster(StrawCluster):
    """Keeps what belongs to others, and notes each command that takes it away from them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        #: What perfguard did and must not do.
        self.wrong: List[str] = []
        #: Flags that perfguard set where they were not.
        self.own_flags: Set[str] = set()
        #: The settings as they are to be once no campaign has borrowed any.
        self.their_flags = set(self.flags)
        self.their_config = dict(self.config)
        #: The module had switched the balancer off when others switched it on.
        self.was_borrowed = False
        self.their_modes = dict(self.modes)
        #: Settings that others changed while a campaign had borrowed them: theirs from then on.
        self.taken: Set[str] = set()
        #: In which epoch others changed a flag or mode.
        self._put_in: Dict[str, int] = {}
        #: Upmaps of others, but for those that the mon may have dropped since.
        self.their_upmaps: Dict[str, UpmapEntry] = {}

    def _crush_changed(self) -> None:
        before = {pgid: pg.up for pgid, pg in self.pg.items()}
        super()._crush_changed()
        if before != {pgid: pg.up for pgid, pg in self.pg.items()}:
            self.their_upmaps.clear()

    # ---- what others do

    def put_flag(self, flag: str, on: bool) -> None:
        (self.flags.add if on else self.flags.discard)(flag)
        (self.their_flags.add if on else self.their_flags.discard)(flag)
        self.own_flags.discard(flag)
        self._put(flag)

    def put_balancer(self, on: bool) -> None:
        if on and self.config[BALANCER] == 'false' and self.their_config[BALANCER] == 'true':
            self.was_borrowed = True
        self.config[BALANCER] = self.their_config[BALANCER] = 'true' if on else 'false'
        if self.was_borrowed and not on:
            # As the campaign asks for, which may switch it on again at its end.
            self.taken.discard(BALANCER)
        else:
            self.taken.add(BALANCER)

    def put_mode(self, pool: int, mode: str) -> None:
        self.modes[pool] = self.their_modes[pool] = mode
        self.taken.add('mode of %d' % pool)
        self._put('mode of %d' % pool)

    def _put(self, what: str) -> None:
        self.epoch += 1
        self._put_in[what] = self.epoch

    def unseen(self, what: str) -> bool:
        """The mgr's map is older than what others did to it."""
        return self.map_view().osdmap.epoch < self._put_in.get(what, 0)

    # ---- what perfguard does

    def _apply(self, command: Mapping[str, Any]) -> FakeReply:
        prefix, key, pgid = command['prefix'], command.get('key', ''), command.get('pgid', '')
        if self.map_view().osdmap.entry(pgid) != self.entries().get(pgid, UpmapEntry()):
            # Nothing can be done for an upmap that the mgr does not see yet.
            self.their_upmaps.pop(pgid, None)
        if prefix in ('osd set', 'osd unset') and (key not in self.flags or self.unseen(key)):
            # What others have just done to the flag cannot be known.
            self.own_flags.add(key)
            self.their_flags.discard(key)
        if prefix == 'osd unset':
            if key not in self.own_flags:
                self.wrong.append('osd unset %s' % key)
            self.own_flags.discard(key)
        elif prefix == 'osd pool set':
            pool = {'rep': 1, 'ec': 2}[command['pool']]
            if 'mode of %d' % pool in self.taken and not self.unseen('mode of %d' % pool):
                self.wrong.append('pg_autoscale_mode of pool %d' % pool)
        return super()._apply(command)

    def switch_balancer(self, active: bool) -> FakeReply:
        if BALANCER in self.taken:
            self.wrong.append('balancer %s' % active)
        if active and self.was_borrowed:
            self.was_borrowed, self.their_config[BALANCER] = False, 'true'
        return super().switch_balancer(active)

    def unlike_theirs(self, quiet_pools: AbstractSet[int] = frozenset(),
                      kept: bool = False) -> List[str]:
        """Settings that differ from those that others have set.

        While pools have pins, the balancer and their autoscaler may stay off, so that they do not
        move pinned PGs; `kept`: norebalance may stay set, too.
        """
        modes = {pool: 'off' if pool in quiet_pools and self.modes[pool] == 'off' else mode
                 for pool, mode in self.their_modes.items()}
        config = dict(self.their_config)
        if (quiet_pools or kept) and self.config[BALANCER] == 'false':
            config[BALANCER] = 'false'
        flags = self.their_flags | (self.own_flags & self.flags if kept else set())
        return ['%s, not %s' % (found, wanted) for found, wanted in (
            (self.flags, flags), (self.config, config), (self.modes, modes)) if found != wanted]
