# SPDX-License-Identifier: LGPL-2.1-or-later
"""The trees and rules of a CRUSH map, and the sets of OSDs that the mons accept under a rule.

Models CrushWrapper::verify_upmap and the weight check of OSDMap::check_pg_upmaps on the output
of ``ceph osd crush dump``. It does not place PGs.
"""
import json
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import (AbstractSet, Any, Container, Dict, FrozenSet, Iterable, List, Mapping, Optional,
                    Sequence, Set, Tuple, Union)

from .crush_rule import (Bucket, Buckets, Choice, CrushRule, DumpedRule, Level, Spread, compiled,
                         emit_order, emit_violation, emitted, product, spread_of, steps_of,
                         chosen_number, weight_reason, weights_below)
from .types import OsdSet

#: A drain lowers the weight of an OSD to 0.0001: upmaps onto an OSD of weight 0 do not last.
LIGHT = 0.0002
#: Types of rules (pg_pool_t::TYPE_*, and the MSR rules of Squid and later).
_REPLICATED_RULES = frozenset({1, 4})
_ERASURE_RULES = frozenset({3, 5})
#: Bucket algorithms in which the draw of an item does not depend on its position.
_UNORDERED = frozenset({'straw', 'straw2'})
#: What a dump lists among the tunables, but derives from them and from the rest of the map.
_DERIVED = frozenset({
    'profile', 'optimal_tunables', 'legacy_tunables', 'minimum_required_version',
    'require_feature_tunables', 'require_feature_tunables2', 'require_feature_tunables3',
    'require_feature_tunables5', 'has_v2_rules', 'has_v3_rules', 'has_v4_buckets', 'has_v5_rules',
    'has_msr_rules'})
#: Tunables that mgrs before Squid do not list, with their defaults.
_MSR_TUNABLES = {'msr_descents': 100, 'msr_collision_tries': 100}


@dataclass
class CrushRules:
    """The trees and rules of a CRUSH map, including the shadow trees of device classes."""
    _buckets: Buckets
    _type_ids: Mapping[str, int]
    _dumped_rules: Mapping[int, DumpedRule]
    #: OSD -> device class, if it has one.
    _classes: Mapping[int, str] = field(default_factory=dict)
    #: Checksum of tunables and weight sets.
    _other_parameters: int = 0
    #: Checksum of the tunables alone: weight sets change with the weights of OSDs.
    tunables: int = 0
    #: Checksum of what else places PGs: ids, names and algorithms of all buckets, and the order of
    #: the items of those for whose algorithm it counts.
    _hashing: int = 0
    #: CRUSH places PGs by weight sets, of all pools or of some, instead of weights.
    weight_sets: bool = False
    #: Checksums of the steps of rules under which the mons keep upmaps, against expectation.
    proven_rules: FrozenSet[int] = frozenset()
    #: OSD or bucket -> its parent in the trees without device class.
    _parents: Mapping[int, int] = field(init=False)
    _compiled: Dict[int, CrushRule] = field(init=False, default_factory=dict)
    _checksums: Dict[int, int] = field(init=False, default_factory=dict)
    #: By type: OSD -> name of its bucket. Turns ask for thousands of them.
    _domains: Dict[str, Dict[int, Optional[str]]] = field(
        init=False, default_factory=dict, compare=False)
    #: By `proven_rules`: campaigns ask for the same ones in each turn.
    _by_proven_rules: Dict[FrozenSet[int], 'CrushRules'] = field(
        init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self._parents = {item: bucket.id for bucket in self._buckets.values()
                         if '~' not in bucket.name for item, _ in bucket.items}

    @classmethod
    def from_dump(cls, crush_dump: Mapping[str, Any]) -> 'CrushRules':
        """The trees and rules in the output of ``ceph osd crush dump``; raises KeyError or
        TypeError if it is something else."""
        buckets = {b['id']: Bucket(b['id'], b['name'], b['type_id'],
                                   tuple((i['id'], i['weight']) for i in b['items']))
                   for b in crush_dump['buckets']}
        # Edited maps may have rules without a name.
        rules: Dict[int, Any] = {r['rule_id']: {'rule_name': str(r['rule_id']), **r}
                                 for r in crush_dump['rules']}
        tunables = {**_MSR_TUNABLES, **{
            name: value for name, value in (crush_dump.get('tunables') or {}).items()
            if name not in _DERIVED}}
        weight_sets = crush_dump.get('choose_args')
        hashed = sorted([b['id'], b['name'], str(b.get('alg')), str(b.get('hash')),
                         *([] if b.get('alg') in _UNORDERED else [i['id'] for i in b['items']])]
                        for b in crush_dump['buckets'])
        return cls(buckets, {t['name']: t['type_id'] for t in crush_dump['types']}, rules,
                   {d['id']: d['class'] for d in crush_dump.get('devices', []) if d.get('class')},
                   _other_parameters=_checksum([tunables, weight_sets]),
                   tunables=_checksum(tunables), _hashing=_checksum(hashed),
                   weight_sets=any(row.get('weight_set') for rows in (weight_sets or {}).values()
                                   for row in rows))

    def violation(self, rule_id: int, pool_size: int, osds: OsdSet,
                  out: Container[int] = ()) -> Optional[str]:
        """Why the mon would cancel an upmap entry that leads to ``osds``; None if it would not.

        ``osds``: in the order of the rule (`in_order`); ``out``: OSDs with reweight 0. The mon does
        not know the choose steps of MSR rules, so for these only the OSDs' place in the tree and
        their weight are checked; see `crowding`.
        """
        rule = self._rule(rule_id)
        if rule is None:
            return 'CRUSH rule %d does not exist' % rule_id
        for osd in osds:
            if not rule.weights.get(osd) or osd in out:
                return weight_reason(rule, osd)
        for choice in rule.choices:
            # Mons that keep upmaps under such a rule do not count all its takes against each step:
            # `crowding` below checks each step alone.
            if rule.is_proven and not choice.leaf:
                continue
            reason = self._choice_violation(choice, pool_size, osds)
            if reason:
                return reason
        return emit_violation(rule, pool_size, osds) \
            or (self.crowding(rule_id, pool_size, osds) if rule.is_proven else None)

    def in_order(self, rule_id: int, pool_size: int, osds: OsdSet, like: OsdSet = ()) -> OsdSet:
        """A set in an order that a rule with several emit steps allows: for each of them OSDs below
        its take. OSDs that are also in `like` have the same position as there, if possible.

        Unchanged under other rules, or if there is no such order.
        """
        rule = self._rule(rule_id)
        if rule is None or len(rule.emits) < 2:
            return osds
        return emit_order(rule, pool_size, osds, like)

    def crowding(self, rule_id: int, pool_size: int, osds: OsdSet) -> Optional[str]:
        """How a set, in the order of the rule, has more OSDs in one bucket than it allows, or None.

        One failure would then affect more shards than the rule allows. Mons do not check this: of
        steps that choose several OSDs in a bucket they check only the buckets, and they check no
        step of MSR rules.
        """
        rule = self._rule(rule_id)
        if rule is None:
            return None
        for emit, part in emitted(rule, pool_size, osds):
            for level in emit.levels:
                if level.surely_allows(part, pool_size):
                    continue
                for place, count in level.items_by_place(part).items():
                    room = level.room(place, pool_size)
                    if count > room:
                        return '%d %s are in %s (rule %s allows %d)' % (
                            count, place.what, self._name(place.bucket), rule.name, room)
        return None

    def balances(self, rule_id: int, pool_size: int) -> bool:
        """Whether `spread` describes the rule completely, and the mons keep upmaps under it."""
        rule = self._rule(rule_id)
        return rule is not None and rule.modelled and rule.allows_upmaps(pool_size)

    def keeps_upmaps(self, rule_id: int, pool_size: int) -> bool:
        """Whether the mons keep upmaps under the rule. They cancel all under hybrid rules with a
        choose step for each device class, unless the rule is one of `proven_rules`."""
        rule = self._rule(rule_id)
        return rule is None or rule.allows_upmaps(pool_size)

    def with_upmaps_kept_under(self, rules: FrozenSet[int]) -> 'CrushRules':
        """The same map where the mons are known to keep upmaps under these rules (checksums of
        their steps), as pins have shown (campaign.Pinning.trials).

        Today's mons count the buckets of all takes against each choose step, and so cancel every
        upmap under rules of several takes or levels. Mons that keep them compare a step with its
        own buckets. Cached, as it is asked for in each turn.
        """
        if rules == self.proven_rules:
            return self
        if rules not in self._by_proven_rules:
            self._by_proven_rules[rules] = replace(self, proven_rules=rules)
        return self._by_proven_rules[rules]

    def checksum(self, rule_id: int) -> int:
        """A checksum of the steps of a rule."""
        if rule_id not in self._checksums:
            self._checksums[rule_id] = _checksum(steps_of(self._dumped_rules.get(rule_id, {})))
        return self._checksums[rule_id]

    def domains_needed(self, rule_id: int, pool_size: int) -> int:
        """Number of buckets of the failure domain of a rule that a PG needs; as many as it has
        shards if these are OSDs, or there is no such rule."""
        rule = self._rule(rule_id)
        if rule is None or not rule.levels:
            return pool_size
        return _buckets_for(pool_size, rule.levels[-1])

    def fewest_chosen(self, rule_id: int, pool_size: int, osds: AbstractSet[int]) -> int:
        """The least number of OSDs that the rule finds for a PG if it may only use these: of more
        buckets than it chooses, it may choose those with the fewest OSDs. 0: no such rule."""
        rule = self._rule(rule_id)
        return 0 if rule is None else min(
            pool_size, sum(emit.fewest_chosen(osds, pool_size) for emit in rule.emits))

    def domain_of(self, osd: int, type_name: str) -> Optional[str]:
        """Name of the bucket of that type above an OSD, or None."""
        domains = self._domains.setdefault(type_name, {})
        if osd not in domains:
            domains[osd] = self._above(osd, type_name)
        return domains[osd]

    def domains_of(self, osds: Iterable[int],
                   type_name: str) -> AbstractSet[Union[int, str, None]]:
        """The names of the buckets of a type above these OSDs; of type "osd": the OSDs."""
        return {osd if type_name == 'osd' else self.domain_of(osd, type_name) for osd in osds}

    def _above(self, osd: int, type_name: str) -> Optional[str]:
        type_id = self._type_ids.get(type_name)
        return next((self._buckets[item].name for item in self._ancestors(osd)
                     if self._buckets[item].type_id == type_id), None)

    def _ancestors(self, item: int) -> List[int]:
        """The buckets above an item, from the lowest. An edited map may have a cycle."""
        ancestors: Dict[int, None] = {}
        while item in self._parents and self._parents[item] not in ancestors:
            item = self._parents[item]
            ancestors[item] = None
        return list(ancestors)

    def host_of(self, osd: int) -> Optional[str]:
        """Name of the host bucket above an OSD, or None."""
        return self.domain_of(osd, 'host')

    def location_of(self, osd: int) -> Tuple[Tuple[str, str], ...]:
        """Type and name of each bucket above an OSD, from the lowest."""
        return tuple((self._type_name(self._buckets[item]), self._buckets[item].name)
                     for item in self._ancestors(osd))

    def root_of(self, osd: int) -> str:
        """Name of the first root above an OSD, else of the topmost bucket; '' if it is not in
        CRUSH. A root that is linked under another one remains the root of its OSDs."""
        return self.domain_of(osd, 'root') or (self._top(osd) if osd in self._parents else '')

    def topmost_buckets(self, rule_id: int) -> FrozenSet[str]:
        """Names of the topmost buckets above those that a rule takes, or of these themselves."""
        steps = steps_of(self._dumped_rules.get(rule_id, {}))
        # "default~ssd" is the shadow tree of a device class.
        takes = {self._name(step['item']).partition('~')[0]
                 for step in steps if step['op'] == 'take'}
        return frozenset(self._top(bucket.id) for bucket in self._buckets.values()
                         if bucket.name in takes)

    def _top(self, item: int) -> str:
        return self._name([item, *self._ancestors(item)][-1])

    def class_of(self, osd: int) -> str:
        """Device class of an OSD; '' if it has none."""
        return self._classes.get(osd, '')

    def weight_of(self, rule_id: int, osd: int) -> float:
        """CRUSH weight of an OSD in the trees of a rule; 0.0 if it is not in them."""
        rule = self._rule(rule_id)
        return 0.0 if rule is None else rule.weights.get(osd, 0) / 0x10000

    def osds_of_rule(self, rule_id: int) -> int:
        """Number of OSDs in the trees of a rule, including those of weight 0."""
        rule = self._rule(rule_id)
        return 0 if rule is None else len(rule.weights)

    def osds_below(self, name: str) -> Optional[FrozenSet[int]]:
        """The OSDs below a bucket; None: no such bucket."""
        bucket = self._bucket_named(name)
        return None if bucket is None else frozenset(weights_below(self._buckets, bucket.id))

    def type_of(self, name: str) -> Optional[str]:
        """Type of a bucket; None: no such bucket."""
        bucket = self._bucket_named(name)
        return None if bucket is None else self._type_name(bucket)

    def _bucket_named(self, name: str) -> Optional[Bucket]:
        """None: there is none, or it is one of a device class."""
        return next((bucket for bucket in self._buckets.values()
                     if bucket.name == name and '~' not in name), None)

    def parents(self, type_name: str) -> Mapping[str, Tuple[str, str]]:
        """Name of each bucket of that type that is below another one -> type and name of the
        latter."""
        type_id = self._type_ids.get(type_name)
        above = {bucket.name: self._buckets[self._parents[bucket.id]]
                 for bucket in self._buckets.values()
                 if bucket.type_id == type_id and '~' not in bucket.name
                 and bucket.id in self._parents}
        return {name: (self._type_name(parent), parent.name) for name, parent in above.items()}

    def _type_name(self, bucket: Bucket) -> str:
        return next((name for name, number in self._type_ids.items()
                     if number == bucket.type_id), '')

    def osds_by(self, type_name: str) -> Mapping[str, FrozenSet[int]]:
        """Name of each bucket of that type -> the OSDs below it."""
        type_id = self._type_ids.get(type_name)
        return {bucket.name: frozenset(weights_below(self._buckets, bucket.id))
                for bucket in self._buckets.values()
                if bucket.type_id == type_id and '~' not in bucket.name}

    def whole_subtrees(self, type_name: str, osds: AbstractSet[int]) -> Sequence[Tuple[str, str]]:
        """Type and name of the buckets of that type, or of one with a larger id, all of whose OSDs
        (also those of weight 0) are among these, as the mons judge by
        mon_osd_down_out_subtree_limit; the smallest types first. Buckets without OSDs are left
        out. []: also if the map has no such type."""
        smallest_type_id = self._type_ids.get(type_name)
        if smallest_type_id is None:
            return []
        subtrees: List[Tuple[str, str]] = []
        for bucket in sorted(self._buckets.values(), key=lambda row: (row.type_id, row.name)):
            if bucket.type_id >= smallest_type_id and '~' not in bucket.name:
                osds_below = weights_below(self._buckets, bucket.id).keys()
                if osds_below and osds_below <= osds:
                    subtrees.append((self._type_name(bucket), bucket.name))
        return subtrees

    def weights(self) -> Mapping[int, float]:
        """OSD -> CRUSH weight, of all OSDs in CRUSH; the highest one of an OSD in several trees."""
        return self._weights

    @cached_property
    def _weights(self) -> Mapping[int, float]:
        return {osd: max(weights.values()) / 0x10000
                for osd, weights in self._weights_by_bucket().items()}

    def with_weights(self, weights: Mapping[int, float]) -> 'CrushRules':
        """These rules with other CRUSH weights of OSDs; weights of buckets are not adjusted."""
        units = {osd: round(weight * 0x10000) for osd, weight in weights.items()}
        return replace(self, _buckets={
            number: replace(bucket, items=tuple(
                (item, units.get(item, weight)) for item, weight in bucket.items))
            for number, bucket in self._buckets.items()})

    def _weights_by_bucket(self) -> Mapping[int, Mapping[int, int]]:
        """OSD -> each bucket that contains it -> its weight there, in units of 1/65536: in several
        trees, it may have several weights."""
        by_bucket: Dict[int, Dict[int, int]] = {}
        for bucket in self._buckets.values():
            for item, weight in bucket.items if '~' not in bucket.name else ():
                if item >= 0:
                    by_bucket.setdefault(item, {})[bucket.id] = weight
        return by_bucket

    @cached_property
    def uneven(self) -> Mapping[int, Mapping[str, float]]:
        """OSDs whose weights differ between trees -> location ("host=a") -> weight. Most commands
        give an OSD a weight in all trees."""
        return {osd: {'%s=%s' % (self._type_name(self._buckets[bucket]),
                                 self._buckets[bucket].name): weight / 0x10000
                      for bucket, weight in weights.items()}
                for osd, weights in self._weights_by_bucket().items()
                if len(set(weights.values())) > 1}

    @cached_property
    def light_osds(self) -> FrozenSet[int]:
        """OSDs that get no PGs: new ones that wait for their weight, and drained ones."""
        return frozenset(osd for osd, weight in self.weights().items() if weight < LIGHT)

    def fingerprint(self) -> int:
        """A checksum of the trees, with all weights, and of the steps of the rules, whatever their
        order in a dump. `identity` adds device classes and what else places PGs."""
        trees = sorted((bucket.id, bucket.name, bucket.type_id, sorted(bucket.items))
                       for bucket in self._buckets.values() if '~' not in bucket.name)
        rules = sorted((rule_id, json.dumps(rule['steps'], sort_keys=True))
                       for rule_id, rule in self._dumped_rules.items())
        return _checksum([trees, rules])

    @cached_property
    def identity(self) -> int:
        """A checksum of all that places PGs. The map version is not such a checksum: the mons give
        the same map a new version when an OSD starts and names its device class."""
        return _checksum([self.fingerprint(), sorted(self._classes.items()), self._other_parameters,
                          self._hashing])

    def weights_towards(self, other: 'CrushRules') -> Optional[Dict[int, float]]:
        """OSD -> its weight in `other`, of the OSDs whose weight differs: what turns this map into
        the other one. {}: the maps are the same.

        None: the maps differ in other ways than weights of OSDs, or an OSD whose weight differs has
        several weights in `other`.
        """
        if self._shape() != other._shape():
            return None
        mine, theirs = self._weights_by_bucket(), other._weights_by_bucket()
        changed = {osd for osd, weights in theirs.items() if weights != mine[osd]}
        if changed & other.uneven.keys():
            return None
        weights = other.weights()
        return {osd: weights[osd] for osd in changed}

    def _shape(self) -> Tuple[object, ...]:
        """All that places PGs, except the weights of OSDs."""
        return ({bucket.id: (bucket.name, bucket.type_id, tuple(item for item, _ in bucket.items))
                 for bucket in self._buckets.values()},
                {rule: described['steps'] for rule, described in self._dumped_rules.items()},
                dict(self._classes), self._other_parameters, self._hashing)

    @cached_property
    def digest(self) -> Mapping[str, int]:
        """"osd.3", "bucket rack1" or "rule ssd" -> a checksum: of an OSD, its weights, places and
        device class; of a bucket, its type and place; of a rule, its id and steps.

        Names with different checksums have changed between two maps. Weights of buckets are sums
        of the weights below them, so they do not count. Plans and campaigns store these checksums:
        if they were computed otherwise, CRUSH would seem to have changed. Facts are in the order of
        the buckets in the dump, which is by id.
        """
        facts_by_name: Dict[str, List[object]] = {}
        for bucket in self._buckets.values():
            if '~' not in bucket.name:
                facts_by_name.setdefault('bucket ' + bucket.name, []).append(bucket.type_id)
                for item, weight in bucket.items:
                    name = 'osd.%d' % item if item >= 0 else 'bucket ' + self._name(item)
                    facts_by_name.setdefault(name, []).append(
                        [bucket.name, weight if item >= 0 else 0, self.class_of(item)])
        for rule in self._dumped_rules.values():
            facts_by_name['rule ' + str(rule['rule_name'])] = [rule['rule_id'], rule['steps']]
        return {name: _checksum(facts) for name, facts in facts_by_name.items()}

    def rule_named(self, name: str) -> Optional[int]:
        return next((rule_id for rule_id, rule in self._dumped_rules.items()
                     if rule['rule_name'] == name), None)

    def rule_name(self, rule_id: int) -> str:
        rule = self._dumped_rules.get(rule_id)
        return str(rule_id) if rule is None else str(rule['rule_name'])

    def rules_for(self, erasure: bool, size: int) -> List[int]:
        """The rules for such pools. Releases before Quincy apply a rule only to pools whose size
        is in its range."""
        types = _ERASURE_RULES if erasure else _REPLICATED_RULES
        return [rule_id for rule_id, rule in self._dumped_rules.items() if rule.get('type') in types
                and rule.get('min_size', 0) <= size <= rule.get('max_size', size)]

    def buckets_needed(self, rule_id: int, pool_size: int) -> Sequence[Tuple[str, int]]:
        """For each choose step in whose buckets further steps choose: (type, number of these
        buckets that a PG needs). A step may choose more: CRUSH passes over those that it does not
        find. Steps such as chooseleaf, with one OSD in each bucket, are left out."""
        rule = self._rule(rule_id)
        if rule is None:
            return ()
        return [(level.type_name, min(chosen_number(level.num, pool_size),
                                      _buckets_for(pool_size, level)))
                for level in rule.levels if level.inner]

    def failure_domain(self, rule_id: int) -> Optional[str]:
        """The bucket type of the failure domain: that of the last choose step above the OSD level.

        'osd' if the rule has no such step, None if there is no such rule.
        """
        rule = self._rule(rule_id)
        if rule is None:
            return None
        return rule.levels[-1].type_name if rule.levels else 'osd'

    def separation(self, rule_id: int, pool_size: int) -> str:
        """The type of bucket of which none has two OSDs of a PG under a rule. 'osd': only OSDs are
        certain to differ, as under a rule with several takes, or with several OSDs in each bucket;
        or there is no such rule."""
        rule = self._rule(rule_id)
        if rule is None or not rule.levels or len(rule.emits) > 1 \
                or product(rule.levels[-1].inner, pool_size) > 1:
            return 'osd'
        return rule.levels[-1].type_name

    def type_rank(self, type_name: str) -> int:
        """Higher than that of each type whose buckets are below buckets of this type."""
        return len(self._types_below.get(self._type_ids.get(type_name, 0), ()))

    def encloses(self, outer: str, inner: str) -> bool:
        """Whether OSDs in different buckets of the type `outer` are in different ones of `inner`:
        it is below `outer`, or the same."""
        below = self._types_below.get(self._type_ids.get(outer, 0), ())
        return inner in (outer, 'osd') or self._type_ids.get(inner) in below

    @cached_property
    def _types_below(self) -> Mapping[int, FrozenSet[int]]:
        """Type -> the types below it in the trees, for type_rank and encloses. Their ids have no
        order: custom types may have any."""
        direct: Dict[int, Set[int]] = {}
        for bucket in self._buckets.values():
            direct.setdefault(bucket.type_id, set()).update(
                self._buckets[item].type_id if item in self._buckets else 0
                for item, _ in bucket.items)
        return {top: frozenset(_reached(direct, top) - {top}) for top in direct}

    def spread(self, rule_id: int, pool_size: int) -> Spread:
        """How a rule spreads the shards of a PG; empty if there is no such rule."""
        rule = self._rule(rule_id)
        return Spread({}) if rule is None else spread_of(rule, pool_size)

    def _choice_violation(self, choice: Choice, pool_size: int, osds: OsdSet) -> Optional[str]:
        """How a set of OSDs violates one choice of a rule; None: not at all."""
        if choice.leaf and len(set(map(choice.bucket_of.get, osds))) == len(osds):
            return None  # nearly always
        osd_by_bucket: Dict[int, int] = {}
        for osd in osds:
            bucket = choice.bucket_of.get(osd)
            if bucket is None:
                continue
            first_osd = osd_by_bucket.setdefault(bucket, osd)
            if choice.leaf and first_osd != osd:
                return 'osd.%d and osd.%d are both in %s %s' % (
                    first_osd, osd, choice.type_name, self._buckets[bucket].name)
        limit = chosen_number(choice.num, pool_size)
        if not choice.leaf and len(osd_by_bucket) > limit:
            names = sorted(self._buckets[bucket].name for bucket in osd_by_bucket)
            return 'the OSDs are in %d buckets of type %s (%s), the rule allows %d' % (
                len(osd_by_bucket), choice.type_name, ', '.join(names), limit)
        return None

    def _rule(self, rule_id: int) -> Optional[CrushRule]:
        """The rule, compiled when it is first needed; None: it does not exist."""
        if rule_id not in self._compiled:
            if rule_id not in self._dumped_rules:
                return None
            rule = compiled(self._dumped_rules[rule_id], self._buckets, self._type_ids)
            self._compiled[rule_id] = replace(
                rule, is_proven=self.checksum(rule_id) in self.proven_rules)
        return self._compiled[rule_id]

    def _name(self, item: int) -> str:
        return self._buckets[item].name if item in self._buckets else 'osd.%d' % item


def _buckets_for(pool_size: int, level: Level) -> int:
    """How many buckets of a level hold the OSDs of a PG."""
    return -(-pool_size // (product(level.inner, pool_size) or 1))


def _reached(direct: Mapping[int, AbstractSet[int]], start: int) -> Set[int]:
    """What can be reached from a node of a graph, which may have cycles."""
    reached: Set[int] = set()
    pending = [start]
    while pending:
        fresh = direct.get(pending.pop(), frozenset()) - reached
        reached |= fresh
        pending += fresh
    return reached


def _checksum(value: object) -> int:
    """Of what JSON can express; the order of keys does not matter."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
