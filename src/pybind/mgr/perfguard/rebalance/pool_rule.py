# SPDX-License-Identifier: LGPL-2.1-or-later
"""Another CRUSH rule for a pool. Pure.

If the new rule allows every PG to stay where it is, the rule is changed first and the PGs are
pinned in the same epoch, as with any change of CRUSH. Otherwise the mons would cancel the pins:

1. The pool gets an intermediate rule, under which a PG may be where it is and where the new rule
   places it. All PGs are pinned in the same epoch. If the old rule allows both, it is kept.
2. Each PG that the new rule does not allow to stay is released, by an upmap that the intermediate
   rule allows: to a set with as many of its OSDs as possible, or with target=crush to where the new
   rule places it.
3. Once all PGs are there, the rule is changed. No PG is remapped. Upmaps keep those that CRUSH
   would place elsewhere; with target=crush there are none.

Each step follows from the OSDMap, so an interrupted step is repeated for the remaining PGs.
"""
import errno
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import ClassVar, Container, FrozenSet, List, Mapping, Optional, Tuple

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, Outlook
from ..cluster.types import OsdMap, OsdSet, Pool, PoolRule, Space
from ..errors import Code, Refused
from ..observation import Observation
from ..text import pgs_are
from ..upmap.pins import broken_rule
from .change import Change, ChangeStage, Details, LeftSetting, NextPart
from .least_moves import LeastMoves, with_least_moves
from .pool_change import PoolChange
from .risks import Risk
from .types import Action, Bounds, SetPool


@dataclass(frozen=True)
class RuleChange(PoolChange):
    kind: ClassVar[str] = 'rule'
    fewer_pins: ClassVar[str] = 'a rule cannot be changed for a part of the PGs; with a lower ' \
        '--upmaps-max, more data moves and fewer upmaps remain'
    value: ClassVar[str] = 'CRUSH rule'

    #: The rule of the present part, and the final rule; None: the former is the final one.
    rule: PoolRule = PoolRule(-1, -1)
    then: Optional[int] = None
    #: Names: of the rule at the end, since its id may be given to another one meanwhile; of the
    #: rule that the pool had before any intermediate one; of the intermediate rule ('': none).
    rule_name: str = ''
    found_rule: str = ''
    via: str = ''
    #: The intermediate rules that the pool may have, as id -> name: that of the change, and one
    #: that an aborted change has left. {}: none, or an earlier version has not noted their ids.
    vias: Mapping[int, str] = field(default_factory=dict)
    #: The PGs move as little as that rule requires, and upmaps keep them there under it; None: they
    #: end where it places them.
    least: Optional[Bounds] = None
    #: How many upmaps may keep them; None: unlimited.
    upmaps_max: Optional[int] = None

    @property
    def setting(self) -> PoolRule:
        return self.rule

    def intermediate_rule(self, osdmap: OsdMap) -> str:
        """The name of the intermediate rule that the pool has, or may have; '': it has none."""
        pool = self.pool_in(osdmap)
        if pool is None or self.stage is ChangeStage.LANDED:
            return ''
        if pool.crush_rule in self.vias:
            return self.vias[pool.crush_rule]
        # It may be on its way, or its id is not known.
        return self.via if self.pending or self.moves_first and not self.vias else ''

    def begun(self, observation: Observation) -> 'RuleChange':
        # With an intermediate rule, that one is in `rule`.
        return self if self.then is None else replace(self, vias={self.rule.rule: self.via})

    def continuing(self, aborted: Optional[Change], osdmap: OsdMap) -> 'RuleChange':
        """The change with the intermediate rule that `aborted` has left the pool with, and with the
        rule from before that one: an abort of this change may leave it as well."""
        pool = self.pool_in(osdmap)
        if pool is None or not isinstance(aborted, RuleChange) or aborted.pool != pool.id:
            return self
        left_rule = aborted.intermediate_rule(osdmap)
        if not left_rule:
            return self
        vias = {pool.crush_rule: left_rule, **self.vias}
        return replace(self, found_rule=aborted.found_rule, vias={
            number: name for number, name in vias.items() if name != aborted.found_rule})

    def commands(self, observation: Observation) -> List[Action]:
        return [SetPool(observation.osdmap.pools[self.rule.pool].name, 'crush_rule',
                        observation.crush.rule_name(self.rule.rule))]

    def landed(self, observation: Observation) -> bool:
        pool = self.pool_in(observation.osdmap)
        return pool is not None and pool.crush_rule == self.rule.rule

    @property
    def whole(self) -> bool:
        return self.moves_first and self.least is not None

    def foreseen(self, outlook: Outlook, observation: Observation,
                 space: Mapping[int, Space]) -> Outlook:
        if not self.moves_first or self.least is None:
            return outlook
        return with_least_moves(outlook, self.pool_in(observation.osdmap), observation, self.least,
                                self.upmaps_max)

    @property
    def settled_pools(self) -> FrozenSet[int]:
        return frozenset({self.rule.pool}) if self.moves_first and self.least is not None \
            else frozenset()

    @property
    def follows_parts(self) -> bool:
        return self.moves_first

    def _overtaken(self, observation: Observation, pool: Pool) -> str:
        """Why the change is impossible: another rule has the ID of the ordered one now; '': none
        has."""
        number = self.rule.rule if self.then is None else self.then
        if self.rule_name in ('', observation.crush.rule_name(number)):
            return ''
        return 'CRUSH rule %s no longer has the ID %d' % (self.rule_name, number)

    def next_part(self, observation: Observation, pins: int) -> Optional[NextPart]:
        """The change to the final rule, which follows the intermediate one; None: this is the final
        one."""
        if self.then is None:
            return None
        return NextPart(
            RuleChange(rule=self.rule._replace(rule=self.then), moves_first=True,
                       rule_name=self.rule_name, found_rule=self.found_rule, via=self.via,
                       vias=self.vias, least=self.least, upmaps_max=self.upmaps_max,
                       since=observation.now),
            'the intermediate CRUSH rule is in force, %s pinned' % pgs_are(pins))

    def part_in_force(self, observation: Observation) -> Optional[Change]:
        # "campaign resume" continues with the remaining PGs, or ends the intermediate rule.
        osdmap = observation.osdmap
        return self if self.pool_in(osdmap) is not None and (
            self.moves_first or self.intermediate_rule(osdmap)) else None

    def why_no_rollback(self, campaign: int) -> str:
        return 'campaign %d changes the CRUSH rule of a pool: "campaign abort" first, then ' \
            '"rule <pool> <rule>" with the rule from before' % campaign

    def way_back(self, osdmap: OsdMap) -> str:
        pool = self.pool_in(osdmap)
        if pool is None:
            return super().way_back(osdmap)
        # "campaign resume" does the same if it leads to that rule anyway.
        return 'rule %s %s' % (quote(pool.name), quote(self.found_rule)) \
            if self.intermediate_rule(osdmap) and self.found_rule != self.rule_name else ''

    def begun_pools(self, osdmap: OsdMap) -> FrozenSet[int]:
        begun = self.moves_first and (self.passes or self.via) or self.intermediate_rule(osdmap)
        return frozenset({self.rule.pool}) if begun and self.stage is ChangeStage.WANTED \
            and self.pool_in(osdmap) is not None else frozenset()

    def left_setting(self, osdmap: OsdMap) -> Optional[LeftSetting]:
        """The intermediate rule that an abort leaves, with the command that restores the first one;
        None: it is not in force."""
        pool, left_rule = self.pool_in(osdmap), self.intermediate_rule(osdmap)
        if pool is None or not left_rule:
            return None
        return LeftSetting(
            'crush_rule of pool ' + pool.name, self.found_rule, left_rule,
            'ceph osd pool set %s crush_rule %s: all PGs that have moved return at once' % (
                quote(pool.name), quote(self.found_rule)))

    def left_intermediate(self, osdmap: OsdMap, verb: str = 'would keep') -> str:
        """Warning that the pool keeps the intermediate rule after the campaign; '' if it does not.
        `verb`: whether it would keep or keeps it."""
        pool, left_rule = self.pool_in(osdmap), self.intermediate_rule(osdmap)
        if pool is None or not left_rule:
            return ''
        # On the way back, both are the same.
        where = '%s does not allow them' % self.found_rule if self.found_rule == self.rule_name \
            else 'neither %s nor %s allows them' % (self.found_rule, self.rule_name)
        return 'pool %s %s the intermediate CRUSH rule %s, under which recovery may place PGs ' \
            'where %s' % (pool.name, verb, left_rule, where)

    @property
    def features(self) -> Mapping[str, str]:
        return {'CRUSH rule:': self.rule_name, 'intermediate CRUSH rule:': self.via,
                'upmaps that remain at most:': str(self.upmaps_max), **super().features}


# ---- The preview of an order

def rule_ordered(names: Tuple[str, ...], osdmap: OsdMap, crush: CrushRules) -> PoolRule:
    """The pool and the rule that an order names. Raises Refused."""
    pool_name, rule_name = names
    pool = next((pool for pool in osdmap.pools.values() if pool.name == pool_name), None)
    if pool is None:
        raise Refused(errno.ENOENT, 'pool %r does not exist' % pool_name)
    rule = crush.rule_named(rule_name)
    if rule is None:
        raise Refused(errno.ENOENT, 'CRUSH rule %r does not exist' % rule_name)
    if rule == pool.crush_rule:
        raise Refused(errno.EALREADY, 'pool %s already has the CRUSH rule %s'
                      % (pool_name, rule_name))
    if rule not in crush.rules_for(pool.erasure, pool.size):
        raise Refused(errno.EINVAL, 'CRUSH rule %s is not for %s pools of size %d' % (
            rule_name, 'erasure-coded' if pool.erasure else 'replicated', pool.size))
    return PoolRule(pool.id, rule)


def may_stay(pool: Pool, acting: OsdSet, crush: CrushRules, out: Container[int]) -> bool:
    """Whether some rule may allow a PG to stay where it is (`acting`): none does if it lacks an
    OSD, or is on one that is out or has no CRUSH weight. It recovers, or leaves that OSD, whatever
    rule the pool has, and cannot be pinned before. `out`: OSDs with reweight 0."""
    weights = crush.weights()
    return pool.is_complete(acting) and all([
        weights.get(osd) and osd not in out for osd in acting])


def bridging_rule(pool: Pool, future: Future, crush: CrushRules, osdmap: OsdMap,
                  ordered: int, finals: Optional[Mapping[str, OsdSet]]) -> int:
    """The rule under which every PG may be where it is and where it ends: if possible the present
    one, else the one with the largest failure domain. Raises Refused if there is none.

    PGs that cannot stay where they are under any rule (`may_stay`) move meanwhile, so only where
    the new rule places them counts.

    `ordered`: the new rule. `finals`: PG -> the OSDs where it ends, if not where that places it.
    """
    out, reasons = osdmap.out, []
    sets: List[Tuple[str, OsdSet]] = []
    for pgid, pg in future.all():
        if not may_stay(pool, pg.acting, crush, out):
            sets.append((pgid, pg.raw))
        else:
            sets += [(pgid, pg.raw if finals is None else finals.get(pgid, pg.acting)),
                     (pgid, pg.acting)]
    for rule in sorted(crush.rules_for(pool.erasure, pool.size), key=lambda candidate: (
            candidate != pool.crush_rule, -crush.type_rank(crush.separation(candidate, pool.size)),
            candidate)):
        pool_under_rule = replace(pool, crush_rule=rule)
        reason = next((
            'under rule %s: PG %s: %s' % (crush.rule_name(rule), pgid, why)
            for pgid, why in ((pgid, broken_rule(pool_under_rule, osds, crush, out))
                              for pgid, osds in sets) if why), None)
        if reason is None:
            return rule
        reasons.append(reason)
    raise Refused(errno.EPERM, 'no CRUSH rule allows the PGs of pool %s both where they are and '
                  'where the new rule places them (%s): create one with %s, and try again'
                  % (pool.name, '; '.join(reasons), ' '.join(
                      '"%s"' % command for command in _bridging_commands(pool, ordered, crush))))


def _bridging_commands(pool: Pool, ordered: int, crush: CrushRules) -> List[str]:
    """The commands that create a rule which takes the trees of the present rule and of the ordered
    one. With several trees, they are linked below a common root first."""
    tops = sorted(crush.topmost_buckets(pool.crush_rule) | crush.topmost_buckets(ordered))
    root = tops[0] if len(tops) == 1 else '<root>'
    links = ['ceph osd crush link %s root=<root>' % top for top in tops] if len(tops) > 1 else []
    domain = _common_domain(pool, ordered, crush)
    if not pool.erasure:
        return [*links, 'ceph osd crush rule create-replicated <rule> %s %s' % (root, domain)]
    return [*links, 'ceph osd erasure-code-profile set <profile> k=<k> m=<m> crush-root=%s '
            'crush-failure-domain=%s' % (root, domain),
            'ceph osd crush rule create-erasure <rule> <profile>']


def _common_domain(pool: Pool, ordered: int, crush: CrushRules) -> str:
    """The largest failure domain that the sets of the present rule and of the ordered one have."""
    return min((crush.separation(rule, pool.size) for rule in (pool.crush_rule, ordered)),
               key=crush.type_rank)


def _weaker(pool: Pool, via: int, ordered: int, crush: CrushRules) -> str:
    """Warning that the intermediate rule `via` protects data less than the present rule and the
    ordered one; '' if it does not."""
    domain, common = crush.separation(via, pool.size), _common_domain(pool, ordered, crush)
    if crush.encloses(domain, common):
        return ''
    return 'the intermediate CRUSH rule %s has the failure domain %s: while it is in force, ' \
        'recovery may place two shards of a PG in the same %s. Create a rule with %s' % (
            crush.rule_name(via), domain, common, ' '.join(
                '"%s"' % command for command in _bridging_commands(pool, ordered, crush)))


def with_names(change: RuleChange, osdmap: OsdMap, crush: CrushRules) -> RuleChange:
    """The change with the names of its rules: of the present one, the final one, and the
    intermediate one."""
    # With an intermediate rule, that one is in `rule`, and the final one in `then`.
    pool, ordered = osdmap.pools[change.rule.pool], change.then
    return replace(
        change, found_rule=crush.rule_name(pool.crush_rule),
        rule_name=crush.rule_name(change.rule.rule if ordered is None else ordered),
        via='' if ordered is None else crush.rule_name(change.rule.rule))


def rule_details(change: RuleChange, osdmap: OsdMap, crush: CrushRules,
                 fewest_moves: Optional[LeastMoves]) -> Details:
    """What a preview shows of a change of a rule. `change`: with its names; `fewest_moves`: None:
    the PGs end where the rule places them."""
    pool, moves_first = osdmap.pools[change.rule.pool], change.moves_first or bool(change.via)
    # With an intermediate rule, all PGs are pinned in its epoch, and move before the final one.
    pins = pool.pg_num if change.via else 0
    weaker = '' if change.then is None else _weaker(pool, change.rule.rule, change.then, crush)
    upmaps = 0 if fewest_moves is None else fewest_moves.upmaps
    return Details(
        'rule', {'pool': pool.name, 'from': change.found_rule, 'to': change.rule_name,
                 'via': change.via or None, 'moves_first': moves_first, 'pins': pins,
                 'weaker': weaker,
                 'least_moves': None if fewest_moves is None else fewest_moves.as_json()},
        moves_first=moves_first, follows_change=moves_first and fewest_moves is None,
        pins_at_once=max(pins, upmaps), upmaps=upmaps,
        required_share=1.0 if fewest_moves is None else fewest_moves.required_share,
        risks=(Risk(Code.WEAKER_RULE, weaker),) if weaker else ())
