# SPDX-License-Identifier: LGPL-2.1-or-later
"""What one CRUSH rule requires of the OSDs of a PG, derived from ``ceph osd crush dump``."""
from dataclasses import dataclass
from typing import (AbstractSet, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple, TypedDict)

from .types import NO_OSD, OsdSet

_CHOOSELEAF = ('chooseleaf_firstn', 'chooseleaf_indep')
_CHOOSE = ('choose_firstn', 'choose_indep')
#: A step of a multi-step retry (MSR) rule (Squid and later), which descends through several steps
#: at once. Mons do not check upmaps against such steps (CrushWrapper::verify_upmap).
_CHOOSE_MSR = 'choosemsr'
#: Steps that the model of a rule for balancing covers.
_MODELLED = frozenset({'take', 'emit', 'noop', *_CHOOSE, *_CHOOSELEAF, *(
    'set_' + name for name in ('choose_tries', 'choose_local_tries', 'choose_local_fallback_tries',
                               'chooseleaf_tries', 'chooseleaf_vary_r', 'chooseleaf_stable'))})
#: Steps that ``ceph osd crush dump`` describes by their number alone (CRUSH_RULE_SET_* in crush.h);
#: only rules of edited maps have them.
_NUMBERED_STEPS = {10: 'set_choose_local_tries', 11: 'set_choose_local_fallback_tries',
                   12: 'set_chooseleaf_vary_r', 13: 'set_chooseleaf_stable'}


class DumpedStep(TypedDict, total=False):
    """A step of a rule as ``ceph osd crush dump`` describes it."""
    op: str
    #: Instead of `op`.
    opcode: int
    num: int
    type: str
    item: int


class DumpedRule(TypedDict, total=False):
    """A rule as ``ceph osd crush dump`` describes it."""
    rule_id: int
    rule_name: str
    type: int
    #: Sizes of its pools; before Quincy.
    min_size: int
    max_size: int
    steps: Sequence[DumpedStep]


@dataclass(frozen=True)
class Bucket:
    id: int
    name: str
    type_id: int
    #: (item, CRUSH weight in units of 1/65536)
    items: Tuple[Tuple[int, int], ...]


Buckets = Mapping[int, Bucket]


@dataclass(frozen=True)
class Choice:
    """A choose or chooseleaf step above the OSD level."""
    leaf: bool
    num: int
    type_name: str
    #: OSD -> bucket of that type in the rule's own trees
    bucket_of: Mapping[int, int]


class CrushPlace(NamedTuple):
    bucket: int
    #: The kind of items counted below it: "OSDs", or buckets of a type.
    what: str


@dataclass(frozen=True)
class Level:
    """A choice of a rule above the OSD level: at most `num` buckets below each bucket of the level
    above, each with as many OSDs as the `inner` choices allow.

    `retries`: a step of an MSR rule. Shards whose OSDs are out move to further buckets, so CRUSH
    itself chooses more than `num`.
    """
    type_name: str
    num: int
    inner: Tuple[int, ...]
    #: OSD -> its bucket of this level, and its bucket of the level above (at the top: the take).
    bucket_of: Mapping[int, int]
    parent_of: Mapping[int, int]
    retries: bool = False

    def surely_allows(self, osds: OsdSet, pool_size: int) -> bool:
        """Whether each bucket of this level has one OSD of a set at most, and each of the level
        above no more buckets than it may. False: the level may still allow the set, which
        `items_by_place` shows; this is faster, and nearly always enough."""
        buckets = list(map(self.bucket_of.get, osds))
        if len(set(buckets)) < len(buckets) or product(self.inner, pool_size) < 1:
            return False
        allowed = chosen_number(self.num, pool_size)
        if self.retries or len(osds) <= allowed:
            return True
        parents = [self.parent_of[osd] for osd in osds if osd in self.parent_of]
        return all(parents.count(parent) <= allowed for parent in parents)

    def items_by_place(self, osds: OsdSet) -> Mapping[CrushPlace, int]:
        """How many OSDs of a set are in each bucket of this level; and, unless the level retries,
        how many buckets of this level have them in each bucket of the level above. OSDs that are in
        none are left out."""
        members: Dict[CrushPlace, Set[int]] = {}
        for osd in osds:
            bucket, parent = self.bucket_of.get(osd), self.parent_of.get(osd)
            if bucket is not None and parent is not None:
                members.setdefault(CrushPlace(bucket, 'OSDs'), set()).add(osd)
                if not self.retries:
                    members.setdefault(CrushPlace(parent, self._children), set()).add(bucket)
        return {place: len(below) for place, below in members.items()}

    def room(self, place: CrushPlace, pool_size: int) -> int:
        """The number of items that the rule allows below one of the buckets of `items_by_place`."""
        nums = (self.num,) if place.what == self._children else self.inner
        return product(nums, pool_size)

    @property
    def _children(self) -> str:
        return 'buckets of type ' + self.type_name


@dataclass(frozen=True)
class Emit:
    """An emit step: the OSDs below the take, and the numbers of its choose steps."""
    taken: str
    #: None: the take is an OSD, which the mon does not check.
    osds: Optional[FrozenSet[int]]
    #: Those that the mon considers, one for each type.
    nums: Tuple[int, ...]
    #: The choices above the OSD level between the take and this step.
    levels: Tuple[Level, ...] = ()
    #: Those of all choose steps, with which CRUSH fills the positions of this step.
    all_nums: Tuple[int, ...] = ()

    def fewest_chosen(self, osds: AbstractSet[int], pool_size: int) -> int:
        """The least number of these OSDs that the step finds for a PG."""
        if self.osds is None:  # the take is an OSD
            return 1
        below = self.osds & osds
        if self.levels:
            return _fewest_chosen(self.levels, below, pool_size)
        return min(len(below), product(self.nums, pool_size))


@dataclass(frozen=True)
class CrushRule:
    name: str
    choices: Tuple[Choice, ...]
    emits: Tuple[Emit, ...]
    #: OSD -> CRUSH weight, summed over the takes of the rule.
    weights: Mapping[int, int]
    #: The choices above the OSD level, including those of MSR rules.
    levels: Tuple[Level, ...]
    #: `Spread` describes all steps.
    modelled: bool
    #: The mons are known to keep upmaps under it (CrushRules.proven_rules).
    is_proven: bool = False

    def allows_upmaps(self, pool_size: int) -> bool:
        """Whether the mons keep upmaps of PGs where CRUSH places them. They compare the number of a
        choose step with the buckets of that type of all OSDs of a PG, also below several buckets or
        takes. Of a chooseleaf step, they only require at most one OSD in a bucket."""
        return self.is_proven or all(
            choice.leaf or (self._chosen_buckets(choice.type_name, pool_size)
                            <= chosen_number(choice.num, pool_size)) for choice in self.choices)

    def _chosen_buckets(self, type_name: str, pool_size: int) -> int:
        """How many buckets of a type CRUSH chooses for a PG, below all takes together."""
        return sum(product(emit.all_nums[:number + 1], pool_size) for emit in self.emits
                   for number, level in enumerate(emit.levels) if level.type_name == type_name)


class Group(NamedTuple):
    """A choice of buckets that have several shards of a PG each."""
    #: Number of shards of a PG in each bucket, or the maximum.
    shards: int
    #: OSD -> bucket.
    bucket_of: Mapping[int, int]


class Take(NamedTuple):
    """How one take of a rule places its shards of a PG."""
    #: Number of shards.
    shards: int
    osds: AbstractSet[int]
    #: From the top.
    groups: Tuple[Group, ...]

    @property
    def even(self) -> bool:
        """Whether all buckets of a choice have as many shards of a PG: only all of them together
        can move to another bucket. It is not so with three copies, two in each of two racks."""
        sizes = [self.shards, *(group.shards for group in self.groups)]
        return not any(outer % inner for outer, inner in zip(sizes, sizes[1:]))


@dataclass(frozen=True)
class Spread:
    """How a rule spreads the shards of a PG."""
    #: OSD -> bucket with at most one shard of a PG; the OSD itself if the rule chooses OSDs.
    domain: Mapping[int, int]
    #: One after the other, they fill the positions of a set.
    takes: Tuple[Take, ...] = ()


def steps_of(dumped: DumpedRule) -> List[DumpedStep]:
    """The steps of a rule, each with its name."""
    steps: List[DumpedStep] = []
    for step in dumped.get('steps', ()):
        if 'op' not in step:
            step = step.copy()
            step['op'] = _NUMBERED_STEPS.get(step['opcode'], 'opcode %d' % step['opcode'])
        steps.append(step)
    return steps


def compiled(dumped: DumpedRule, buckets: Buckets, type_ids: Mapping[str, int]) -> CrushRule:
    """What the steps of a rule of ``ceph osd crush dump`` require of the OSDs of a PG."""
    steps = steps_of(dumped)
    takes = [step['item'] for step in steps if step['op'] == 'take']
    choices: List[Choice] = []
    emits: List[Emit] = []
    levels: List[Level] = []
    root: Optional[int] = None
    num_by_type: Dict[str, int] = {}
    choose_steps: List[DumpedStep] = []
    for step in steps:
        if step['op'] in (*_CHOOSELEAF, *_CHOOSE, _CHOOSE_MSR):
            choose_steps.append(step)
        if step['op'] == 'take':
            root, choose_steps = step['item'], []
        elif step['op'] in _CHOOSELEAF + _CHOOSE:
            # Of two steps of the same type, the mon considers the first.
            num_by_type.setdefault(step['type'], step['num'])
            if type_ids[step['type']] != 0:  # not the type of OSDs
                choices.append(Choice(step['op'] in _CHOOSELEAF, step['num'], step['type'],
                                      _bucket_of(buckets, takes, type_ids[step['type']])))
        elif step['op'] == 'emit' and root is not None:
            emits.append(_emit(buckets, root, tuple(num_by_type.values()),
                               _levels(buckets, type_ids, root, choose_steps),
                               tuple(step['num'] for step in choose_steps)))
            levels += emits[-1].levels
            root, num_by_type = None, {}
    return CrushRule(dumped['rule_name'], tuple(choices), tuple(emits), _weights(buckets, takes),
                     tuple(levels), modelled=all(step['op'] in _MODELLED for step in steps)
                     and all(emit.osds is not None for emit in emits))


def _levels(buckets: Buckets, type_ids: Mapping[str, int], root: int,
            steps: Sequence[DumpedStep]) -> List[Level]:
    """The choices above the OSD level between a take (`root`) and its emit, from the top. `steps`:
    the choose steps there."""
    if root >= 0:  # the take is an OSD
        return []
    levels: List[Level] = []
    above: Mapping[int, int] = dict.fromkeys(weights_below(buckets, root), root)
    for number, step in enumerate(steps):
        type_id = type_ids[step['type']]
        if type_id == 0:  # the step chooses OSDs
            break
        bucket_of = _bucket_of(buckets, [root], type_id)
        inner = () if step['op'] in _CHOOSELEAF else tuple(s['num'] for s in steps[number + 1:])
        levels.append(Level(step['type'], step['num'], inner, bucket_of, above,
                            retries=step['op'] == _CHOOSE_MSR))
        above = bucket_of
    return levels


def _emit(buckets: Buckets, root: int, nums: Tuple[int, ...], levels: Sequence[Level],
          all_nums: Tuple[int, ...]) -> Emit:
    if root >= 0:
        return Emit('osd.%d' % root, None, nums, all_nums=all_nums)
    return Emit(buckets[root].name, frozenset(weights_below(buckets, root)), nums, tuple(levels),
                all_nums)


def _weights(buckets: Buckets, takes: Sequence[int]) -> Mapping[int, int]:
    """OSD -> CRUSH weight in units of 1/65536, summed over the takes of a rule; 1.0 for a take that
    is an OSD."""
    weights: Dict[int, int] = {}
    for take in takes:
        below = {take: 0x10000} if take >= 0 else weights_below(buckets, take)
        for osd, weight in below.items():
            weights[osd] = weights.get(osd, 0) + weight
    return weights


def weights_below(buckets: Buckets, root: int) -> Mapping[int, int]:
    """OSD -> CRUSH weight in units of 1/65536, of all OSDs below a bucket at any depth."""
    weights: Dict[int, int] = {}
    todo, visited = [root], {root}  # an edited map may have a cycle
    while todo:
        for item, weight in buckets[todo.pop()].items:
            if item >= 0:
                weights[item] = weight
            elif item in buckets and item not in visited:
                visited.add(item)
                todo.append(item)
    return weights


def _bucket_of(buckets: Buckets, takes: Sequence[int], type_id: int) -> Mapping[int, int]:
    """OSD -> its bucket of a type below the takes (CrushWrapper::get_parent_of_type)."""
    bucket_by_osd: Dict[int, int] = {}
    for root in sorted(set(takes)):
        for bucket in _buckets_of_type(buckets, root, type_id):
            for osd in weights_below(buckets, bucket):
                bucket_by_osd.setdefault(osd, bucket)
    return bucket_by_osd


def _buckets_of_type(buckets: Buckets, root: int, type_id: int) -> Set[int]:
    """The buckets of a type in the tree of `root`, with `root` itself, as the mon finds them: it
    does not look below buckets whose type has a lower id (CrushWrapper::get_children_of_type)."""
    matching: Set[int] = set()
    visited: Set[int] = set()
    todo = [root]
    while todo:
        bucket = buckets.get(todo.pop())
        if bucket is None or bucket.type_id < type_id or bucket.id in visited:
            continue
        visited.add(bucket.id)
        if bucket.type_id == type_id:
            matching.add(bucket.id)
        else:
            todo.extend(item for item, _ in bucket.items)
    return matching


def spread_of(rule: CrushRule, pool_size: int) -> Spread:
    """How a rule spreads the shards of a PG of a pool of this size; without takes if it places
    nothing."""
    domain = {osd: osd for osd in sorted(rule.weights)}
    takes: List[Take] = []
    remaining = pool_size
    for emit in rule.emits:
        shards = min(remaining, product(emit.all_nums, pool_size))
        remaining -= shards
        all_groups = [Group(min(shards, product(level.inner, pool_size)), level.bucket_of)
                      for level in emit.levels]
        groups = tuple(group for group in all_groups if group.shards > 1)
        # The first level with one shard in a bucket: choices below it do not matter.
        single = next((group for group in all_groups if group.shards <= 1), None)
        if single is not None:
            domain.update(single.bucket_of)
        takes.append(Take(shards, frozenset(
            osd for osd in emit.osds or () if all(osd in group.bucket_of for group in groups)),
            groups))
    return Spread(domain, tuple(takes))


def chosen_number(num: int, pool_size: int) -> int:
    """The number of a choose step, which is relative to the size of the pool if not positive."""
    return num if num > 0 else num + pool_size


def product(nums: Iterable[int], pool_size: int) -> int:
    """How many items choose steps with these numbers choose in all."""
    result = 1
    for num in nums:
        result *= max(0, chosen_number(num, pool_size))
    return result


def _fewest_chosen(levels: Sequence[Level], osds: Iterable[int], pool_size: int) -> int:
    """The least number of these OSDs that the rule finds for a PG, by its levels from the top: it
    may choose the buckets with the fewest."""
    level, *below = levels
    osds_by_bucket: Dict[int, Set[int]] = {}
    for osd in osds:
        if osd in level.bucket_of:
            osds_by_bucket.setdefault(level.bucket_of[osd], set()).add(osd)
    found_below = (_fewest_chosen(below, members, pool_size) if below else len(members)
                   for members in osds_by_bucket.values())
    # A bucket in which CRUSH finds nothing is passed over.
    numbers = sorted(min(number, product(level.inner, pool_size))
                     for number in found_below if number)
    # A step of an MSR rule goes on to further buckets.
    return sum(numbers if level.retries else numbers[:max(0, chosen_number(level.num, pool_size))])


def weight_reason(rule: CrushRule, osd: int) -> str:
    """Why a rule must not place a shard on an OSD."""
    if osd == NO_OSD:
        return 'the set has a hole'
    if osd not in rule.weights:
        return 'osd.%d is not in the CRUSH tree of rule %s' % (osd, rule.name)
    if not rule.weights[osd]:
        return 'osd.%d has CRUSH weight 0' % osd
    return 'osd.%d is out' % osd


def emit_violation(rule: CrushRule, pool_size: int, osds: OsdSet) -> Optional[str]:
    """How a set of OSDs violates the emit steps of a rule; None: not at all. Each emit step covers
    some positions, whose OSDs must be below its take."""
    if all([emit.osds is None or emit.osds.issuperset(osds) for emit in rule.emits]):
        return None
    position = 0
    for emit in rule.emits:
        if emit.osds is None:  # the mon does not check, nor count, takes that are OSDs
            continue
        count = product(emit.nums, pool_size)
        for osd in osds[position:position + count]:
            if osd not in emit.osds:
                return 'osd.%d is not below %s, which rule %s requires at its position' % (
                    osd, emit.taken, rule.name)
        position = min(position + count, len(osds))
    return None


def emitted(rule: CrushRule, pool_size: int, osds: OsdSet) -> Iterator[Tuple[Emit, OsdSet]]:
    """Each emit step, and the OSDs at its positions: its choices apply to no others, although these
    may also be below its take."""
    if len(rule.emits) == 1:
        yield rule.emits[0], osds
        return
    position = 0
    for emit in rule.emits:
        end = position + product(emit.all_nums, pool_size)
        yield emit, osds[position:end]
        position = end


def emit_order(rule: CrushRule, pool_size: int, osds: OsdSet, like: OsdSet) -> OsdSet:
    """The set in an order in which `emit_violation` finds nothing; unchanged if there is none.
    OSDs keep their position in `like` where that allows it.

    An OSD may be below several takes, so this matches OSDs and positions by augmenting paths
    (Kuhn's algorithm); sets are small.
    """
    takes: List[AbstractSet[int]] = []
    for emit in rule.emits:
        if emit.osds is None:
            return osds
        takes += [emit.osds] * product(emit.nums, pool_size)
    if len(takes) < len(osds):
        return osds
    placed: Dict[int, int] = {}
    for osd in sorted(osds, key=lambda osd: osd not in like):
        if not _give_position(osd, takes[:len(osds)], like, placed, set()):
            return osds
    return tuple(placed[position] for position in range(len(osds)))


def _give_position(osd: int, takes: Sequence[AbstractSet[int]], like: OsdSet,
                   placed: Dict[int, int], tried: Set[int]) -> bool:
    """Give an OSD a position, for which others in `placed` (position -> OSD) may change theirs if
    none is free. Returns whether that was possible. `takes`: the OSDs allowed at each position;
    `tried`: positions that this search has tried already."""
    allowed = [position for position, take in enumerate(takes) if osd in take]
    for position in sorted(allowed, key=lambda position: (
            like[position:position + 1] != (osd,), position in placed)):
        if position in tried:
            continue
        tried.add(position)
        if position not in placed or _give_position(placed[position], takes, like, placed, tried):
            placed[position] = osd
            return True
    return False
