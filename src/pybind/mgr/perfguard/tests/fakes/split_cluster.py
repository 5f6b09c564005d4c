# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster in memory whose pools change pg_num and pgp_num, stepped by its ceph-mgr."""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.types import (OsdMap, PoolSetting, PoolPgs, merging_seeds, pool_of,
                                     seed_of)

from .cluster import FakePg, FakeView
from .mon_model import ToyMon, ToyOsd
from .straw_cluster import StrawCluster

NAMES = {'rep': 1, 'ec': 2}


def folded(seed: int, pgp_num: int) -> int:
    """ceph_stable_mod"""
    mask = (1 << (pgp_num - 1).bit_length()) - 1
    return seed & mask if seed & mask < pgp_num else seed & mask >> 1


class SplitCluster(StrawCluster):
    """Splits in one step, merges one PG in each tick; steps pgp_num by two PGs in a tick."""
    splitting = True
    #: mon_osd_max_creating_pgs
    splits_at_a_time = 1024

    def __post_init__(self) -> None:
        self.numbers = {pool: PoolPgs(pool, self.pgs, self.pgs) for pool in (1, 2)}
        self.targets = dict(self.numbers)
        self.pg_num_limits: Dict[str, int] = {}
        super().__post_init__()
        self.modes = {1: 'off', 2: 'warn'}
        self._views = [self._view()]

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        return self._raw(pgid, self.numbers[pool_of(pgid)].pgp_num, toys)

    def _raw(self, pgid: str, pgp_num: int, toys: Mapping[int, ToyOsd]) -> List[int]:
        pool = pool_of(pgid)
        return super().raw_under('%d.%x' % (pool, folded(seed_of(pgid), pgp_num)), toys)

    def _pool_set(self, command: Mapping[str, Any]) -> None:
        name = command['var']
        if name not in ('pg_num', 'pgp_num', 'pgp_num_actual'):
            super()._pool_set(command)
            return
        pool, number = NAMES[command['pool']], int(command['val'])
        target = self.targets[pool]
        if name == 'pg_num':
            follows = target.pg_num == target.pgp_num
            self.targets[pool] = PoolPgs(pool, number, number if follows else
                                         min(number, target.pgp_num))
        elif name == 'pgp_num':
            assert number <= target.pg_num
            self.targets[pool] = target._replace(pgp_num=number)
        else:
            assert number <= self.numbers[pool].pg_num
            self._set(self.numbers[pool]._replace(pgp_num=number))

    def _set(self, numbers: PoolPgs) -> None:
        """Numbers that are in force, and the PGs that there are by them."""
        pool, before = numbers.pool, self.numbers[numbers.pool]
        self.numbers[pool] = numbers
        for seed in range(before.pg_num, numbers.pg_num):
            parent = self.pg['%d.%x' % (pool, folded(seed, before.pg_num))]
            pgid = '%d.%x' % (pool, seed)
            mon = ToyMon(self.toys, 3, self.raw_under(pgid, self.toys))
            self.pg[pgid] = FakePg(mon, parent.data, parent.up, parent.temp,
                                   self.now + self.peer_seconds)
        for seed in range(numbers.pg_num, before.pg_num):
            del self.pg['%d.%x' % (pool, seed)]
        for pgid, pg in self.pg.items():
            pg.mon.raw = self.raw_under(pgid, self.toys)
        self._interval_changes()
        self.epoch += 1

    def tick(self, seconds: float = 1.0) -> None:
        for pool, target in self.targets.items():
            self._step(pool, target)
        super().tick(seconds)

    def _step(self, pool: int, target: PoolPgs) -> None:
        """DaemonServer::adjust_pgs"""
        now = self.numbers[pool]
        ahead = now.pgp_num + self.max_pg_num_change
        if target.pg_num > now.pg_num < ahead and self.splitting:
            self._set(now._replace(pg_num=min(
                target.pg_num, ahead, now.pg_num + self.splits_at_a_time)))
        elif target.pg_num < now.pg_num and now.pgp_num < now.pg_num:
            self._merge(now)
        elif target.pgp_num > now.pgp_num and now.pgp_num < now.pg_num:
            self._set(now._replace(pgp_num=min(now.pgp_num + 2, target.pgp_num, now.pg_num)))
        elif target.pgp_num < now.pgp_num:
            self._set(now._replace(pgp_num=max(now.pgp_num - 2, target.pgp_num)))

    def _merge(self, now: PoolPgs) -> None:
        pair = ['%d.%x' % (now.pool, seed) for seed in merging_seeds(now.pg_num, now.pg_num - 1)]
        for pgid in pair:
            if self.pg[pgid].mon.stored != ([], None):
                self.pg[pgid].mon.put_items([])
                self.pg[pgid].mon.put_vector(None)
                self._interval_changes()
                self.epoch += 1
                return
        if all(self.pg[pgid].peering_until is None and self.pg[pgid].temp is None
               for pgid in pair):
            assert len({self.pg[pgid].data for pgid in pair}) == 1
            self._set(now._replace(pg_num=now.pg_num - 1))

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {}
        for number, pool in view.osdmap.pools.items():
            now, target = self.numbers[number], self.targets[number]
            pools[number] = replace(
                pool, pg_num=now.pg_num, pgp_num=now.pgp_num, pg_num_pending=now.pg_num,
                pg_num_target=target.pg_num, pgp_num_target=target.pgp_num,
                **self.pg_num_limits)
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], crush_map: Optional[bytes],
                whole: bool = False, setting: Optional[PoolSetting] = None) -> Outlook:
        if not isinstance(setting, PoolPgs) or self.no_tools:
            return NoFuture(self.no_tools) if self.no_tools else super().outlook(
                osdmap, weights, crush_map, whole, setting)
        now, merging = self.numbers[setting.pool], merging_seeds(setting.pg_num, setting.pgp_num)
        found: Dict[str, FuturePg] = {}
        others: Dict[str, FuturePg] = {}
        for seed in range(setting.pg_num):
            pgid = '%d.%x' % (setting.pool, seed)
            pg = self.pg.get(pgid) or self.pg['%d.%x' % (setting.pool, folded(seed, now.pg_num))]
            raw = tuple(self._raw(pgid, setting.pgp_num, self.toys))
            if raw != tuple(self._raw(pgid, now.pgp_num, self.toys)) \
                    or seed in merging and osdmap.entry(pgid):
                found[pgid] = FuturePg(self._whole(pgid, pg), raw)
            elif seed >= min(now.pg_num, setting.pgp_num):
                others[pgid] = FuturePg(self._whole(pgid, pg), raw)
        return Future(found, self.crush(0), others=others)
