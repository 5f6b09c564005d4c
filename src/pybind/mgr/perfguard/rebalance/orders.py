# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of CRUSH that operators order (expand, drain, undrain, crushmap): converted to a change,
or refused."""
import errno
import shlex
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import median
from typing import (AbstractSet, ClassVar, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple)

from ..cluster.crush import CrushRules
from ..cluster.types import ConfigEntry, OsdMap, Pool, Space
from ..errors import Refused
from ..observation import Observation
from ..text import bytes_text, decimal_number, listed, osds_text, pgs, plural
from .types import TINY_WEIGHT
from .weights import WeightChange
from .whole_map import MapChange

#: The default CRUSH weight of an OSD is its size in TiB.
TIB = 1 << 40
#: An OSD of at most this CRUSH weight counts as drained.
DRAINED_WEIGHT = 2 * TINY_WEIGHT
#: CRUSH weights in other units than TiB are common, and so are manually reduced weights of full
#: OSDs. Beyond this factor, new OSDs would get an unintended share of the data.
MAX_WEIGHT_RATIO = 1.5
#: How a change begins for which there is no command.
_OTHERWISE = 'for another CRUSH change, begin with "ceph perfguard campaign prepare"'
#: What undoes a change where a rollback is not possible.
EARLIER_MAP = '"crushmap -i <file>" returns to a CRUSH map that was saved before'
#: What to drain instead.
_LESS = ': drain fewer OSDs, or into new ones ("expand <new> --drain <old>")'
#: Why an OSD that has just booted is left out.
UNREPORTED = 'has not reported yet whether it holds PGs'
#: The verbs of orders that change CRUSH weights.
WEIGHT_VERBS = ('expand', 'drain', 'undrain')
#: The verb of an expansion of OSDs that are still to boot; see awaiting.py.
AWAIT = 'expand --await'
#: The verb of the preview of a loss; see what_if.py.
LOSE = 'lose'


@dataclass(frozen=True)
class Order:
    #: expand, drain, undrain, crushmap, rule, pg_num, balance, rollback, adopt, import, export,
    #: AWAIT, LOSE, or a verb of replacing.py.
    verb: str
    #: OSDs, hosts, racks; of expand: OSDs; of rule: a pool and a rule; of pg_num: a pool, and a
    #: number or what the autoscaler recommends; of balance: pools, device classes, CRUSH roots.
    names: Tuple[str, ...] = ()
    hosts: Tuple[str, ...] = ()
    weight: Optional[str] = None
    #: AWAIT: seconds until it expires; 0: the default.
    within: float = 0.0
    crush_map: Optional[bytes] = None
    #: expand: OSDs, hosts, racks that are emptied by the same change.
    drain: Tuple[str, ...] = ()
    #: import: as pgremapper exports them.
    mappings: Optional[bytes] = None
    #: The CRUSH version that `crush_map` is based on, if the operator states it.
    prior_version: Optional[int] = None
    #: balance: its options, as they were given.
    by: Optional[str] = None
    deviation: Optional[str] = None
    max_movement: Optional[str] = None
    #: rule, crushmap: how many upmaps may keep PGs in place.
    upmaps_max: Optional[int] = None
    #: Preview of expand: hosts that are not there, as what_if.py reads them; the buckets that they
    #: are added to, and their device class.
    what_if: Optional[str] = None
    under: Tuple[str, ...] = ()
    device_class: Optional[str] = None
    #: replace: have the orchestrator remove the OSDs once they are empty.
    remove: bool = False
    #: Codes of accepted risks.
    accept: Tuple[str, ...] = ()
    dry_run: bool = False
    addressee: ClassVar[str] = 'rebalance'

    @property
    def command(self) -> str:
        """As operators write it, without "--accept"."""
        return 'ceph perfguard ' + self.text

    @property
    def text(self) -> str:
        """The words of `command` that follow the name of the module, or "plan save" and a name."""
        verb = 'campaign rollback' if self.verb == 'rollback' else self.verb
        options = [word for name, value in (
            ('--weight', self.weight), ('--prior-version', self.prior_version), ('--by', self.by),
            ('--within', _number(self.within) + 's' if self.within else None),
            ('--deviation', self.deviation), ('--max-movement', self.max_movement),
            ('--upmaps-max', self.upmaps_max),
            ('--what-if', self.what_if), ('--under', ','.join(self.under) or None),
            ('--class', self.device_class), ('--drain', ','.join(self.drain) or None))
            if value is not None for word in (name, str(value))]
        file = self.crush_map is not None or self.mappings is not None
        return ' '.join([verb, *map(shlex.quote, (
            *self.names, *self.hosts, *options)), *(['--remove'] if self.remove else []),
            *(['-i <file>'] if file else [])])


@dataclass(frozen=True)
class OrderFacts:
    """The facts that orders are checked against."""
    osdmap: OsdMap
    crush: CrushRules
    space: Mapping[int, Space]
    #: Earlier CRUSH weights of drained OSDs that have received no weight since.
    drained: Mapping[int, float] = field(default_factory=dict)
    #: Those of them whose weights differed between trees, as CrushRules.uneven.
    uneven: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    #: OSDs that were new before an expansion that was rolled back.
    undone: AbstractSet[int] = frozenset()
    #: OSDs that the orchestrator empties to remove them.
    removing: AbstractSet[int] = frozenset()
    #: Pool -> space for one copy of its data (Signals.space_of); missing: not known.
    pool_space: Mapping[int, int] = field(default_factory=dict)

    # Only previews need these.
    #: Pool -> share of its bytes that clones share (Reader.pool_shared).
    shared: Mapping[int, float] = field(default_factory=dict)
    #: mon_max_pg_per_osd; 0: none.
    pg_limit: int = 0
    #: Bytes per second of earlier campaigns.
    rates: Sequence[float] = ()

    def expanded(self, weights: Mapping[int, float]) -> 'OrderFacts':
        """As if these OSDs already had these CRUSH weights."""
        return replace(self, crush=self.crush.with_weights(weights))


def words(*texts: Optional[str]) -> Tuple[str, ...]:
    """The items of a list in any notation: "8,9", "8 9" or in several arguments. Raises Refused for
    an argument without a word, such as an empty variable of a shell."""
    items = [text.replace(',', ' ').split() for text in texts if text is not None]
    if not all(items):
        raise Refused(errno.EINVAL, 'an argument for OSDs, hosts or racks is empty')
    return tuple(chain.from_iterable(items))


def expansion(what: Sequence[str], weight: Optional[str] = None, accept: Tuple[str, ...] = (),
              dry_run: bool = False, drain: Sequence[str] = ()) -> Order:
    """The order to expand. `what`, `drain`: osd.<id>, hosts and other buckets."""
    return Order('expand', tuple(name for name in what if name.startswith('osd.')),
                 tuple(name for name in what if not name.startswith('osd.')),
                 weight=weight, drain=tuple(drain), accept=accept, dry_run=dry_run)


def is_tiny(weight: float) -> bool:
    """Whether an OSD counts as drained, but its CRUSH weight is not 0. The balancer takes an OSD of
    any weight for one that lacks PGs, as long as it has fewer than its share
    (OSDMap::calc_pg_upmaps)."""
    return 0.0 < weight <= DRAINED_WEIGHT


def how_to_leave_empty(osd: int) -> str:
    """The advice for an OSD of a tiny weight that is empty."""
    return '"ceph osd crush reweight osd.%d 0" keeps the balancer from placing PGs on it' % osd


def check_names(order: Order, facts: OrderFacts) -> None:
    """Raise Refused for names that are not in CRUSH, and for an invalid weight."""
    named_osds(order.names, facts, hosts=order.verb != 'expand')
    named_osds((*order.hosts, *order.drain), facts, hosts=True)
    if order.weight is not None:
        weight_of(order.weight)


def change_of(order: Order, facts: OrderFacts) -> WeightChange:
    """The change of an order. Raises Refused."""
    if order.verb == 'expand':
        return _expand_and_drain(order, facts) if order.drain else _expand(order, facts)
    if order.verb == 'drain':
        return _drain(_not_drained(order.names, facts), facts)
    assert order.verb == 'undrain'
    return _undrain(order, facts)


def _expand(order: Order, facts: OrderFacts) -> WeightChange:
    """The change that gives weights to the OSDs of an order, or to all new ones. Raises Refused."""
    weights = facts.crush.weights()
    weight = None if order.weight is None else weight_of(order.weight)
    if order.names or order.hosts:
        not_new = osds_left_out(order, facts)
        if UNREPORTED in not_new.values():
            raise _no_new_osds(order, not_new)
        osds = named_osds(order.names, facts, hosts=False) | {
            osd for osd in named_osds(order.hosts, facts, hosts=True)
            if weights[osd] == 0 and osd not in not_new}
        for osd in sorted(osds):
            _must_serve(osd, facts)
            if weights[osd] > 0:
                raise Refused(errno.EINVAL, 'osd.%d already has CRUSH weight %s '
                              '("expand" requires weight 0)' % (osd, _number(weights[osd])))
        if not osds:
            if not_new:
                raise _no_new_osds(order, not_new)
            raise Refused(errno.ENOENT, 'no OSD of CRUSH weight 0 in %s (%s)' % (
                ', '.join(order.hosts), _OTHERWISE))
    else:
        reasons = reasons_not_new(facts)
        osds = {osd for osd, why in reasons.items() if not why}
        if not osds:
            raise _no_new_osds(order, reasons)
    return WeightChange(
        weights={osd: weight or _weight_by_size(osd, facts) for osd in sorted(osds)})


def reasons_not_new(facts: OrderFacts) -> Dict[int, str]:
    """OSDs of CRUSH weight 0 that could serve -> why `expand` leaves them out; '': they are new.

    A disk that was emptied, also by others, must not be filled again unless it is named. An OSD
    that was ever the primary of a PG has an up_thru in the OSDMap until it is purged, and an OSD
    with a share of the PGs is the primary of some. The rollback of an expansion restores the state
    before, in which its OSDs were new.
    """
    return {osd: _not_new(osd, facts) for osd, weight in sorted(
        facts.crush.weights().items()) if weight == 0 and serves(osd, facts.osdmap)}


def osds_left_out(order: Order, facts: OrderFacts) -> Dict[int, str]:
    """OSDs of CRUSH weight 0 that an expansion does not take, with the reason.

    The name of a host or rack does not include emptied disks in it, which may be failing.
    """
    reasons = {osd: why for osd, why in reasons_not_new(facts).items() if why}
    if not order.names and not order.hosts:
        return reasons
    only_in_hosts = named_osds(order.hosts, facts, hosts=True) \
        - named_osds(order.names, facts, hosts=False)
    return {osd: why for osd, why in reasons.items() if osd in only_in_hosts}


def left_out_text(osd: int, why: str) -> str:
    """For operators: an OSD that an expansion does not take."""
    return 'osd.%d %s ("expand osd.%d" adds it)' % (osd, why, osd)


def _not_new(osd: int, facts: OrderFacts) -> str:
    """Why an OSD of CRUSH weight 0 is not new; '': it is."""
    space = facts.space.get(osd)
    if osd in facts.removing:
        return 'is being removed by the orchestrator'
    # An OSD of an expansion that was rolled back counts as new although it has held PGs.
    if osd not in facts.undone:
        if osd in facts.drained:
            return 'was drained'
        if facts.osdmap.osds[osd].has_led:
            return 'held PGs before'
    if space is None or space.pgs is None:
        return UNREPORTED
    return 'holds %s' % pgs(space.pgs) if space.pgs else ''


def _no_new_osds(order: Order, left_out_osds: Mapping[int, str]) -> Refused:
    """Why there is nothing to expand to. `left_out_osds`: OSD -> why."""
    unreported = [osd for osd, why in left_out_osds.items() if why == UNREPORTED]
    if unreported:
        return Refused(errno.EAGAIN, '%s: try again in a few seconds' % listed(
            ['osd.%d %s' % (osd, UNREPORTED) for osd in unreported], between='; '), not_fit=True)
    instead = '"drain %s" empties the old OSDs alone' % ' '.join(map(shlex.quote, order.drain)) \
        if order.drain else _OTHERWISE
    if left_out_osds:
        return Refused(errno.EINVAL, 'no OSD of CRUSH weight 0 is new: %s (%s)' % (
            listed([left_out_text(osd, why) for osd, why in left_out_osds.items()], between='; '),
            instead))
    return Refused(errno.ENOENT, 'no new OSD of CRUSH weight 0 is up and in ("expand --await" '
                   'takes those that boot later; %s)' % instead)


def _expand_and_drain(order: Order, facts: OrderFacts) -> WeightChange:
    """The change of an order that fills new OSDs and drains old ones ("--drain"): in one change,
    each shard of an old OSD moves once, to where it stays. Raises Refused."""
    growing = _expand(order, facts)
    # "ceph" takes one word for an option: the next one names OSDs to be filled.
    stray = [name for name in order.hosts if growing.weights.keys().isdisjoint(
        facts.crush.osds_below(name) or ())]
    if stray:
        raise Refused(errno.EINVAL, '%s has no new OSD: if it is to be drained, give a list with '
                      'commas, "--drain %s"' % (stray[0], ','.join((*order.drain, *stray))))
    filled_and_drained = growing.weights.keys() & named_osds(
        [name for name in order.drain if name.startswith('osd.')], facts, hosts=False)
    if filled_and_drained:
        raise Refused(errno.EINVAL, '%s: cannot be filled and drained at the same time'
                      % osds_text(sorted(filled_and_drained)))
    # The new OSDs take the data of the old ones, and their hosts may replace the old hosts.
    emptied = _drain(_not_drained(order.drain, facts), facts.expanded(growing.weights))
    return replace(growing, weights={**growing.weights, **emptied.weights},
                   drained=emptied.drained)


def _not_drained(names: Sequence[str], facts: OrderFacts) -> Set[int]:
    """The named OSDs that are neither drained nor new (CRUSH weight 0). A host or rack names all
    OSDs in it. Raises Refused if none is left."""
    weights = facts.crush.weights()
    osds = {osd for osd in named_osds(names, facts, hosts=True)
            if weights[osd] > DRAINED_WEIGHT}
    if not osds:
        raise Refused(errno.EALREADY, 'already drained: %s ("adopt" moves PGs that '
                      'upmaps keep there)' % ', '.join(names))
    return osds


def _drain(osds: Set[int], facts: OrderFacts) -> WeightChange:
    """The change that drains these OSDs. Raises Refused if the other OSDs cannot take their PGs."""
    all_drained = osds | {osd for osd, weight in facts.crush.weights().items()
                          if weight <= DRAINED_WEIGHT}
    _must_leave_domains(osds, all_drained, facts)
    _must_leave_room(osds, all_drained, facts)
    return WeightChange(weights=dict.fromkeys(sorted(osds), TINY_WEIGHT),
                        drained=tuple(sorted(osds)))


def _undrain(order: Order, facts: OrderFacts) -> WeightChange:
    """The change that gives drained OSDs their weight again. Raises Refused."""
    named = named_osds(order.names, facts, hosts=True)
    osds = sorted(named & facts.drained.keys())
    if not osds:
        raise Refused(errno.ENOENT, 'not drained by perfguard: %s ("osds --drained" lists those '
                      'that are; "campaign rollback" undoes a drain that has not ended; %s)'
                      % (', '.join(order.names), _OTHERWISE))
    for osd in osds:
        _must_serve(osd, facts)
        if osd in facts.uneven:
            raise Refused(errno.EINVAL, 'osd.%d had different CRUSH weights in several trees, but '
                          '"undrain" gives it the same weight in all: run "ceph perfguard '
                          'campaign prepare", then %s, then "ceph perfguard campaign pin"' % (
                              osd, ' and '.join('"ceph osd crush set osd.%d %s %s"' % (
                                  osd, _number(weight), place)
                                  for place, weight in sorted(facts.uneven[osd].items()))))
    return WeightChange(weights={osd: facts.drained[osd] for osd in osds})


def check_map(new: CrushRules, facts: OrderFacts) -> None:
    """Raise Refused for a CRUSH map under which existing data could not stay in place."""
    for pool in facts.osdmap.pools.values():
        if new.failure_domain(pool.crush_rule) is None:
            raise Refused(errno.EINVAL, 'the CRUSH map lacks rule %d, which pool %s uses'
                          % (pool.crush_rule, pool.name))
    weights, holding = new.weights(), _osds_with_weight(facts)
    for what, osds in (
            ('lacks', [osd for osd in holding if osd not in weights]),
            ('gives weight 0 to', [osd for osd in holding if weights.get(osd) == 0])):
        if osds:
            raise Refused(errno.EINVAL, 'the CRUSH map %s %s, which may hold data: "drain" first, '
                          'or give weight %s to keep the data in place for now'
                          % (what, osds_text(osds), TINY_WEIGHT))


def weights_back(weights: Mapping[int, float], facts: OrderFacts,
                 serving: AbstractSet[int]) -> WeightChange:
    """The change that restores `weights`, those from before the campaign that differ now.

    `serving`: OSDs that hold PGs, or are about to. They keep a tiny weight until they are empty.
    `facts.drained`: all OSDs that perfguard has drained; they end at weight 0, although an
    earlier drain may have left them a tiny one.
    """
    without_weight = {osd for osd, weight in weights.items() if weight == 0.0
                      or weight <= DRAINED_WEIGHT and osd in facts.drained}
    emptied = without_weight & serving
    return WeightChange(
        weights={osd: TINY_WEIGHT if osd in emptied else 0.0 if osd in without_weight else weight
                 for osd, weight in weights.items()}, drained=tuple(sorted(emptied)))


def map_back(before: CrushRules, facts: OrderFacts, serving: AbstractSet[int],
             observation: Observation) -> MapChange:
    """The change that restores a whole CRUSH map from before, of which more than weights of OSDs
    has changed. Raises Refused. `serving`: OSDs that hold PGs, or are about to."""
    for pool in facts.osdmap.pools.values():
        if before.failure_domain(pool.crush_rule) is None:
            raise Refused(errno.EINVAL, 'the CRUSH map from before the campaign lacks rule '
                          '%d, which pool %s uses: "rule" gives the pool another one'
                          % (pool.crush_rule, pool.name))
    weights_before = before.weights()
    lost = sorted(osd for osd in serving if weights_before.get(osd, 0.0) == 0.0)
    if lost:
        raise Refused(errno.EBUSY, 'the CRUSH map from before the campaign does not contain %s, '
                      'which holds or receives PGs: run "ceph perfguard drain" first'
                      % osds_text(lost))
    return MapChange.to(before, observation)


def _osds_with_weight(facts: OrderFacts) -> List[int]:
    """Existing OSDs to which CRUSH now gives a weight: they may hold data."""
    return sorted(osd for osd, weight in facts.crush.weights().items()
                  if weight > 0 and osd in facts.osdmap.osds)


def weight_of(text: str) -> float:
    """The CRUSH weight that an operator gives. Raises Refused."""
    try:
        weight = decimal_number(text)
    except ValueError:
        raise Refused(errno.EINVAL, 'the weight %r is not a number' % text) from None
    # Ceph accepts a weight if it fits into a signed int of 32 bits, in units of 1/65536
    # (CrushWrapper::validate_weightf).
    if not TINY_WEIGHT <= weight <= 32767:
        raise Refused(errno.EINVAL, 'the weight must be between %s and 32767, not %s'
                      % (TINY_WEIGHT, text))
    return weight


def _weight_by_size(osd: int, facts: OrderFacts) -> float:
    """The size of the OSD in TiB. Raises Refused if it is not known."""
    space = facts.space.get(osd)
    if space is None or space.total_bytes <= 0:
        raise Refused(errno.EAGAIN, 'osd.%d has not reported its size yet: try again in a few '
                      'seconds, or give --weight' % osd, not_fit=True)
    return max(TINY_WEIGHT, round(space.total_bytes / TIB, 4))


def weight_warnings(order: Order, change: WeightChange, facts: OrderFacts) -> Tuple[str, ...]:
    """Warnings if new OSDs would get more or less data per TiB than old ones of their device class:
    most CRUSH rules place the PGs of a pool on OSDs of one class."""
    if order.verb != 'expand' or order.weight is not None:
        return ()
    crush, space, texts = facts.crush, facts.space, []
    filled = change.weights.keys() - set(change.drained)
    first_by_class = {crush.class_of(osd): osd for osd in sorted(filled, reverse=True)}
    for name, osd in sorted(first_by_class.items()):
        per_tib = [weight * TIB / space[old_osd].total_bytes
                   for old_osd, weight in crush.weights().items()
                   if weight > DRAINED_WEIGHT and crush.class_of(old_osd) == name
                   and old_osd in space and space[old_osd].total_bytes > 0]
        typical = median(per_tib) if per_tib else 1.0
        if not 1 / MAX_WEIGHT_RATIO <= typical <= MAX_WEIGHT_RATIO:
            texts.append(
                'new OSDs%s get their size in TiB as CRUSH weight, but other OSDs%s have a weight '
                'of %.3g per TiB; "--weight %.4g" gives osd.%d as much data per TiB as they have%s'
                % (' of class ' + name if name else '', ' of the class' if name else '', typical,
                   typical * space[osd].total_bytes / TIB, osd,
                   ' (add the OSDs of each class separately)' if len(first_by_class) > 1 else ''))
    return tuple(texts)


#: Of the mons: new CRUSH weights of OSDs also change weight sets.
WEIGHT_SET_OPTION = 'osd_crush_update_weight_set'


def check_weight_sets(crush: CrushRules,
                      entries: Optional[Sequence[ConfigEntry]]) -> Tuple[str, ...]:
    """Warnings about weight sets. Raises Refused if new weights of OSDs would not move a PG. The
    preview does not show it: the tools of Ceph always change weight sets along with weights.

    `entries`: the configuration database; None: not known, which is only a warning.
    """
    if not crush.weight_sets:
        return ()
    if entries is None:
        return ('CRUSH has weight sets ("ceph osd crush weight-set ls"): unless they follow the '
                'weights of OSDs (%s is true, the default), no PG moves' % WEIGHT_SET_OPTION,)
    rows = [entry for entry in entries if entry.name == WEIGHT_SET_OPTION]
    # The value of most mons, and those of single mons or hosts (masks), which override it.
    values = {entry.section: entry.value for entry in rows if not entry.mask}
    common = 'mon' if 'mon' in values else 'global'
    in_force = {values.get(common), *(
        entry.value for entry in rows
        if entry.section.startswith('mon.') or entry.mask and entry.section in ('mon', common))}
    if 'false' in in_force:
        raise Refused(errno.EPERM, 'CRUSH has weight sets, which do not follow the weights of '
                      'OSDs while %s is false: no PG would move. "ceph config set mon %s '
                      'true", or remove the weight sets ("ceph osd crush weight-set ls") first'
                      % (WEIGHT_SET_OPTION, WEIGHT_SET_OPTION))
    return ()


def named_osds(names: Iterable[str], facts: OrderFacts, hosts: bool) -> Set[int]:
    """The OSDs of these names, all of which are in CRUSH. `hosts`: also hosts and other buckets are
    allowed; then a bare number, which may be the name of one, is no OSD. Raises Refused."""
    weights = facts.crush.weights()
    osds: Set[int] = set()
    for name in names:
        digits = name[len('osd.'):] if name.startswith('osd.') else name
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
        is_bare = digits == name
        if is_number and not (is_bare and hosts):
            osd = int(digits)
            if osd not in facts.osdmap.osds:
                raise Refused(errno.ENOENT, 'osd.%d does not exist' % osd)
            if osd not in weights:
                raise Refused(errno.ENOENT, 'osd.%d is not in CRUSH: add it with "ceph osd crush '
                              'add osd.%d 0 host=..."' % (osd, osd))
            osds.add(osd)
            continue
        below = facts.crush.osds_below(name) if hosts else None
        if below is None:
            raise Refused(errno.ENOENT, 'no %s %r in CRUSH%s' % (
                'OSD, host or rack' if hosts else 'OSD', name,
                ' (did you mean osd.%s?)' % name if is_number and is_bare else ''))
        osds |= set(below)
    return osds


def serves(osd: int, osdmap: OsdMap) -> bool:
    """Whether PGs can be placed on the OSD."""
    row = osdmap.osds.get(osd)
    return row is not None and row.is_up_and_in and not row.destroyed


def _must_serve(osd: int, facts: OrderFacts) -> None:
    """Raise Refused unless an OSD is up and in, and is to remain."""
    row = facts.osdmap.osds[osd] if osd in facts.osdmap.osds else None
    if row is None or row.destroyed or not row.up:
        raise Refused(errno.EINVAL, 'osd.%d is down ("ceph osd tree down")' % osd)
    if row.reweight == 0:
        raise Refused(errno.EINVAL, 'osd.%d is out (see "ceph osd in")' % osd)
    if osd in facts.removing:
        raise Refused(errno.EBUSY, 'the orchestrator is removing osd.%d: "ceph orch osd rm stop '
                      '%d", and try again in a few seconds' % (osd, osd))


def _must_leave_domains(osds: Set[int], emptied: Set[int], facts: OrderFacts) -> None:
    """Raise Refused if the rule of a pool finds too few failure domains, buckets or OSDs once
    `osds` are drained. `emptied`: these and all other OSDs without weight. If it finds too few
    already, and no fewer afterwards, that is no reason."""
    crush = facts.crush
    for pool in facts.osdmap.pools.values():
        remaining_osds = _osds_left(pool, emptied, facts)
        before = _osds_left(pool, emptied - osds, facts)
        if remaining_osds == before:
            continue
        rule = pool.crush_rule
        domain, needed = crush.failure_domain(rule) or 'osd', crush.domains_needed(rule, pool.size)
        domains = len(crush.domains_of(remaining_osds, domain))
        if domains < needed and len(crush.domains_of(before, domain)) > domains:
            raise Refused(errno.ENOSPC, 'pool %s needs %d failure domains of type %s, '
                          'but only %d would be left%s' % (
                              pool.name, needed, domain, domains, _LESS))
        # Buckets that the rule chooses above its failure domain.
        for kind, needed in crush.buckets_needed(rule, pool.size):
            buckets = len(crush.domains_of(remaining_osds, kind))
            if buckets < needed and len(crush.domains_of(before, kind)) > buckets:
                raise Refused(errno.ENOSPC, 'the rule of pool %s needs %d buckets of type %s, '
                              'but only %d would be left%s' % (
                                  pool.name, needed, kind, buckets, _LESS))
        # A rule may take several trees, or choose several OSDs in a bucket: each must have enough.
        places = crush.fewest_chosen(rule, pool.size, remaining_osds)
        if places < pool.size and crush.fewest_chosen(rule, pool.size, before) > places:
            raise Refused(errno.ENOSPC, 'CRUSH rule %s would find only %s for PGs of pool %s '
                          '(size %d)%s' % (crush.rule_name(rule), plural(places, 'OSD'),
                                           pool.name, pool.size, _LESS))


def _osds_left(pool: Pool, emptied: Set[int], facts: OrderFacts) -> Set[int]:
    """The OSDs that can take data of the pool, without those that are `emptied`."""
    return {osd for osd in facts.osdmap.osds
            if osd not in emptied and facts.crush.weight_of(pool.crush_rule, osd) > 0
            and serves(osd, facts.osdmap)}


class _Part(NamedTuple):
    """The data of some OSDs that are drained under one CRUSH rule."""
    rule: int
    holders: FrozenSet[int]
    #: Share of the data of these OSDs: by the bytes of the pools; 1 under each rule if they are not
    #: known.
    share: float
    is_known: bool
    #: The OSDs that take it, with their CRUSH weights.
    takers: Mapping[int, float]


def _must_leave_room(osds: Set[int], emptied: Set[int], facts: OrderFacts) -> None:
    """Raise Refused if the data of `osds` does not fit on the OSDs that take it. `emptied`: these
    and all other OSDs without weight."""
    space, limit = facts.space, facts.osdmap.nearfull_ratio
    parts = _parts(osds, emptied, facts)
    all_takers = [frozenset(part.takers) for part in parts]
    # Rules may share OSDs that take their data: those whose takers are among others need the room
    # of these together, and so do all.
    for takers in sorted({*all_takers, frozenset().union(*all_takers)}, key=len):
        parts_here = [part for part in parts if takers.issuperset(part.takers)]
        holders: Set[int] = set().union(*(part.holders for part in parts_here))
        moving = _moving_bytes(parts_here, space)
        room = sum(max(0.0, limit * space[osd].total_bytes - space[osd].used_bytes)
                   for osd in takers if osd in space)
        if moving > room:
            holders_text = 'these OSDs hold' if holders == osds else \
                'the data of %s is' % osds_text(sorted(holders))
            if moving < _used_bytes(holders, space):
                rules = listed(sorted({facts.crush.rule_name(part.rule) for part in parts_here}))
                holders_text = 'the data of %s under CRUSH rule %s is' % (
                    osds_text(sorted(holders)), rules)
            raise Refused(errno.ENOSPC, 'not enough space: %s %s, but the others have %s left '
                          'below nearfull (%d %%)%s' % (
                              holders_text, bytes_text(moving), bytes_text(room), 100 * limit,
                              _LESS))


def _moving_bytes(parts: Iterable[_Part], space: Mapping[int, Space]) -> int:
    """Bytes of these parts together. If the bytes of the pools are not known, each part counts as
    all data of its OSDs (`share` 1): then the sum is limited to these data."""
    by_holders: Dict[FrozenSet[int], float] = {}
    for part in parts:
        by_holders[part.holders] = by_holders.get(part.holders, 0.0) + part.share
    return round(sum(min(1.0, share) * _used_bytes(holders, space)
                     for holders, share in by_holders.items()))


def _used_bytes(osds: Iterable[int], space: Mapping[int, Space]) -> int:
    return sum(space[osd].used_bytes for osd in osds if osd in space)


def must_fit_by_weight(osds: Set[int], facts: OrderFacts) -> None:
    """Raise Refused if an OSD would be nearfull with its share, by CRUSH weight, of the data of
    `osds`, which are to be drained."""
    space, limit = facts.space, facts.osdmap.nearfull_ratio
    emptied = osds | {osd for osd, weight in facts.crush.weights().items()
                      if weight <= DRAINED_WEIGHT}
    #: By the OSDs that hold the data: of unknown parts, the largest counts.
    received: Dict[int, Dict[FrozenSet[int], float]] = {}
    for part in _parts(osds, emptied, facts):
        total = sum(part.takers.values())
        for osd, weight in part.takers.items():
            added = part.share * _used_bytes(part.holders, space) * weight / total
            by_holders = received.setdefault(osd, {})
            before = by_holders.get(part.holders, 0.0)
            by_holders[part.holders] = before + added if part.is_known else max(before, added)
    for osd, added_by_holders in sorted(received.items()):
        added = sum(added_by_holders.values())
        if osd in space and space[osd].total_bytes:
            used = (space[osd].used_bytes + added) / space[osd].total_bytes
            if used > limit:
                raise Refused(errno.ENOSPC, 'not enough space: osd.%d would be %d %% full with '
                              'another %s (nearfull is %d %%)%s' % (
                                  osd, 100 * used, bytes_text(added), 100 * limit, _LESS))


def _parts(osds: Set[int], emptied: Set[int], facts: OrderFacts) -> List[_Part]:
    """The data of `osds` by CRUSH rule, with the OSDs that take it: those under the rule that are
    not `emptied`.

    A pool under a rule without a device class, such as .mgr, may be on all OSDs: that gives the
    data of other pools no room on OSDs of another class.
    """
    crush = facts.crush
    rules = sorted({pool.crush_rule for pool in facts.osdmap.pools.values()})
    weights = {rule: {osd: weight for osd in facts.osdmap.osds
                      for weight in [crush.weight_of(rule, osd)] if weight > 0} for rule in rules}
    groups: Dict[Tuple[int, ...], Set[int]] = {}
    for osd in osds:
        groups.setdefault(tuple(rule for rule in rules if osd in weights[rule]), set()).add(osd)
    parts: List[_Part] = []
    # OSDs that no rule uses hold nothing that CRUSH would move.
    for used_by, holders in groups.items():
        data = {rule: _raw_bytes(rule, facts) * sum(weights[rule][osd] for osd in holders)
                / sum(weights[rule].values()) for rule in used_by}
        total = sum(data.values())
        parts += [_Part(
            rule, frozenset(holders), data[rule] / total if total else 1.0, bool(total), {
                osd: weight for osd, weight in weights[rule].items()
                if osd not in emptied and serves(osd, facts.osdmap)}) for rule in used_by]
    return parts


def _raw_bytes(rule: int, facts: OrderFacts) -> float:
    """Bytes of all copies or shards of the pools under a rule; 0: not known, or none."""
    return sum([facts.pool_space.get(pool.id, 0) * pool.size / max(1, pool.data_shards)
                for pool in facts.osdmap.pools.values() if pool.crush_rule == rule])


def _number(value: float) -> str:
    """A CRUSH weight, or seconds, as text."""
    return ('%.5f' % value).rstrip('0').rstrip('.')
