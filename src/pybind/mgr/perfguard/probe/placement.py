# SPDX-License-Identifier: LGPL-2.1-or-later
"""The OSDs that are probed, the PGs of objects, and the names of the objects of a run.

Computed as every client does it: rjenkins hash of the name, stable modulo of the pool's pg_num.
Pools hash with rjenkins (object_hash 2) unless another hash was chosen at creation.
"""
import errno
import json
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, count as count_up
from typing import (Annotated, Collection, Dict, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from ..cluster.types import mask_of, stable_mod
from ..codec import As, decode
from ..errors import Refused
from ..text import plural
from .types import NAMESPACE, PROBE_PREFIX, BadJob, Job, JobStep, Stream, Target

#: Three words of 32 bits.
State = Tuple[int, int, int]

_MASK = 0xffffffff
_START: State = (0x9e3779b9, 0x9e3779b9, 0)
_WORDS = struct.Struct('<III')
#: Maximum number of names to try: some 16 s of one core of the worker.
MAX_TRIES = 4000000


# The 32 bit hash of an object's name: Bob Jenkins, "Hash Functions", Dr. Dobb's Journal, September
# 1997, begun with 0.

def _whole_blocks(state: State, name: bytes) -> Tuple[State, bytes]:
    """The state after all blocks of twelve bytes, and the remaining bytes."""
    end = len(name) - len(name) % 12
    for words in _WORDS.iter_unpack(name[:end]):
        state = _mix(state, words)
    return state, name[end:]


def _last_block(state: State, remainder: bytes, length: int) -> int:
    """The hash of a name of `length` bytes, of which `remainder` was not mixed in yet."""
    # The lowest byte of the third word is reserved for the length.
    a, b, c = _WORDS.unpack((remainder[:8].ljust(9, b'\0') + remainder[8:]).ljust(12, b'\0'))
    return _mix(state, (a, b, c + length))[2]


def _mix(state: State, words: Tuple[int, ...]) -> State:
    a, b, c = ((have + new) & _MASK for have, new in zip(state, words))
    for shift_right, shift_left, shift_last in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = ((a - b - c) & _MASK) ^ c >> shift_right
        b = ((b - c - a) ^ a << shift_left) & _MASK
        c = ((c - a - b) & _MASK) ^ b >> shift_last
    return a, b, c


def names_by_osd(prefix: str, pg_num: int, led: Mapping[int, Sequence[int]],
                 count: int) -> Dict[int, Tuple[str, ...]]:
    """`count` names for each OSD, in the probes' namespace, of objects whose primary it is.

    `led`: OSD -> the PGs whose primary it is, as numbers, at least one. PREFIX0, PREFIX1, ... are
    tried one by one, for all OSDs in one pass. The names are spread evenly over the PGs of an OSD.
    Raises BadJob if MAX_TRIES names do not suffice: an OSD leads too few PGs.
    """
    max_per_pg = {osd: -(-count // len(pgs)) for osd, pgs in led.items()}
    leader = {pg: osd for osd, pgs in led.items() for pg in pgs}
    chosen: Dict[int, List[str]] = {osd: [] for osd in led}
    names_by_pg: 'Counter[int]' = Counter()
    missing = count * len(chosen)
    for number, pg in enumerate(pgs_of(prefix, pg_num)):
        osd = leader.get(pg)
        if osd is not None and len(chosen[osd]) < count and names_by_pg[pg] < max_per_pg[osd]:
            names_by_pg[pg] += 1
            chosen[osd].append(prefix + str(number))
            missing -= 1
        if not missing:
            break
        if number > MAX_TRIES:
            osd = min(chosen, key=lambda osd_id: len(chosen[osd_id]))
            raise BadJob(too_few(osd, len(led[osd]), count, pg_num))
    return {osd: tuple(names) for osd, names in chosen.items()}


def led_by(pool_id: int, pg_num: int, primaries: Mapping[str, int],
           osds: Collection[int]) -> Dict[int, List[int]]:
    """OSD -> the PGs of the pool whose primary it is, as numbers. Raises BadJob if one of `osds` is
    the primary of none. `primaries`: PG -> its primary.
    """
    led: Dict[int, List[int]] = {osd: [] for osd in osds}
    for pgid, osd in primaries.items():
        pool, _, pg = pgid.partition('.')
        if osd in led and int(pool) == pool_id and int(pg, 16) < pg_num:
            led[osd].append(int(pg, 16))
    for osd, pgs in led.items():
        if not pgs:
            raise BadJob('cannot place objects on osd.%d: it is primary of none of '
                         'the %d PGs of the pool' % (osd, pg_num))
    return led


def pgs_of(prefix: str, pg_num: int) -> Iterator[int]:
    """The PGs of the objects PREFIX0, PREFIX1, ..., without end. The prefix is hashed once."""
    key = (NAMESPACE + '\x1f' + prefix).encode()
    common, remainder = _whole_blocks(_START, key)
    bmask = mask_of(pg_num)
    for number in count_up():
        digits = b'%d' % number
        state, tail = _whole_blocks(common, remainder + digits)
        yield stable_mod(_last_block(state, tail, len(key) + len(digits)), pg_num, bmask)


def too_few(osd: int, pgs: int, count: int, pg_num: int) -> str:
    return 'osd.%d is primary of %d of the %d PGs of the pool: too few to place %s there' % (
        osd, pgs, pg_num, plural(count, 'object'))


# ---- Selection of OSDs: by number, host, device class, or all

class Candidate(NamedTuple):
    """An OSD that may be selected."""
    host: str
    device_class: str
    is_up: bool
    is_in: bool


ALL = 'all'


def selected_osds(candidates: Mapping[int, Candidate], osd: str = '', host: str = '',
                  device_class: str = '') -> Tuple[int, ...]:
    """The selected OSDs, in order. `osd`: "3", "osd.3", "3,osd.4", or "all" or '' for all that are
    up and in; `host` and `device_class` restrict the selection ('': they do not). `candidates`: all
    OSDs that exist.

    Raises Refused for an OSD, a host or a class that does not exist, and BadJob if a named OSD is
    down or out, or no OSD is selected.
    """
    if host and host not in {place.host for place in candidates.values()}:
        raise Refused(errno.ENOENT, 'no host %s with OSDs' % host)
    if device_class and device_class not in {place.device_class for place in candidates.values()}:
        raise Refused(errno.ENOENT, 'no OSD has device class %s' % device_class)
    named = () if osd in ('', ALL) else _osds_named(osd, candidates)
    selected = [osd_id for osd_id, place in sorted(candidates.items())
                if (osd_id in named if named else place.is_up and place.is_in)
                and host in ('', place.host) and device_class in ('', place.device_class)]
    if not selected:
        raise BadJob('no OSD %s' % ' and '.join(filter(None, (
            'among %s' % osd if named else 'is up and in', host and 'on host %s' % host,
            device_class and 'of device class %s' % device_class))))
    return tuple(selected)


def _osds_named(text: str, candidates: Mapping[int, Candidate]) -> Tuple[int, ...]:
    """The OSDs of a list such as "3,osd.4". Raises Refused, or BadJob, unless all exist and are up
    and in."""
    named = []
    for name in (part.strip() for part in text.split(',')):
        digits = name[len('osd.'):] if name.startswith('osd.') else name
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
            raise BadJob('%r is not an OSD: must be a list such as 3 or osd.3,osd.4, or all' % name)
        osd = int(digits)
        if osd not in candidates:
            raise Refused(errno.ENOENT, 'osd.%d does not exist' % osd)
        if not (candidates[osd].is_up and candidates[osd].is_in):
            raise BadJob('osd.%d is %s' % (osd, 'out' if candidates[osd].is_up else 'down'))
        named.append(osd)
    return tuple(named)


# ---- Names of a run's objects: they follow from the run, the size, and the PGs of each primary.
# Only these are sent to the worker and journalled. So the mgr never computes a name, and objects
# are removed by name: a pool is not listed for them, however many objects it holds.

#: OSD (None: any) and bytes of an object -> names of such objects.
Names = Mapping[Tuple[Optional[int], int], Tuple[str, ...]]
#: Names to try for each name to find, as a multiple of what the share of the PGs requires: the last
#: PG to get a name takes longest.
TRIES_MARGIN = 3.0
#: Time that one try takes on a slow CPU.
TRY_SECONDS = 1e-5


@dataclass(frozen=True)
class Naming:
    """What determines the names of the objects of a run."""
    run: int
    #: Size of an object -> number of such objects in the pool, or of each OSD.
    wanted: Tuple[Tuple[int, int], ...]
    pool_id: int = -1
    pg_num: int = 0
    #: OSD -> the PGs whose primary it is; empty: objects may have any primary.
    led: Tuple[Tuple[int, Tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class _PackedNaming:
    run: int
    wanted: Tuple[Tuple[int, int], ...]
    pool_id: int
    pg_num: int
    #: Compressed: without, all OSDs of a pool of 65,536 PGs take 400 kB.
    led: bytes


def _packed(naming: Naming) -> _PackedNaming:
    # The differences of neighbours, which are smaller than the numbers.
    led = [[osd, [pg - before for before, pg in zip((0, *pgs), pgs)]] for osd, pgs in naming.led]
    return _PackedNaming(naming.run, naming.wanted, naming.pool_id, naming.pg_num, zlib.compress(
        json.dumps(led, separators=(',', ':')).encode()))


def _unpacked(packed: _PackedNaming) -> Naming:
    led: Sequence[Tuple[int, Sequence[int]]] = decode(
        Tuple[Tuple[int, Tuple[int, ...]], ...], json.loads(zlib.decompress(packed.led)))
    return Naming(packed.run, packed.wanted, packed.pool_id, packed.pg_num,
                  tuple((osd, tuple(accumulate(differences))) for osd, differences in led))


#: A Naming in the journal and in requests.
JournalledNaming = Annotated[Naming, As(_PackedNaming, _packed, _unpacked)]


def run_prefix(run_id: int) -> str:
    """The prefix of the names of all objects of a run."""
    return '%s%d-' % (PROBE_PREFIX, run_id)


def objects_wanted(jobs: Iterable[Job]) -> Dict[int, int]:
    """Size of an object -> number of such objects: jobs share them, so it is that of the job with
    the most."""
    objects_by_size: Dict[int, int] = {}
    for job in jobs:
        objects_by_size[job.object_bytes] = max(objects_by_size.get(job.object_bytes, 0),
                                                job.numjobs * job.nrfiles)
    return objects_by_size


def naming_of(run_id: int, jobs: Sequence[Job], target: Target,
              primaries: Optional[Mapping[str, int]], pool_id: int, pg_num: int) -> Naming:
    """How the objects of a run are named. `primaries`: PG -> its primary; required if the target is
    OSDs. None: objects may have any primary, and `pool_id` and `pg_num` do not matter.

    Raises BadJob if an OSD is the primary of no PG, or of too few to find names for it.
    """
    objects_by_size = objects_wanted(target.jobs(jobs))
    if primaries is None:
        return Naming(run_id, tuple(objects_by_size.items()))
    led = led_by(pool_id, pg_num, primaries, target.osds)
    for osd, pgs in led.items():
        for count in objects_by_size.values():
            # Of pg_num names that are tried, about len(pgs) are on this OSD.
            if TRIES_MARGIN * count * pg_num > MAX_TRIES * len(pgs):
                raise BadJob(too_few(osd, len(pgs), count, pg_num))
    return Naming(run_id, tuple(objects_by_size.items()), pool_id, pg_num,
                  tuple((osd, tuple(pgs)) for osd, pgs in led.items()))


def names_seconds(naming: Naming) -> float:
    """Seconds that `names_of` may take on a slow CPU; 0.0 if no name must be searched."""
    fewest_pgs = min((len(pgs) for _, pgs in naming.led), default=0)
    if not fewest_pgs:
        return 0.0
    count = sum(count for _, count in naming.wanted)
    return TRY_SECONDS * TRIES_MARGIN * count * naming.pg_num / fewest_pgs


def names_of(naming: Naming) -> Names:
    """The names of all objects of a run. This takes about 4 us of one core for each name that is
    tried: not to be called in the mgr."""
    names_by_size: Dict[Tuple[Optional[int], int], Tuple[str, ...]] = {}
    led = {osd: list(pgs) for osd, pgs in naming.led}
    for size, count in naming.wanted:
        prefix = '%s%d-' % (run_prefix(naming.run), size)
        if not led:
            names_by_size[None, size] = tuple(prefix + str(number) for number in range(count))
            continue
        for osd, names in names_by_osd(prefix, naming.pg_num, led, count).items():
            names_by_size[osd, size] = names
    return names_by_size


def all_names(naming: Naming) -> Iterator[str]:
    """The names of all objects of a run, in the same order each time."""
    for names in names_of(naming).values():
        yield from names


def with_objects(steps: Sequence[JobStep], naming: Naming) -> Tuple[JobStep, ...]:
    """The steps with the names of the objects of each stream."""
    names = names_of(naming)
    return tuple(_with_objects(step, names) for step in steps)


def _with_objects(step: JobStep, names: Names) -> JobStep:
    """A step with the names of the objects of each stream. Its streams share no object; different
    steps use the same ones."""
    job = step.job
    used_by_osd: Dict[Optional[int], int] = {}
    streams = []
    for stream in step.streams:
        begin = used_by_osd.get(stream.osd, 0)
        used_by_osd[stream.osd] = begin + job.nrfiles
        objects = names[stream.osd, job.object_bytes][begin:begin + job.nrfiles]
        streams.append(Stream(stream.name, objects, stream.osd))
    return JobStep(job, tuple(streams), step.repetition, step.part)
