# SPDX-License-Identifier: LGPL-2.1-or-later
"""The OSDMap and the states of PGs in the JSON of commands and of ceph-mgr, as frozen types."""
import contextlib
import time
from datetime import datetime
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Protocol,
                    Sequence, Tuple, Union)

from ..errors import InvalidValue
from .types import (NO_OSD, NOOUT, RJENKINS, ConfigEntry, Items, OptionChange, Osd, OsdMap, Pair,
                    PgCounts, PgSets, Pool)

# ---- the JSON of an OSDMap

#: pg_pool_t::TYPE_ERASURE
_ERASURE = 3
#: Worst first: a full OSD is also nearfull.
_FULLNESS = ('full', 'backfillfull', 'nearfull')
#: Upmap items that are kept, besides twice those of the last OSDMap.
MOST_KNOWN = 1000


class WrongDump(InvalidValue):
    """The data is valid JSON, but not the output of the expected command."""


class KnownItems(Dict[Pair, Items]):
    """The upmap items of earlier OSDMaps: pair -> items of this pair alone. Longer ones apart.

    The next OSDMap has nearly the same ones. With 100,000 upmaps, equal items that are one object
    need less memory, and comparing them takes less than half the time (rebalance/pin_index.py).
    """

    def __init__(self) -> None:
        super().__init__()
        #: Items of several pairs, by themselves.
        self._longer: Dict[Items, Items] = {}

    def __missing__(self, pair: Pair) -> Items:
        items = self[pair] = (pair,)
        return items

    def read(self, dumped: Sequence[Mapping[str, Any]]) -> Dict[str, Items]:
        """PG -> its items, from the `pg_upmap_items` of an OSDMap; equal ones are one object."""
        # Forget items that were removed: at least half of them. Missing ones are added below.
        if len(self) + len(self._longer) > 2 * len(dumped) + MOST_KNOWN:
            self.clear()
            self._longer.clear()
        return {row['pgid']: self[pairs[0]['from'], pairs[0]['to']] if len(pairs) == 1
                else self._whole(tuple([(pair['from'], pair['to']) for pair in pairs]))
                for row in dumped for pairs in (row['mappings'],)}

    def _whole(self, items: Items) -> Items:
        return self._longer.setdefault(items, items)


def osdmap_from_dump(dump: Mapping[str, Any], known_items: Optional[KnownItems] = None) -> OsdMap:
    """The OSDMap of ``ceph osd dump -f json`` or ``MgrModule.get('osd_map')``; raises WrongDump.

    `known_items`: for callers that read one OSDMap after the other.
    """
    if not isinstance(dump, Mapping):
        raise WrongDump('not the output of "ceph osd dump -f json"')
    if known_items is None:
        known_items = KnownItems()
    try:
        profiles = dump.get('erasure_code_profiles', {})
        return OsdMap(
            epoch=dump['epoch'],
            flags=_flags(dump),
            pools={p['pool']: _pool(p, profiles) for p in dump['pools']},
            osds={o['osd']: _osd(o) for o in dump['osds']},
            upmap_items=known_items.read(dump['pg_upmap_items']),
            upmap_vectors={e['pgid']: tuple(e['osds']) for e in dump['pg_upmap']},
            pg_temp={e['pgid']: tuple(e['osds']) for e in dump['pg_temp']},
            fsid=dump.get('fsid', ''),
            min_compat_client=dump.get('require_min_compat_client', ''),
            require_osd_release=dump.get('require_osd_release', ''),
            nearfull_ratio=float(dump.get('nearfull_ratio', 0.85)),
            full_ratio=float(dump.get('full_ratio', 0.95)),
            crush_version=dump.get('crush_version', 0),
            upmap_primaries={e['pgid']: e['primary_osd']
                             for e in dump.get('pg_upmap_primaries', ())},
            noout=frozenset([*_with_noout(dump, 'crush_node_flags'), *(
                'osd.%d' % osd['osd'] for osd in dump['osds'] if NOOUT in osd.get('state', ()))]),
            noout_classes=frozenset(_with_noout(dump, 'device_class_flags')))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        why = 'no %s' % e if isinstance(e, KeyError) else str(e)
        raise WrongDump('not the output of "ceph osd dump -f json" (%s)' % why) from e


def _flags(dump: Mapping[str, Any]) -> FrozenSet[str]:
    names = dump['flags_set'] if 'flags_set' in dump else dump['flags'].split(',')
    return frozenset(name for name in names if name)


def _with_noout(dump: Mapping[str, Any], key: str) -> List[str]:
    flags_by_name = dump.get(key) or {}
    return [name for name, flags in flags_by_name.items() if NOOUT in flags]


def _osd(dumped: Mapping[str, Any]) -> Osd:
    states = dumped.get('state', ())
    return Osd(dumped['osd'], up=bool(dumped['up']), reweight=float(dumped['weight']),
               destroyed='destroyed' in states,
               fullness=next((level for level in _FULLNESS if level in states), ''),
               primary_affinity=float(dumped.get('primary_affinity', 1.0)),
               up_thru=int(dumped.get('up_thru', 0)), uuid=str(dumped.get('uuid', '')))


def _data_shards(profile: Mapping[str, str]) -> int:
    """Number of data shards. A profile of the plugin lrc with layers has a mapping instead of k,
    which the mons store as -1: a letter for each shard, D for those with data."""
    shards = int(profile.get('k', 0))
    return shards if shards > 0 else max(1, profile.get('mapping', '').count('D'))


def _pool(dumped: Mapping[str, Any], profiles: Mapping[str, Mapping[str, str]]) -> Pool:
    """A pool of "osd dump". `profiles`: the erasure code profiles by name."""
    erasure = dumped['type'] == _ERASURE
    profile: Mapping[str, str] = {}
    if erasure:
        profile = profiles.get(dumped['erasure_code_profile'], {})
    pg_num, options = dumped['pg_num'], dumped.get('options') or {}
    return Pool(
        id=dumped['pool'], name=dumped['pool_name'], erasure=erasure, size=dumped['size'],
        min_size=dumped['min_size'], crush_rule=dumped['crush_rule'], pg_num=pg_num,
        pg_num_target=dumped.get('pg_num_target', pg_num),
        pg_num_pending=dumped.get('pg_num_pending', pg_num),
        autoscale_mode=dumped.get('pg_autoscale_mode', 'off'),
        data_shards=_data_shards(profile) if erasure else 1,
        flags=frozenset(filter(None, dumped.get('flags_names', '').split(','))),
        quota_bytes=int(dumped.get('quota_max_bytes', 0)),
        quota_objects=int(dumped.get('quota_max_objects', 0)),
        object_hash=int(dumped.get('object_hash', RJENKINS)),
        pgp_num=dumped.get('pg_placement_num', 0),
        pgp_num_target=dumped.get('pg_placement_num_target', 0),
        pg_num_min=int(options.get('pg_num_min', 0)),
        pg_num_max=int(options.get('pg_num_max', 0)),
        cached=dumped.get('read_tier', -1) >= 0 or dumped.get('write_tier', -1) >= 0,
        caches=dumped.get('tier_of', -1) >= 0,
        # A pool may outlive its profile.
        local_groups=erasure and profile.get('plugin', 'lrc') == 'lrc')


# ---- PG states: by OSD, as counts, and as rows of a PG dump

#: Maximum share of CPU time for the summary by OSD, unless there is more trouble. ceph-mgr iterates
#: over all PGs and holds the GIL: 7 to 9 us for a PG with three copies, 0.8 s for 100,000 PGs. One
#: reading in each report period would take a sixth of the time of the mgr.
CPU_SHARE = 0.02

#: Maximum age of the summary; higher where readings at this interval would take more than
#: MAX_CPU_SHARE of CPU time. Cheap counts do not show all changes: one PG may recover while another
#: one of its pool becomes degraded.
MAX_AGE_SECONDS = 20.0
MAX_CPU_SHARE = 0.05

#: All pools, instead of a pool id; and the counts without PGs in trouble.
ALL_POOLS = -1
NO_TROUBLE = (0, 0, 0, 0)
#: State -> number of PGs, by OSD.
ByOsd = Mapping[int, Mapping[str, int]]


class Mgr(Protocol):
    """The part of MgrModule that this needs."""

    def get(self, data_name: str) -> Any: ...


class PgSummary:
    """PG states by the OSDs of acting sets. One reading serves all callers, paced by its cost."""
    def __init__(self, mgr: Mgr, clock: Callable[[], float],
                 cpu: Callable[[], float] = time.thread_time) -> None:
        self._mgr = mgr
        self._clock = clock
        self._cpu = cpu
        self._by_osd: ByOsd = {}
        self._degraded: FrozenSet[int] = frozenset()
        self._read_at: Optional[float] = None
        #: CPU seconds of the last reading.
        self.cost_seconds = 0.0
        #: Counts of PGs in trouble by pool, and in total (ALL_POOLS).
        self._trouble: Dict[int, Tuple[int, ...]] = {}
        self._serving: FrozenSet[int] = frozenset()
        #: More or other PGs may be in trouble than at the last reading.
        self._may_be_outdated = False

    def note(self, counts: PgCounts, pools: Mapping[int, PgCounts],
             serving: FrozenSet[int]) -> None:
        """Note whether the last reading of the summary may lack OSDs with PGs in trouble: if a
        cheap count of such PGs has grown, or other OSDs are up and in (`serving`), `by_osd` reads
        it again soon.

        PGs rarely become degraded without a change of these. After a decrease, the last reading
        remains safe: it contains all OSDs with PGs in trouble, and some that no longer have any.
        """
        trouble = {pool: _trouble(pg_counts) for pool, pg_counts in pools.items()}
        trouble[ALL_POOLS] = _trouble(counts)
        if serving != self._serving or any(
                now > before for pool, counts_now in trouble.items()
                for now, before in zip(counts_now, self._trouble.get(pool, NO_TROUBLE))):
            self._may_be_outdated = True
        self._trouble, self._serving = trouble, serving

    def by_osd(self, period: float) -> ByOsd:
        """The summary, at most `period` seconds old if there is more trouble or other OSDs serve;
        else older, so that readings take a limited share of CPU time."""
        if self._may_be_outdated:
            valid_seconds = period
        else:
            affordable_seconds = self.cost_seconds / CPU_SHARE
            oldest_seconds = max(MAX_AGE_SECONDS, self.cost_seconds / MAX_CPU_SHARE)
            valid_seconds = max(period, min(affordable_seconds, oldest_seconds))
        age = None if self._read_at is None else self._clock() - self._read_at
        if age is None or age >= valid_seconds:
            self._read()
        return self._by_osd

    def degraded(self, period: float) -> FrozenSet[int]:
        """OSDs that have or recently had a degraded PG."""
        self.by_osd(period)
        return self._degraded

    def _read(self) -> None:
        """Read the summary by OSD, and measure the CPU time that this takes."""
        begin = self._cpu()
        counts_by_osd: Dict[int, Mapping[str, int]] = {
            int(osd): states
            for osd, states in self._mgr.get('pg_summary').get('by_osd', {}).items()
            # The summary counts a hole in the acting set of an erasure-coded PG like an OSD.
            if int(osd) != NO_OSD}
        self.cost_seconds = self._cpu() - begin
        self._by_osd, self._read_at, self._may_be_outdated = counts_by_osd, self._clock(), False
        self._degraded = frozenset(osd for osd, states in counts_by_osd.items() if any(
            'degraded' in state.split('+') for state in states))


# ---- Counts of PG states by condition

#: Parts of the state of a PG between two intervals. "unknown": not reported yet.
_TRANSITION = frozenset({'peering', 'activating', 'creating', 'unknown'})


def count_states(rows: Iterable[Tuple[str, int]], expected: int = 0) -> PgCounts:
    """The numbers of PGs by condition. `rows`: pairs of a state and its number of PGs, such as
    ("active+clean", 128).

    `expected`: how many PGs there should be; 0: not known. Those that no OSD has reported yet, as
    after a failover of the mgr, count as inactive and in transition. A new mgr lists PGs as
    "unknown" until their OSDs report, or does not list them.
    """
    sums: Dict[str, int] = {}
    inactive = transition = clean = deep = total = empty = idle = waiting = toofull = recovering \
        = staying = 0
    for state, count in rows:
        words = set(state.split('+'))
        if 'stale' in words:
            # Its primary is down. The other words are what it reported before.
            words = {'stale'}
        total += count
        if 'active' not in words:
            inactive += count
        if words & _TRANSITION:
            transition += count
        if {'active', 'clean'} <= words:
            clean += count
        if {'remapped', 'clean'} <= words:
            staying += count  # they have nowhere to move
        if {'scrubbing', 'deep'} <= words:
            deep += count
        # An undersized PG without objects is not degraded.
        if {'undersized', 'backfilling'} <= words and 'degraded' not in words:
            empty += count
            if 'active' not in words:
                idle += count
        if {'degraded', 'backfill_toofull'} <= words:
            toofull += count
        elif {'degraded', 'backfill_wait'} <= words:
            waiting += count
        if 'degraded' in words and words & {'backfilling', 'recovering'}:
            recovering += count
        for word in words:
            sums[word] = sums.get(word, 0) + count
    missing = max(0, expected - total)
    return PgCounts(total=total + missing, active_clean=clean, inactive=inactive + missing,
                    in_transition=transition + missing, deep_scrubbing=deep,
                    unreported=missing + sums.get('unknown', 0),
                    undersized_empty=empty, inactive_empty=idle, degraded_waiting=waiting,
                    degraded_toofull=toofull,
                    degraded_recovering=recovering,
                    remapped_clean=staying,
                    **{word: sums.get(word, 0) for word in (
                        'degraded', 'remapped', 'backfilling', 'backfill_wait',
                        'backfill_toofull', 'laggy', 'wait', 'recovering', 'recovery_wait',
                        'snaptrim')})


def pool_counts(status: Mapping[str, Any], pools: Mapping[int, Pool]) -> Dict[int, PgCounts]:
    """From MgrModule.get('pg_status'): the counts of each pool."""
    return {row['pool_id']: count_states(
                ((state['state_name'], state['count']) for state in row['pg_state_counts']),
                pools[row['pool_id']].pg_num)
            for row in status.get('pgs_by_pool_state', []) if row['pool_id'] in pools}


# ---- Health and configuration

def health_checks(health: Mapping[str, Any]) -> Tuple[Dict[str, str], FrozenSet[str]]:
    """Check -> summary of those that are not muted, and the muted ones; from the health in ``ceph
    status -f json``, in ``ceph report`` or in the mgr."""
    checks = health.get('checks', {})
    shown = {code: check.get('summary', {}).get('message', '')
             for code, check in checks.items() if not check.get('muted')}
    return shown, frozenset(checks.keys() - shown.keys())


def config_entries(dump: Iterable[Mapping[str, Any]]) -> Tuple[ConfigEntry, ...]:
    """From ``ceph config dump -f json``."""
    return tuple(ConfigEntry(entry['section'], entry.get('mask', ''), entry['name'],
                             str(entry['value'])) for entry in dump)


def option_changes(log: Iterable[Mapping[str, Any]]) -> Tuple[OptionChange, ...]:
    """The changes of options in ``ceph config log -f json``. Entries of a form that is not known
    are skipped."""
    changes = []
    for entry in log:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            at = datetime.strptime(entry['timestamp'], '%Y-%m-%dT%H:%M:%S.%f%z').timestamp()
            for row in entry['changes']:
                who, _, name = row['name'].rpartition('/')
                changes.append(OptionChange(at, who, name, str(row.get('previous_value', '')),
                                            str(row.get('new_value', ''))))
    return tuple(changes)


# ---- Rows of a PG dump

def pg_rows(dump: Any) -> Any:
    """The list of PGs in a PG dump; releases differ in what is around it. WrongDump if none."""
    if isinstance(dump, dict):
        dump = dump.get('pg_map', dump)
    if isinstance(dump, dict):
        dump = dump.get('pg_stats')
    if not isinstance(dump, list):
        raise wrong_pg_dump()
    return dump


def wrong_pg_dump() -> WrongDump:
    return WrongDump('not the output of "ceph pg dump pgs_brief -f json"')


#: What keep_remapped makes of a PG whose up set is its acting set.
NOT_REMAPPED = None


def keep_remapped(row: Dict[str, Any]) -> Union[Dict[str, Any], PgSets, None]:
    """An object_hook for json.load of a PG dump: only remapped PGs are ever kept, the others become
    NOT_REMAPPED. Objects that are no PGs stay as they are.

    A large cluster has hundreds of thousands of PGs, and what a few of them need must not cost
    the memory of all.
    """
    sets = keep_sets(row)
    return NOT_REMAPPED if isinstance(sets, PgSets) and sets.up == sets.acting else sets


def keep_sets(row: Dict[str, Any]) -> Union[Dict[str, Any], PgSets]:
    """An object_hook for json.load of a PG dump: all PGs are kept, without what is not used.
    Objects that are no PGs stay as they are."""
    up, acting = row.get('up'), row.get('acting')
    if not isinstance(up, list) or not isinstance(acting, list) or 'pgid' not in row:
        return row
    return PgSets(row['pgid'], tuple(up), tuple(acting), row.get('state', ''))


def _trouble(counts: PgCounts) -> Tuple[int, ...]:
    """Numbers of PGs in trouble, by kind of trouble; NO_TROUBLE: none."""
    return counts.degraded, counts.inactive, counts.laggy, counts.wait
