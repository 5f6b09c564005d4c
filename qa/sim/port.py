# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model cluster through the interface that ceph-mgr gives perfguard."""

import errno
import json
import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import (AbstractSet, Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence,
                    Set, Tuple, Union)

import numpy as np

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.set_by_others import BALANCER
from perfguard.cluster.inventory import Inventory
from perfguard.cluster.orchestrator import Orchestrating
from perfguard.cluster.ports import Future, FuturePg, Grown, NewHosts, NoFuture, Outlook
from perfguard.cluster.types import (OSD_ANSWER_SECONDS, NO_ENTRY, NO_OPS, Balancing, ConfigEntry,
                                     Items, OptionChange, Osd, OsdCounters, OsdMap, OsdPlace,
                                     OsdSet, PgCounts, Placement, Pool, PoolSetting, PoolSpace,
                                     Question, Readings, Reply, Signals, Space, UnreadablePg,
                                     UpmapEntry, pool_of, seed_of)

from .cluster import MIN_WAIT as DEFAULT_MIN_WAIT
from .cluster import SIZE, Model
from .physics import Latencies, reading

STATS_SECONDS = 5.0
#: Seconds until PGs of an OSD that hangs are laggy (the read lease), and until operations on them
#: are slow (osd_op_complaint_time).
LEASE_SECONDS, SLOW_SECONDS = 16.0, 30.0
PROPOSE, MIN_WAIT = 'paxos_propose_interval', 'paxos_min_wait'
OSD_BYTES = 8 << 40


class Kv:
    """The mgr's key/value store."""

    def __init__(self) -> None:
        self.data: Dict[str, str] = {}

    def get_store(self, key: str) -> Optional[str]:
        return self.data.get(key)

    def set_store(self, key: str, val: Optional[str]) -> None:
        if val is None:
            self.data.pop(key, None)
        else:
            assert len(val.encode()) <= 65536
            self.data[key] = val

    def get_store_prefix(self, key_prefix: str) -> Dict[str, str]:
        return {key: val for key, val in self.data.items() if key.startswith(key_prefix)}


@dataclass
class SimView:
    osdmap: OsdMap
    crush_version: int
    cluster: 'SimCluster'

    def placement(self, pgid: str) -> Optional[Placement]:
        return self.cluster.placement(pgid)

    def pool_up(self, pool_id: int) -> Mapping[str, OsdSet]:
        begin, end = self.cluster.span(pool_id)
        model = self.cluster.model
        found: Dict[str, OsdSet] = dict(zip(self.cluster.names[begin:end],
                                            map(tuple, model.up[begin:end].tolist())))
        if model.down:
            found = {pgid: tuple(osd for osd in up if osd not in model.down)
                     for pgid, up in found.items()}
        return found

    def primaries(self, pool_id: int) -> Mapping[str, int]:
        begin, end = self.cluster.span(pool_id)
        return {self.cluster.names[pg]: self.cluster.model.acting(pg)[0]
                for pg in range(begin, end)}


class SimCluster:
    """Implements perfguard.cluster.ports.Cluster."""

    def __init__(self, model: Model, future_weights: np.ndarray) -> None:
        """`future_weights`: CRUSH weights once all new OSDs have theirs."""
        self.model = model
        self.kv = Kv()
        self.names = ['%d.%x' % (pool + 1, seed) for pool, number in enumerate(model.pools)
                      for seed in range(number)]
        self._begins = np.concatenate([[0], np.cumsum(model.pools)]).tolist()
        #: Where the PGs are before and after the expansion, and the weights of that.
        self._ends = (model.raw.copy(),
                      model.tree.place(np.arange(model.pgs), SIZE, future_weights))
        #: Numbers of the PGs that the expansion moves.
        self._moving = np.nonzero((self._ends[0] != self._ends[1]).any(axis=1))[0]
        #: The last weights, and OSDs that were out, and where the PGs are then.
        self._placed: Tuple[bytes, np.ndarray] = (b'', model.raw)
        self.future_weights, self.before = future_weights, model.weights.copy()
        self.crush_version_ = 1
        self.config: Dict[str, Dict[str, str]] = {'mgr': {BALANCER: 'true'}, 'mon': {}, 'osd': {}}
        self.modes = {pool + 1: 'off' for pool in range(len(model.pools))}
        self.latencies = Latencies()
        #: Seconds that the model took inside perfguard's calls.
        self.seconds = 0.0
        self.checks: Mapping[str, Any] = {}
        #: What the OSDMap lists; another object once it has changed.
        self._items: Dict[str, Items] = {}
        self._vectors: Dict[str, OsdSet] = {}
        self._osds: Dict[int, Osd] = {}
        self._osds_basis: Tuple[object, ...] = ()
        self._map: Optional[OsdMap] = None
        self._rules: Tuple[int, Optional[CrushRules]] = (0, None)
        #: The balance is computed more than once: an OSD went out, or a campaign was aborted.
        self.balanced_anew = False
        self._signals: Optional[Tuple[float, PgCounts]] = None
        self._known_counts: Dict[Tuple[int, ...], PgCounts] = {}
        self._read = model.now
        self._counters = np.zeros((4, model.tree.osds), dtype=np.int64)
        tree = model.tree
        self._places = {osd: OsdPlace(osd, 'h%d' % tree.host(osd), 'default',
                                      model.hardware.kind, 'm', 'r%d' % tree.rack(osd))
                        for osd in range(tree.osds)}

    # ---- names

    def span(self, pool_id: int) -> Tuple[int, int]:
        return self._begins[pool_id - 1], self._begins[pool_id]

    def number(self, pgid: str) -> int:
        return int(self._begins[pool_of(pgid) - 1]) + seed_of(pgid)

    def placement(self, pgid: str) -> Optional[Placement]:
        pg, model = self.number(pgid), self.model
        up, acting = tuple(model.up[pg].tolist()), model.acting(pg)
        if model.down:
            up, acting = (tuple(osd for osd in osds if osd not in model.down)
                          for osds in (up, acting))
        return Placement(up, acting)

    # ---- maps

    def map_view(self) -> SimView:
        began = time.process_time()
        if self._map is None or self._map.epoch != self.model.epoch \
                or self._map.flags != self.model.flags:
            self._map = self._osdmap()
        self.seconds += time.process_time() - began
        return SimView(self._map, self.crush_version_, self)

    def _osdmap(self) -> OsdMap:
        model = self.model
        pools = {pool + 1: Pool(pool + 1, 'p%d' % (pool + 1), False, SIZE, 2, 0, number, number,
                                number, self.modes[pool + 1])
                 for pool, number in enumerate(model.pools)}
        self._note()
        return OsdMap(
            epoch=model.epoch, flags=frozenset(model.flags), pools=pools, osds=self._all_osds(),
            upmap_items=self._items, upmap_vectors=self._vectors,
            pg_temp={self.names[pg]: moving.data for pg, moving in model.moving.items()
                     if moving.temp}, min_compat_client='luminous')

    def _note(self) -> None:
        """Keep what the OSDMap lists. Maps that were read stay as they are."""
        changed = self.model.changed_entries
        if not changed:
            return
        self._items, self._vectors = dict(self._items), dict(self._vectors)
        for pg in changed:
            name, entry = self.names[pg], self.model.entries.get(pg, NO_ENTRY)
            self._items.pop(name, None)
            self._vectors.pop(name, None)
            if entry.items:
                self._items[name] = entry.items
            if entry.vector is not None:
                self._vectors[name] = entry.vector
        changed.clear()

    def _all_osds(self) -> Dict[int, Osd]:
        model = self.model
        basis = (model.up_thru.tobytes(), frozenset(model.down), frozenset(model.out))
        if basis != self._osds_basis:
            self._osds_basis = basis
            self._osds = {osd: Osd(osd, osd not in model.down, float(osd not in model.out),
                                   up_thru=epoch, uuid='u')
                          for osd, epoch in enumerate(model.up_thru.tolist())}
        return self._osds

    def crush(self, version: int) -> CrushRules:
        if self._rules[0] != version or self._rules[1] is None:
            began = time.process_time()
            self._rules = (version, CrushRules.from_dump(self.model.tree.dump(self.model.weights)))
            self.seconds += time.process_time() - began
        assert self._rules[1] is not None
        return self._rules[1]

    def crush_map(self) -> Tuple[bytes, int]:
        return json.dumps(self.model.weights.tolist()).encode(), self.crush_version_

    def compiled_crush_map(self, given: bytes, ids: int) -> bytes:
        return given

    def crush_rules(self, crush_map: bytes) -> CrushRules:
        return CrushRules.from_dump(self.model.tree.dump(np.array(json.loads(crush_map))))

    def raw_under(self, weights: np.ndarray) -> np.ndarray:
        """Where CRUSH places the PGs with these weights."""
        key = weights.tobytes() + repr(sorted(self.model.out)).encode()
        if self._placed[0] != key:
            self._placed = key, self.model.raw_under(self._in_between(weights), weights)
        return self._placed[1]

    def _in_between(self, weights: np.ndarray) -> np.ndarray:
        """While some of the new OSDs have their weights: as before the expansion, but for the
        places that these take in the end."""
        before, after = self._ends
        if not (np.isclose(weights, self.future_weights) | (weights == 0.0)).all():
            return self._partly(weights)
        new = self.future_weights > self.before
        left = new & (weights == 0.0)
        # What moves between old OSDs does so bit by bit.
        share = 1.0 - left.sum() / max(1, new.sum())
        early = (np.arange(len(before)) * 0.618034 % 1.0 < share)[:, None]
        changed = (before != after) & np.where(new[after], ~left[after], early)
        mixed = np.where(changed, after, before)
        domains = np.sort(mixed // self.model.tree.osds_per_domain, axis=1)
        twice = (domains[:, 1:] == domains[:, :-1]).any(axis=1)
        mixed[twice] = before[twice]
        return np.asarray(mixed)

    def _partly(self, weights: np.ndarray) -> np.ndarray:
        """With a part of some weights. The straws of the new OSDs are then longer than in the end,
        so the PGs that the whole expansion leaves in place stay there."""
        tree, before = self.model.tree, self.before
        if ((weights < before) | (weights > self.future_weights)).any():
            return tree.place(np.arange(self.model.pgs), SIZE, weights)
        raw = self._ends[0].copy()
        raw[self._moving] = tree.place(self._moving, SIZE, weights)
        return raw

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], crush_map: Optional[bytes],
                whole: bool = False, setting: Optional[PoolSetting] = None) -> Outlook:
        began = time.process_time()
        model, now = self.model, self.model.weights.copy()
        if crush_map is not None:
            now = np.array(json.loads(crush_map))
        for osd, weight in weights.items():
            now[osd] = weight
        raw = self.raw_under(now)
        touched = (raw != model.raw).any(axis=1)
        touched[list(model.entries)] = True
        pgs = self._future(np.nonzero(touched)[0], raw)
        others = self._future(np.nonzero(~touched)[0], raw) if whole else {}
        rules = CrushRules.from_dump(model.tree.dump(now))
        self.seconds += time.process_time() - began
        return Future(pgs, rules, crush_map, others)

    def grown(self, osdmap: OsdMap, new: NewHosts) -> Union[Grown, NoFuture]:
        return NoFuture('the model has its OSDs from the beginning')

    def shrunk(self, osdmap: OsdMap, lost: AbstractSet[int]) -> Outlook:
        return NoFuture('the model cannot tell where PGs of lost OSDs go')

    def _future(self, pgs: np.ndarray, raw: np.ndarray) -> Dict[str, FuturePg]:
        numbers = pgs.tolist()
        names = map(self.names.__getitem__, numbers)
        found = {name: FuturePg(tuple(up), tuple(there), present=tuple(here))
                 for name, up, there, here in zip(names, *(
                     sets[pgs].tolist() for sets in (self.model.up, raw, self.model.raw)))}
        for pg, moving in self.model.moving.items():
            if moving.temp and self.names[pg] in found:
                found[self.names[pg]] = found[self.names[pg]]._replace(acting=moving.data)
        return found

    # ---- troubles

    def set_out(self, osd: int, out: bool) -> None:
        """`osd out` and `osd in`."""
        model = self.model
        self.balanced_anew = True
        (model.out.add if out else model.out.discard)(osd)
        model.epoch += 1
        leading = [pg for pg, entry in model.entries.items()
                   if osd in (entry.vector or ()) or any(osd in pair for pair in entry.items)]
        model.set_raw(self.raw_under(model.weights), forced=True)
        model.place(leading, released=False)
        model.forced.update(leading)

    def remove_entry(self, pg: int) -> None:
        """`osd rm-pg-upmap-items`, by an operator."""
        self.model.entries.pop(pg, None)
        self.model.changed_entries.add(pg)
        self.model.epoch += 1
        self.model.place([pg], released=False)

    # ---- signals

    def signals(self, osdmap: OsdMap) -> Signals:
        model = self.model
        if self._signals is None or model.now - self._signals[0] >= STATS_SECONDS:
            began = time.process_time()
            self._signals = (model.now, self._counts())
            self.seconds += time.process_time() - began
        counts = self._signals[1]
        health = {'OSD_DOWN': '%d osds down' % len(model.down)} if model.down else {}
        pools = {pool + 1: int(model.pg_bytes * number)
                 for pool, number in enumerate(model.pools)}
        # One operation of each of these PGs: its client waits.
        waits = sum(model.now - since > SLOW_SECONDS for since in model.hanging.values())
        return Signals(counts, health=health, pool_bytes=pools,
                       slow_ops=len(model.blocked()) if waits else 0,
                       recovery_bytes_per_second=model.copying_bytes,
                       misplaced_ratio=counts.remapped / SIZE / model.pgs)

    def _laggy(self) -> np.ndarray:
        """Numbers of the laggy PGs. Those that an OSD that hangs leads keep their last state."""
        model = self.model
        if not any(model.now - since > LEASE_SECONDS for since in model.hanging.values()):
            return np.zeros(0, dtype=np.int64)
        pgs = model.blocked()
        return pgs[~np.isin(model.data[pgs, 0], sorted(model.hanging))]

    def _unreadable(self) -> Dict[int, Tuple[UnreadablePg, ...]]:
        """By primary."""
        found: Dict[int, Tuple[UnreadablePg, ...]] = {}
        for pg in self._laggy().tolist():
            since = min(self.model.hanging.get(osd, self.model.now) for osd in self.model.data[pg])
            row = UnreadablePg(self.names[pg], self.model.now - since, 1)
            primary = int(self.model.data[pg, 0])
            found[primary] = (*found.get(primary, ()), row)
        return found

    def _counts(self) -> PgCounts:
        model = self.model
        degraded = model.degraded()
        bad = {*degraded.tolist()}
        states = [moving.state for moving in model.moving.values() if moving.left]
        return PgCounts(total=model.pgs, in_transition=model.peering, inactive=model.peering,
                        active_clean=model.pgs - len(bad | model.moving.keys()),
                        degraded=len(bad), remapped=len(states), laggy=len(self._laggy()),
                        backfilling=states.count('copying'), backfill_wait=states.count('waiting'))

    def read_loads(self, seconds: float) -> None:
        pass

    def read_without_probes(self, seconds: float) -> None:
        pass

    def read_by_pg(self, osds: AbstractSet[int]) -> None:
        pass

    def count_clients(self, counting: bool) -> None:
        pass

    def readings(self, view: object, signals: Signals) -> Readings:
        began = time.process_time()
        model = self.model
        usage = model.usage()
        led = model.led / np.maximum(1, model.led.sum(axis=0))
        rows = reading(model.hardware, usage, led, model.take_stalls(), model.random,
                       self.latencies)
        served = np.array([(*row.read, *row.write) for row in rows], dtype=np.int64)
        for counter, added in zip(self._counters, served.T):
            np.add.at(counter, [row.osd for row in rows], added)
        counts, stored = self._osd_counts()
        read, write = (list(zip(*self._counters[first:first + 2].tolist()))
                       for first in (0, 2))
        counters = {osd: OsdCounters(model.now, read[osd], write[osd], NO_OPS, NO_OPS,
                                     NO_OPS, NO_OPS, stored[osd]) for osd in range(model.tree.osds)
                    if osd not in model.down and osd not in model.hanging}
        silent = {osd: model.now - since for osd, since in model.hanging.items()
                  if model.now - since > 2 * STATS_SECONDS}
        found = Readings(model.now - self._read, counters, tuple(rows), self._places,
                         osd_counts=counts, unreadable=self._unreadable(), silent=silent)
        self._read = model.now
        self.seconds += time.process_time() - began
        return found

    def _osd_counts(self) -> Tuple[Dict[int, PgCounts], List[int]]:
        """PGs by the OSDs of their acting sets, and of which each OSD stores data."""
        model, osds = self.model, range(self.model.tree.osds)
        degraded, laggy = (np.bincount(model.data[pgs].ravel(), minlength=len(osds)).tolist()
                           for pgs in (model.degraded(), self._laggy()))
        stored, copied = model.holds.tolist(), [0] * len(osds)
        for pg, moving in model.moving.items():
            for osd in moving.data if moving.state == 'copying' else ():
                copied[osd] += 1
            for osd in set(model.up[pg].tolist()) - set(moving.data):
                stored[osd] += 1
        holds = model.holds.tolist()
        return {osd: self._counts_of(holds[osd], degraded[osd], copied[osd], laggy[osd])
                for osd in osds}, stored

    def _counts_of(self, total: int, degraded: int, copied: int, laggy: int) -> PgCounts:
        """One for all OSDs with the same numbers: there may be 10,000."""
        key = total, degraded, copied, laggy
        if key not in self._known_counts:
            self._known_counts[key] = PgCounts(total=total, degraded=degraded, backfilling=copied,
                                               laggy=laggy)
        return self._known_counts[key]

    def degraded_osds(self) -> FrozenSet[int]:
        return self.model.degraded_osds()

    def osd_space(self) -> Dict[int, Space]:
        return {osd: Space(OSD_BYTES, int(number * self.model.pg_bytes), number)
                for osd, number in enumerate(self.model.holds.tolist())}

    def pool_shared(self) -> Dict[int, float]:
        return {}

    # ---- commands

    def run(self, commands: Sequence[Mapping[str, Any]]) -> List[Reply]:
        """All in one proposal; returns once the mons have committed it."""
        if not commands:
            return []
        began = time.process_time()
        due = self.model.propose(lambda: self._commit(commands))
        self.model.advance(due)
        self.seconds += time.process_time() - began
        return [Reply(0)] * len(commands)

    def _commit(self, commands: Sequence[Mapping[str, Any]]) -> None:
        touched: Set[int] = set()
        primed: List[int] = []
        model, weights = self.model, self.model.weights.copy()
        for command in commands:
            self._apply(command, touched, primed, weights)
        model.changed_entries |= touched
        if (weights != model.weights).any():
            self.crush_version_ += 1
            model.weights = weights
            model.set_raw(self.raw_under(weights))
        model.place(touched)
        for pg in primed:
            model.prime(pg)

    def _apply(self, command: Mapping[str, Any], touched: Set[int], primed: List[int],
               weights: np.ndarray) -> None:
        prefix = command['prefix']
        if prefix == 'osd crush reweight':
            weights[int(command['name'][4:])] = command['weight']
        elif prefix in ('osd set', 'osd unset'):
            self.model.set_flag(command['key'], prefix == 'osd set')
        elif prefix in ('config set', 'config rm'):
            self._configure(command)
        elif prefix == 'osd pool set':
            self.modes[int(command['pool'][1:])] = command['val']
        else:
            pg = self.number(command['pgid'])
            (primed.append if prefix == 'osd pg-temp' else touched.add)(pg)
            self._put_entry(prefix, pg, command)

    def _put_entry(self, prefix: str, pg: int, command: Mapping[str, Any]) -> None:
        entry = self.model.entries.get(pg, NO_ENTRY)
        osds = tuple(command.get('id', ()))
        if prefix == 'osd pg-upmap-items':
            entry = UpmapEntry(tuple(zip(osds[::2], osds[1::2])), entry.vector)
        elif prefix == 'osd rm-pg-upmap-items':
            entry = UpmapEntry((), entry.vector)
        elif prefix == 'osd pg-upmap':
            entry = UpmapEntry(entry.items, osds)
        elif prefix == 'osd rm-pg-upmap':
            entry = UpmapEntry(entry.items)
        self.model.entries[pg] = entry
        if not entry:
            del self.model.entries[pg]

    def _configure(self, command: Mapping[str, Any]) -> None:
        section = self.config.setdefault(command['who'].partition('/')[0], {})
        if command['prefix'] == 'config set':
            section[command['name']] = command['value']
        else:
            section.pop(command['name'], None)
        mon = self.config['mon']
        self.model.propose_seconds = float(mon.get(PROPOSE, 1.0))
        self.model.min_wait = float(mon.get(MIN_WAIT, DEFAULT_MIN_WAIT))
        sleep = 'osd_recovery_sleep_' + self.model.hardware.kind
        self.model.sleep = float(self.config['osd'].get(sleep, 0.0))

    def remove_osd(self, osd: int) -> Reply:
        return Reply(-errno.ENOENT, '', 'no orchestrator')

    def switch_balancer(self, active: bool) -> Reply:
        self.config['mgr'][BALANCER] = 'true' if active else 'false'
        return Reply(0)

    def borrowed(self) -> Tuple[object, ...]:
        """What a campaign borrows, and gives back."""
        return (sorted(self.model.flags), dict(self.modes),
                {who: dict(options) for who, options in self.config.items()})

    # ---- settings

    def balancer_active(self) -> Optional[str]:
        return self.config['mgr'].get(BALANCER, 'true')

    def balancer_busy(self) -> bool:
        return False

    def balancing(self) -> Balancing:
        return Balancing()

    def stored_options(self) -> Mapping[str, Mapping[str, str]]:
        return {who: dict(options) for who, options in self.config.items()}

    def flags_set_by_others(self) -> FrozenSet[str]:
        return frozenset()

    def values_set_by_others(self, balancer_seconds: float) -> Mapping[str, Tuple[str, float]]:
        return {}

    def option_changes(self) -> Tuple[OptionChange, ...]:
        return ()

    def config_entries(self) -> Optional[Tuple[ConfigEntry, ...]]:
        return tuple(ConfigEntry(who, '', name, value) for who, options in self.config.items()
                     for name, value in options.items())

    def osd_versions(self, osds: Iterable[int]) -> Dict[int, str]:
        return {}

    def degraded_sleep(self, osd_versions: AbstractSet[str]) -> str:
        return 'osd_recovery_sleep'

    def inquire(self, questions: Sequence[Question]) -> Mapping[Question, str]:
        return {question: 'wpq' if question.option == 'osd_op_queue' else ''
                for question in questions}

    def stored(self, keys: Sequence[str]) -> Mapping[str, Optional[str]]:
        return {key: self.kv.data.get(key) for key in keys}

    def stats_period(self) -> float:
        return STATS_SECONDS

    def release(self) -> str:
        return '16.2.15'

    def mgr_host(self) -> str:
        return ''

    def page(self) -> str:
        return ''

    def pgs_per_osd_limit(self) -> int:
        return 0

    def hard_pg_limit(self) -> int:
        return 0

    def mon_pg_limits(self) -> Tuple[int, int]:
        return 0, 0

    def split_limit(self) -> int:
        return 128

    def default_crush_rule(self) -> int:
        return -1

    def recommended_pg_nums(self) -> Mapping[str, int]:
        return {}

    def inventory(self, view: object) -> Inventory:
        return Inventory()

    def drives(self, osds: Iterable[int]) -> Mapping[int, str]:
        return dict.fromkeys(osds, 'm')

    def orchestrating(self) -> Orchestrating:
        return Orchestrating()

    def drive_ids(self, osds: Iterable[int]) -> Mapping[int, str]:
        return dict.fromkeys(osds, '')

    def device_ids(self) -> Mapping[str, str]:
        return {}

    def drive_samples(self, device_id: str, seconds: float) -> Mapping[float, Any]:
        return {}

    def pool_space(self, pool_id: int) -> Optional[PoolSpace]:
        return PoolSpace(1 << 50, 0, 0)

    def free_bytes(self) -> int:
        return 1 << 40

    def connection(self) -> Tuple[str, str]:
        return '', '127.0.0.1'

    # ---- what is of no consequence here

    def ask(self, topic: str, osds: Iterable[int], command: Mapping[str, Any],
            patience_seconds: float = OSD_ANSWER_SECONDS) -> None:
        """No OSD answers."""

    def asked(self, topic: str) -> AbstractSet[int]:
        return frozenset()

    def answers(self, topic: str) -> Mapping[int, Any]:
        return MappingProxyType({})

    def unanswered(self) -> bool:
        return False

    def mons_alike(self) -> bool:
        return True

    def active_gid(self) -> int:
        return 4100

    def health_checks(self, checks: Mapping[str, Any]) -> None:
        self.checks = checks

    def progress(self, event_id: str, message: str, share: float) -> None:
        """Not shown."""

    def progress_done(self, event_id: str) -> None:
        """Not shown."""

    def cluster_log(self, text: str) -> None:
        """Not kept."""

    def close(self) -> None:
        """Nothing is open."""
