# SPDX-License-Identifier: LGPL-2.1-or-later
"""Predicts where CRUSH places PGs after a change, with the tools of Ceph on copies of the maps.

The functions wait for the mons and the tools, so the thread of the loop must not call them.
"""
import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from itertools import zip_longest
from pathlib import Path
from typing import (AbstractSet, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional,
                    Sequence, Tuple, TypeVar, Union)

from .crush import CrushRules
from .map_encoding import (pg_nums, refuse_unbounded, rules_exchanged, with_osds_out, with_osds_up,
                           with_pg_nums)
from .ports import Future, FuturePg, Grown, NewHosts, NoFuture, Outlook, ToolFailed
from .types import (NO_OSD, OsdMap, OsdSet, Pool, PoolPgs, PoolRule, PoolSetting,
                    mask_of, merging_seeds, pool_of, seed_of, stable_mod)

OSDMAPTOOL = '/usr/bin/osdmaptool'
CRUSHTOOL = '/usr/bin/crushtool'
#: Time for all tools of one preview. Mapping 100,000 PGs twice takes some seconds. If the preview
#: fails, a change is made without pins in the same epoch.
TOOL_SECONDS = 180.0
#: Prefix of the temporary directories for maps and the output of the tools.
TOOLS_PREFIX = 'perfguard-tools-'
#: Interval of checks while a tool runs.
TOOL_LOOK_SECONDS = 0.1
#: Maximum output of a tool for a CRUSH map, and for each PG (three sets of OSDs).
DUMP_BYTES = 64 << 20
PG_OUTPUT_BYTES = 1024
#: Maximum address space of a tool. crushtool compiles the map of 10,000 OSDs with 220 MiB on
#: Pacific, and that of 50,000 with 400, of which the libraries are 180.
TOOL_BYTES = 1 << 30
#: Where the kernel reports memory: of the host, and of the container or service.
MEMINFO, CGROUP = Path('/proc/meminfo'), Path('/sys/fs/cgroup')
#: Maximum size of a CRUSH map that is given: for any cluster, and for each OSD. With 10,000 OSDs
#: the text has about 200 bytes for each, the compiled form 50 for each tree. The output of
#: crushtool, and the CrushRules made of it, are about ten times as large.
MAP_BYTES, MAP_OSD_BYTES = 1 << 20, 1 << 10
#: An id of a bucket or an OSD in the text of a map for which crushtool would fill much memory.
_LARGE_ID = re.compile(rb'\b(?:device|id|bucket_id)\s+-?0*[1-9][0-9]{6}')
#: CRUSH weights in one call: an argument has at most 128 KiB.
WEIGHTS_AT_ONCE = 3000
#: Returns the OSDMap of an epoch as bytes; raises OSError if the mons do not send it.
MapSource = Callable[[int], bytes]
#: Whether the module is stopping.
Stopping = Callable[[], bool]

#: "1.2f raw ([1,NONE,3], p1) up ([1,2,3], p1) acting ([1,2,3], p1)"
_PG = re.compile(r'(\d+\.[0-9a-f]+)\s+raw \(\[([^\]]*)\], p\S+\) up \(\[([^\]]*)\], p\S+\) '
                 r'acting \(\[([^\]]*)\], p\S+\)$')


def outlook(osdmap: OsdMap, source: MapSource, weights: Mapping[int, float],
            crush_map: Optional[bytes], stopping: Stopping, whole: bool = False,
            setting: Optional[PoolSetting] = None) -> Outlook:
    """The mapping after one change: other CRUSH weights of some OSDs, another CRUSH map, or another
    rule or other numbers of PGs for one pool. NoFuture, with the reason, if the tools fail.

    Only one change counts: `setting` if it is a PoolPgs, else `crush_map`, else `setting`, else
    `weights`. None and {}: no such change; without any, it is the present mapping. `whole`: include
    all PGs of the affected pools; of all pools if nothing is changed; it has no effect with a
    PoolPgs. The tools work on copies in a temporary directory, in which OSDs that are down and in
    are up: they keep their place, and their data.
    """
    source = _source_with_absent_up(osdmap, source)

    def work(tools: '_Tools') -> Outlook:
        if isinstance(setting, PoolPgs):
            return _outlook_of_pgs(tools, osdmap, source, setting)
        return _outlook(tools, osdmap, source, weights, crush_map, whole, setting)

    return _with_tools(work, stopping)


def shrunk(osdmap: OsdMap, source: MapSource, lost: AbstractSet[int],
           stopping: Stopping) -> Outlook:
    """The mapping of all PGs while the OSDs `lost` are out. OSDs that are down and in count as up:
    they keep their data. NoFuture, with the reason, if the tools fail."""
    def work(tools: '_Tools') -> Future:
        present = _source_with_absent_up(osdmap, source)(osdmap.epoch)
        now, later = _map_both(tools, present, with_osds_out(present, lost), osdmap.pg_count)
        changed = dict(_changed(osdmap, now, later))
        return Future(changed, _rules(tools, tools.path('crush')),
                      others=dict(_other_pgs(changed, later, pools=None)))

    return _with_tools(work, stopping)


def grown(osdmap: OsdMap, source: MapSource, new: NewHosts,
          stopping: Stopping) -> Union[Grown, NoFuture]:
    """The mapping of all PGs with hosts that do not exist.

    The OSDs of these hosts are not in the OSDMap, and osdmaptool has no option to add them. So they
    are added to CRUSH, and crushtool places the PGs: up sets are not known. NoFuture, with the
    reason, if the tools fail.
    """
    def work(tools: '_Tools') -> Grown:
        now = _map_pgs(tools, 'now', _source_with_absent_up(osdmap, source)(osdmap.epoch),
                       osdmap.pg_count)
        present = tools.path('crush')
        enlarged = _with_hosts(tools, present, new)
        rules = _rules(tools, enlarged)
        moved_or_upmapped: Dict[str, FuturePg] = {}
        others: Dict[str, FuturePg] = {}
        removed_osds = rules.weights().keys() - osdmap.osds.keys() - set(new.osds)
        places = {pool.id: _Places(tools, osdmap, pool, present, enlarged, removed_osds)
                  for pool in osdmap.pools.values()}
        for line in _lines(now):
            pgid = line.split(None, 1)[0]
            pg = _parsed(line, pgid)
            raw = places[pool_of(pgid)].later(pgid, pg.raw)
            pgs = moved_or_upmapped if osdmap.entry(pgid) or raw != pg.raw else others
            pgs[pgid] = pg._replace(raw=raw, up=(), present=pg.raw)
        without_weight = rules.with_weights(dict.fromkeys(new.osds, 0.0))
        return Grown(Future(moved_or_upmapped, rules, others=others), without_weight)

    return _with_tools(work, stopping)


Foreseen = TypeVar('Foreseen')


def _with_tools(work: Callable[['_Tools'], Foreseen],
                stopping: Stopping) -> Union[Foreseen, NoFuture]:
    """The result of `work` with the tools of Ceph; NoFuture: they failed, or their output cannot be
    read."""
    try:
        with _tools(stopping) as tools:
            return work(tools)
    except (OSError, ToolFailed) as error:
        return NoFuture(str(error))
    except (LookupError, TypeError, ValueError) as error:
        return NoFuture('cannot read the output of the tools: %r' % error)


def _source_with_absent_up(osdmap: OsdMap, source: MapSource) -> MapSource:
    """The source of maps in which OSDs that are down and in are up."""
    absent = osdmap.absent
    return (lambda epoch: with_osds_up(source(epoch), absent)) if absent else source


def _map_pgs(tools: '_Tools', name: str, encoded: bytes, pgs: int) -> Path:
    """Map all PGs of an encoded OSDMap, which is written to the file `name`, and write its CRUSH
    map to the file "crush". Returns the file with a line for each PG; `pgs`: their maximum
    number."""
    tools.path(name).write_bytes(encoded)
    return _map_pgs_of_file(tools, name, '--export-crush', pgs)


def _map_both(tools: '_Tools', now: bytes, later: bytes, pgs: int) -> Tuple[Path, Path]:
    """As `_map_pgs`, of two OSDMaps with the same CRUSH map."""
    with _map_pgs_meanwhile(tools, now, pgs) as mapped:
        later_path = _map_pgs(tools, 'later', later, pgs)
        return mapped(), later_path


def _map_pgs_meanwhile(tools: '_Tools', encoded: bytes,
                       pgs: int) -> ContextManager[Callable[[], Path]]:
    """Map all PGs of the present OSDMap while other tools run, or before them if memory is short:
    with 100,000 PGs this takes a core for four seconds. The value waits for the file with a line
    for each PG; `pgs`: their maximum number."""
    tools.path('now').write_bytes(encoded)
    argv = OSDMAPTOOL, str(tools.path('now')), '--test-map-pgs-dump-all'
    limit = DUMP_BYTES + PG_OUTPUT_BYTES * pgs
    if _free_bytes() >= 2 * TOOL_BYTES:
        return tools.meanwhile(*argv, limit=limit)
    mapped = tools.run(*argv, limit=limit)
    return contextlib.nullcontext(lambda: mapped)


def _free_bytes() -> float:
    """The memory that is left on the host, and in the container of ceph-mgr if that has a limit: a
    container that exceeds it may be ended as a whole (memory.oom.group), with ceph-mgr. Infinite:
    not known."""
    free = float('inf')
    with contextlib.suppress(OSError, ValueError, StopIteration):
        available = next(line for line in MEMINFO.read_text().splitlines()
                         if line.startswith('MemAvailable:'))
        free = float(available.split()[1]) * 1024
    # Version 2 of cgroups. "max", or no file in the root group: there is no limit.
    with contextlib.suppress(OSError, ValueError):
        limit = int((CGROUP / 'memory.max').read_text())
        free = min(free, limit - int((CGROUP / 'memory.current').read_text()))
    return free


def _map_pgs_of_file(tools: '_Tools', name: str, option: str, pgs: int) -> Path:
    """Map all PGs of the OSDMap in the file `name`; returns what `_map_pgs` does. `option`:
    "--import-crush" gives the OSDMap the CRUSH map in the file "crush" first, "--export-crush"
    writes its own one there."""
    return tools.run(OSDMAPTOOL, str(tools.path(name)), option, str(tools.path('crush')),
                     '--test-map-pgs-dump-all', limit=DUMP_BYTES + PG_OUTPUT_BYTES * pgs)


#: Adds OSDs to a host. crushtool adds one in each run; ceph-mgr, whose forks are slow, runs this
#: once per host.
_ADD_ITEMS = '''
map=$1 weight=$2 host=$3 type=$4 parent=$5
shift 5
for osd; do
    "$0" -i "$map" --add-item "$osd" "$weight" "osd.$osd" --loc host "$host" \
        --loc "$type" "$parent" -o "$map" || exit
done'''


def _with_hosts(tools: '_Tools', present: Path, new: NewHosts) -> Path:
    """The file with the CRUSH map `present` to which these hosts are added, and their OSDs to the
    trees of their device class."""
    path = tools.path('crush.hosts')
    path.write_bytes(present.read_bytes())
    for host in new.hosts:
        tools.run('/bin/sh', '-c', _ADD_ITEMS, CRUSHTOOL, str(path), repr(new.weight), host.name,
                  *host.parent, *map(str, host.osds), name=CRUSHTOOL)
    if new.device_class:
        classes, enlarged = tools.path('crush.classes'), tools.path('crush.trees')
        # One run rebuilds the trees of device classes before it sets the classes.
        tools.run(CRUSHTOOL, '-i', str(path), *(
            word for host in new.hosts
            for word in ('--set-subtree-class', host.name, new.device_class)),
            '--rebuild-class-roots', '-o', str(classes))
        tools.run(CRUSHTOOL, '-i', str(classes), '--rebuild-class-roots', '-o', str(enlarged))
        path = enlarged
    return path


#: PGs of each pool whose present places crushtool has to find before its others are believed.
CHECKED_PGS = 64
_PLACED = re.compile(r'CRUSH rule \d+ x (\d+) \[([^\]]*)\]$')


class _Places:
    """Where CRUSH places the PGs of a pool with an enlarged map, by crushtool.

    crushtool hashes the seeds of PGs as OSDMaps do for pools with hashpspool, and does not know the
    weight sets of single pools.
    """

    def __init__(self, tools: '_Tools', osdmap: OsdMap, pool: Pool, present: Path,
                 enlarged: Path, removed: AbstractSet[int]) -> None:
        """`removed`: OSDs that CRUSH still contains, and the OSDMap does not."""
        self._tools, self._osdmap, self._pool, self._removed = tools, osdmap, pool, removed
        self._pgp_num = pool.pgp_num or pool.pg_num
        self._now = self._placed(present, min(CHECKED_PGS, self._pgp_num))
        self._later = self._placed(enlarged, self._pgp_num)

    def later(self, pgid: str, raw: OsdSet) -> OsdSet:
        """Where CRUSH places a PG with the enlarged map. `raw`: where the OSDMap places it now.
        Raises ToolFailed if crushtool places it elsewhere now."""
        seed = stable_mod(seed_of(pgid), self._pgp_num, mask_of(self._pgp_num))
        if self._now.get(seed, raw) != raw:
            raise ToolFailed('crushtool places PGs of pool %s elsewhere than the OSDMap (a pool '
                             'without hashpspool, or with a weight set of its own)'
                             % self._pool.name)
        return self._later[seed]

    def _placed(self, crush: Path, pgs: int) -> Dict[int, OsdSet]:
        """Input -> the OSDs on which crushtool places it under the rule of the pool, for the inputs
        0 to `pgs` - 1."""
        pool = self._pool
        lines = self._tools.run(
            CRUSHTOOL, '-i', str(crush), '--test', '--rule', str(pool.crush_rule), '--num-rep',
            str(pool.size), '--pool-id', str(pool.id), '--min-x', '0', '--max-x', str(pgs - 1),
            *self._reweights(), '--show-mappings', limit=DUMP_BYTES + PG_OUTPUT_BYTES * pgs)
        places: Dict[int, OsdSet] = {}
        with lines.open(errors='replace') as text:
            for line in text:
                match = _PLACED.match(line.strip())
                if match is not None:
                    places[int(match.group(1))] = tuple(
                        int(osd) for osd in match.group(2).split(',') if osd)
        return places

    def _reweights(self) -> Iterator[str]:
        """Arguments of crushtool: the reweights of OSDs that are out, were removed, or have another
        one than 1, which it assumes. It multiplies by 65536 and cuts the fraction off, so all
        digits count."""
        for osd in self._osdmap.osds.values():
            if osd.reweight != 1.0:
                yield from ('--weight', str(osd.id), repr(osd.reweight))
        for number in sorted(self._removed):
            yield from ('--weight', str(number), '0')


def _outlook(tools: '_Tools', osdmap: OsdMap, source: MapSource,
             weights: Mapping[int, float], crush_map: Optional[bytes], whole: bool,
             rule: Optional[PoolRule]) -> Outlook:
    """`outlook` for a CRUSH map, a rule of a pool or weights: the first of these that is given
    counts."""
    crush_path, pgs, encoded = tools.path('crush'), osdmap.pg_count, source(osdmap.epoch)
    if crush_map is None and rule is None and not weights:
        now = later = _map_pgs(tools, 'now', encoded, pgs)
    else:
        with _map_pgs_meanwhile(tools, encoded, pgs) as mapped:
            tools.path('later').write_bytes(encoded)
            later = _map_pgs_changed(tools, osdmap, weights, crush_map, rule)
            now = mapped()
    # The exchange also moves PGs of other pools with one of the two rules, which will not move.
    changed = {pgid: pg for pgid, pg in _changed(osdmap, now, later)
               if rule is None or pool_of(pgid) == rule.pool}
    pools = {pgid.partition('.')[0] for pgid in changed} if later is not now else None
    return Future(changed, _rules(tools, crush_path), crush_map,
                  dict(_other_pgs(changed, later, pools)) if whole else {})


def _map_pgs_changed(tools: '_Tools', osdmap: OsdMap, weights: Mapping[int, float],
                     crush_map: Optional[bytes], rule: Optional[PoolRule]) -> Path:
    """Map all PGs of the OSDMap in the file "later", with the change of `_outlook`, whose CRUSH map
    is then in the file "crush"; returns what `_map_pgs` does."""
    path, crush_path = tools.path('later'), tools.path('crush')
    if crush_map is not None:
        crush_path.write_bytes(crush_map)
    elif rule is not None:
        # The pool cannot get another rule in the encoded map, so the two rules exchange their ids.
        tools.run(OSDMAPTOOL, str(path), '--export-crush', str(crush_path))
        crush_path.write_bytes(rules_exchanged(
            crush_path.read_bytes(), osdmap.pools[rule.pool].crush_rule, rule.rule))
    else:
        for argument in _adjustments(weights):
            tools.run(OSDMAPTOOL, str(path), '--adjust-crush-weight', argument, '--save')
        return _map_pgs_of_file(tools, 'later', '--export-crush', osdmap.pg_count)
    return _map_pgs_of_file(tools, 'later', '--import-crush', osdmap.pg_count)


def _outlook_of_pgs(tools: '_Tools', osdmap: OsdMap, source: MapSource,
                    numbers: PoolPgs) -> Outlook:
    """The mapping once a pool has these numbers. Future.pgs: the PGs that CRUSH then places
    elsewhere, and PGs with an upmap that will be merged, since ceph-mgr removes their upmaps before
    that. Future.others: of the other PGs only those that splits have yet to make, or that will be
    merged.

    PGs will be merged if pgp_num is below pg_num: pg_num follows it.
    """
    encoded, pgs = source(osdmap.epoch), osdmap.pg_count + numbers.pg_num
    # PGs that splits have yet to make are placed with their parents by the present pgp_num.
    present_numbers = numbers._replace(pgp_num=pg_nums(encoded, numbers.pool).pgp_num)
    now, later = _map_both(tools, with_pg_nums(encoded, present_numbers),
                           with_pg_nums(encoded, numbers), pgs)
    merging = merging_seeds(numbers.pg_num, numbers.pgp_num)
    present = dict(_pgs_of(numbers.pool, now))
    later_pgs = {pgid: pg._replace(acting=present[pgid].acting)
                 for pgid, pg in _pgs_of(numbers.pool, later)}
    affected = {pgid: pg for pgid, pg in later_pgs.items()
                if pg.raw != present[pgid].raw or seed_of(pgid) in merging and osdmap.entry(pgid)}
    lasting_pg_num = min(osdmap.pools[numbers.pool].pg_num, numbers.pgp_num)
    return Future(affected, _rules(tools, tools.path('crush')), others={
        pgid: pg for pgid, pg in later_pgs.items()
        if pgid not in affected and seed_of(pgid) >= lasting_pg_num})


def _pgs_of(pool: int, path: Path) -> Iterator[Tuple[str, FuturePg]]:
    """(PG id, PG) of the PGs of a pool in the output of osdmaptool."""
    for line in _lines(path):
        pgid = line.split(None, 1)[0]
        if pool_of(pgid) == pool:
            yield pgid, _parsed(line, pgid)


def _other_pgs(known_pgs: Mapping[str, FuturePg], later: Path,
               pools: Optional[AbstractSet[str]]) -> Iterator[Tuple[str, FuturePg]]:
    """(PG id, PG) of the PGs that are not `known_pgs`, of these pools; None: of all pools."""
    for line in _lines(later):
        pgid = line.split(None, 1)[0]
        if pgid not in known_pgs and (pools is None or pgid.partition('.')[0] in pools):
            yield pgid, _parsed(line, pgid)


def _adjustments(weights: Mapping[int, float]) -> Iterator[str]:
    """Arguments of osdmaptool for these CRUSH weights."""
    rows = ['%d:%r' % (osd, weight) for osd, weight in weights.items()]
    for begin in range(0, len(rows), WEIGHTS_AT_ONCE):
        yield ','.join(rows[begin:begin + WEIGHTS_AT_ONCE])


def compiled(crush_map: bytes, ids: int, stopping: Stopping) -> bytes:
    """The compiled form of a CRUSH map that a user gives: a compiled map, its text, or base64 of
    either.

    `ids`: number of ids of OSDs in the cluster, which limits that in the map. Users who may only
    read give maps as well, and crushtool must not take the memory of the host for them. Raises
    ToolFailed if `crush_map` is none of these, or too large.
    """
    limit = MAP_BYTES + MAP_OSD_BYTES * ids
    # Base64 is less than twice as long.
    data = _base64_decoded(crush_map) if len(crush_map) <= 2 * limit else crush_map
    if len(data) > limit:
        raise ToolFailed('the map has %.1f MiB, the limit for %d OSDs is %.1f MiB' % (
            len(data) / (1 << 20), ids, limit / (1 << 20)))
    try:
        with _tools(stopping) as tools:
            source, result = tools.path('given'), tools.path('made')
            source.write_bytes(data)
            if b'\0' not in data:  # a text
                if _LARGE_ID.search(data):
                    raise ToolFailed('IDs of buckets and OSDs must have fewer than seven digits')
                tools.run(CRUSHTOOL, '-c', str(source), '-o', str(result))
                data = result.read_bytes()
                refuse_unbounded(data, ids)
                return data
            refuse_unbounded(data, ids)
            tools.run(CRUSHTOOL, '-i', str(source), '--dump')  # fails for what is no map
            return data
    except OSError as error:
        raise ToolFailed(str(error)) from error


def _base64_decoded(data: bytes) -> bytes:
    """The data that is in base64; other data as it is."""
    # The end is stripped first: a search that may divide a run of blanks takes quadratic time, in
    # which no other thread of ceph-mgr runs.
    if not re.fullmatch(rb'[A-Za-z0-9+/\s]+={0,2}', data.rstrip()):
        return data
    try:
        return base64.b64decode(data, validate=False)
    except ValueError:
        return data  # a text of one word


def rules_of(crush_map: bytes, stopping: Stopping) -> CrushRules:
    """The rules of a compiled CRUSH map; raises ToolFailed."""
    try:
        with _tools(stopping) as tools:
            path = tools.path('crush')
            path.write_bytes(crush_map)
            return _rules(tools, path)
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ToolFailed('cannot read the CRUSH map: %s' % error) from error


def _rules(tools: '_Tools', crush_path: Path) -> CrushRules:
    return CrushRules.from_dump(json.loads(
        tools.run(CRUSHTOOL, '-i', str(crush_path), '--dump').read_bytes()))


def _lines(path: Path) -> Iterator[str]:
    """The lines of PGs, in which the tool has applied the upmaps of the map."""
    with path.open(errors='replace') as text:
        for line in text:
            if 'raw (' in line:
                yield line


def _changed(osdmap: OsdMap, now: Path, later: Path) -> Iterator[Tuple[str, FuturePg]]:
    """(PG id, PG after the change) of the PGs whose line changes, and of all PGs with an upmap,
    which the mon may drop. `now`, `later`: output of osdmaptool before and after the change."""
    for old, new in zip_longest(_lines(now), _lines(later)):
        if old is None or new is None:
            raise ValueError('not the same PGs before the change and after it')
        pgid = old.split(None, 1)[0]
        if old == new and not osdmap.entry(pgid):
            continue
        present = _parsed(old, pgid)
        yield pgid, _parsed(new, pgid)._replace(acting=present.acting, present=present.raw)


def _parsed(line: str, pgid: str) -> FuturePg:
    """A PG by its line in the output of osdmaptool. Raises ValueError for the line of another
    PG."""
    match = _PG.match(line.strip())
    if match is None or match.group(1) != pgid:
        raise ValueError('not the mapping of PG %s: %r' % (pgid, line[:200]))
    raw, up, acting = [tuple([NO_OSD if osd == 'NONE' else int(osd)
                              for osd in text.split(',') if osd])
                       for text in match.groups()[1:]]
    return FuturePg(acting, raw, up)


@contextlib.contextmanager
def _tools(stopping: Stopping) -> Iterator['_Tools']:
    with tempfile.TemporaryDirectory(prefix=TOOLS_PREFIX) as name, _locked(Path(name)):
        _remove_abandoned(Path(name))
        yield _Tools(Path(name), stopping)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock a directory; the lock ends with the process. Raises OSError if another one has it."""
    with directory.joinpath('lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _remove_abandoned(new_directory: Path) -> None:
    """Remove the directories of processes that were killed, beside a new one. They contain maps and
    mappings of all PGs, and an mgr that is killed again and again would fill the disk with
    them."""
    latest = new_directory.lstat().st_mtime - TOOL_SECONDS
    for directory in new_directory.parent.glob(TOOLS_PREFIX + '*'):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            # A process locks its directory a moment after it has made it.
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() \
                    and status.st_mtime < latest:
                with _locked(directory):
                    shutil.rmtree(directory, ignore_errors=True)


#: Runs its arguments. A lower limit that is in force already may not be raised. If the host lacks
#: memory, the kernel ends the tool and not ceph-mgr.
_LIMITED = ('ulimit -v %d 2>/dev/null; { echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; '
            'exec "$@"' % (TOOL_BYTES >> 10))
#: Status of a shell that cannot execute a program.
_NOT_RUN = (126, 127)
#: Status of a program that was killed, and of a shell whose program was killed.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class _Tools:
    """Runs tools of Ceph in one directory, with limits of time, memory and output.

    A shell sets the limit of memory: Python code between fork and exec may deadlock in a process
    with threads. A tool that exceeds it must leave no crash report, which Ceph would warn of.
    The output goes to files: on a large cluster it is tens of MiB, and decoding it at once would
    hold the GIL too long.
    """

    def __init__(self, directory: Path, stopping: Stopping) -> None:
        self._directory = directory
        self._stopping = stopping
        self._deadline = time.monotonic() + TOOL_SECONDS
        self._runs = 0
        #: Those that run.
        self._running: List[_Run] = []

    def path(self, name: str) -> Path:
        return self._directory / name

    def run(self, *argv: str, limit: int = DUMP_BYTES, name: str = '') -> Path:
        """Run a tool of Ceph. Returns the file with the output, which has at most `limit` bytes.
        `name`: the tool, if it is not the first argument."""
        with self.meanwhile(*argv, limit=limit, name=name) as result:
            return result()

    @contextlib.contextmanager
    def meanwhile(self, *argv: str, limit: int = DUMP_BYTES,
                  name: str = '') -> Iterator[Callable[[], Path]]:
        """As `run`, but only the value waits for the end of the tool. A tool that still runs at the
        end of the context is killed."""
        self._runs += 1
        run = _Run(name or argv[0], self.path('out%d' % self._runs),
                   self.path('errors%d' % self._runs), limit, argv)
        self._running.append(run)
        try:
            yield lambda: self._result(run)
        finally:
            self._running.remove(run)
            run.kill()

    def _result(self, run: '_Run') -> Path:
        """Wait for a tool. Returns the file with its output. Raises ToolFailed if it or another one
        fails, takes too long or prints too much, or if the module stops; then `meanwhile` kills
        it."""
        status: Optional[int] = None
        while status is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = run.process.wait(TOOL_LOOK_SECONDS)
            for running in self._running:
                running.check_size()
                ended = running.process.poll()
                if running is not run and ended is not None:
                    running.check_status(ended)
            if status is None and self._stopping():
                raise ToolFailed('perfguard is being stopped')
            if status is None and time.monotonic() > self._deadline:
                raise ToolFailed('Ceph\'s tools took more than %d s' % TOOL_SECONDS)
        run.check_status(status)
        return run.out


class _Run:
    """A tool that was started."""

    def __init__(self, name: str, out: Path, errors: Path, limit: int, argv: Sequence[str]) -> None:
        self._name, self.out, self._errors, self._limit = name, out, errors, limit
        with out.open('wb') as stdout, errors.open('wb') as stderr:
            try:
                self.process = subprocess.Popen(
                    ('/bin/sh', '-c', _LIMITED, 'sh', *argv), stdin=subprocess.DEVNULL,
                    stdout=stdout, stderr=stderr, start_new_session=True,
                    env={**os.environ, 'CEPH_ARGS': ' '.join((
                        os.environ.get('CEPH_ARGS', ''), '--crash_dir='))})
            except FileNotFoundError:
                raise ToolFailed('/bin/sh is not installed') from None

    def check_size(self) -> None:
        """Raise ToolFailed if it has printed too much."""
        if sum(path.stat().st_size for path in (self.out, self._errors)) > self._limit:
            raise ToolFailed('%s printed more than %d bytes' % (self._name, self._limit))

    def check_status(self, status: int) -> None:
        """Raise ToolFailed if it has failed."""
        if status in _KILLED:
            raise ToolFailed('%s was killed, perhaps because memory ran out' % self._name)
        if status < 0:
            raise ToolFailed('%s ended with signal %d (memory limit: %d MiB)' % (
                self._name, -status, TOOL_BYTES >> 20))
        if status in _NOT_RUN and not os.access(self._name, os.X_OK):
            raise ToolFailed('%s is not installed' % self._name)
        if status != 0:
            raise ToolFailed('%s failed: %s' % (
                self._name, _last_words(self._errors) or _last_words(self.out) or status))

    def kill(self) -> None:
        """Kill it if it still runs, with the programs that it runs."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # It leads a process group of its own.
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _last_words(path: Path) -> str:
    """The last line that a tool printed."""
    with path.open('rb') as text:
        text.seek(max(0, path.stat().st_size - 4096))
        lines = text.read().decode(errors='replace').strip().splitlines()
    return lines[-1] if lines else ''
