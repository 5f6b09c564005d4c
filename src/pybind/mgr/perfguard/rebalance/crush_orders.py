# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that change CRUSH, and their rollback. Predicting their effects requires the maps and the
tools of Ceph.

For a rollback the old weights, or the old CRUSH map, are sent with the pins of the PGs that have
moved meanwhile, as in joining.py. The pins that this makes unnecessary are removed once the change
is read back: the mons may refuse a change of CRUSH and still remove pins that are sent with it.
"""
import errno
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import (Callable, Collection, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple,
                    Optional, Sequence, Set, Tuple, TypeVar, Union)

from ..cluster.ports import Cluster, NoFuture, Outlook, ToolFailed
from ..cluster.types import NO_OSD, Document, OsdMap, PoolRule, PoolSetting, Space
from ..codec import encode
from ..errors import Refused
from ..observation import Observation
from ..options import Options
from ..store import Store
from ..text import listed
from .balancing import balance_ordered, check_balance
from .campaign import AnyChange, Campaign
from .change import NO_PINS, NO_WEIGHTS, Change, Details
from .what_if import growth, loss_of, lost_osds
from .join_plan import bases_of, entries_needed, for_same_mons, plan_join
from .least_moves import least_moves, moves_for_map, why_all_follow
from .orders import (DRAINED_WEIGHT, EARLIER_MAP, LOSE, WEIGHT_VERBS, Order, OrderFacts, check_map,
                     check_names, map_back, reasons_not_new, weights_back)
from .pg_num import (check_pg_num, final_numbers, pg_num_details, pg_num_ordered, pgs_by_split,
                     step_to)
from .pool_change import first_moves, refuse_incomplete
from .pool_rule import (RuleChange, bridging_rule, may_stay, rule_details, rule_ordered,
                        with_names)
from .preview import Preview, preview_of, weights_preview
from .types import Bounds, PinRecord
from .whole_map import MapChange

#: Documents: CRUSH weights of drained OSDs; new OSDs of expansions; the CRUSH map of the active
#: campaign, and the digest of the one that it replaces.
DRAINED = 'drained'
ADDED = 'added'
CRUSH_MAP = 'crushmap'
#: CRUSH as it was before the campaign (CrushBefore).
CRUSH_BEFORE = 'crushbefore'
CRUSH_BASE = 'crushbase'
#: Parts of CRUSH that a refusal names.
NAMED_PARTS = 10
Computed = TypeVar('Computed')


@dataclass(frozen=True)
class CrushBefore:
    """The document CRUSH_BEFORE."""
    version: int
    map: bytes


class CrushOrders:
    """Prepares and journals CRUSH changes for orders and campaigns."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        #: OSD -> the record of its drain.
        self._records: Dict[int, Drained] = {}
        #: OSD -> its record, of new OSDs of the active expansion, and of expansions that were
        #: rolled back.
        self._added: Dict[int, Added] = {}

    def foreseeing(self, observation: Observation, change: Change) -> Callable[[], Outlook]:
        """A function for the tool thread: where CRUSH will place the PGs after a change."""
        crush_map = None
        if isinstance(change, MapChange):
            crush_map, _ = self._stored_map()
            if crush_map is None:
                return lambda: NoFuture('the new CRUSH map is no longer in the store')
        space = self._cluster.osd_space()
        return lambda: change.foreseen(
            self._outlook(observation, change.chunk, crush_map, whole=change.whole,
                          setting=change.setting), observation, space)

    def _outlook(self, observation: Observation, weights: Mapping[int, float] = NO_WEIGHTS,
                 crush_map: Optional[bytes] = None, whole: bool = True,
                 setting: Optional[PoolSetting] = None) -> Outlook:
        """The mapping after a change, for mons that keep upmaps as the observation says. Parameters
        as those of crush_preview.outlook."""
        return for_same_mons(self._cluster.outlook(
            observation.osdmap, weights, crush_map, whole, setting), observation.crush)

    def overtaken(self, observation: Observation, change: Change) -> str:
        """Text on the parts of CRUSH that others have changed since a whole new map was ordered;
        '': none, or the change is another one."""
        if not isinstance(change, MapChange) or not change.crush_version \
                or observation.crush_version == change.crush_version:
            return ''
        before, now = self._stored_base()[0], observation.crush.digest
        # The identity lacks the names of rules. `before`: {}: it is not known.
        is_same = observation.crush.identity == change.crush_identity and before in ({}, now)
        return '' if is_same else changed_crush_parts(before, now)

    def facts(self, observation: Observation,
              space: Optional[Mapping[int, Space]] = None) -> OrderFacts:
        """What the effects of orders depend on. `space`: that of OSDs, from an earlier reading, or
        {} if it does not matter; None: read it."""
        return OrderFacts(observation.osdmap, observation.crush,
                          self._cluster.osd_space() if space is None else space,
                          self._drained(observation), {
                              osd: dict(record.uneven)
                              for osd, record in self._records.items() if record.uneven},
                          undone=self._undone(observation.osdmap),
                          removing=observation.orchestrating.removing,
                          pool_space=observation.signals.spaces)

    def _preview_facts(self, observation: Observation, rates: Sequence[float]) -> OrderFacts:
        """The facts for a preview, which are more than those of `facts`."""
        return replace(self.facts(observation), shared=self._cluster.pool_shared(),
                       pg_limit=self._cluster.pgs_per_osd_limit(), rates=rates)

    def drive_ids(self, osds: Iterable[int]) -> Mapping[int, str]:
        """OSD -> vendor, model and serial number of its main drive."""
        return self._cluster.drive_ids(osds)

    def check_arguments(self, order: Order, observation: Observation) -> None:
        """Raise Refused for arguments of an order that are invalid, or that name what does not
        exist. The files of `crushmap` are checked later, by the tools of Ceph."""
        if order.verb == 'rule':
            rule_ordered(order.names, observation.osdmap, observation.crush)
        elif order.verb == 'pg_num':
            check_pg_num(order.names, observation.osdmap)
        elif order.verb == 'balance':
            check_balance(order, observation)
        elif order.verb in WEIGHT_VERBS:
            # {}: the space on OSDs is not needed for names.
            check_names(order, self.facts(observation, space={}))

    def previewing(self, order: Order, observation: Observation, options: Options,
                   rates: Sequence[float] = ()) -> Callable[[], Preview]:
        """A function for the tool thread: the change of an order, and its effects.

        The function raises Refused. `rates`: bytes per second of earlier campaigns.
        """
        facts = self._preview_facts(observation, rates)
        bounds = Bounds.of(options) if options.target == 'balanced' else None
        verbs: Mapping[str, Callable[[Order, Observation, OrderFacts], Preview]] = {
            **dict.fromkeys(WEIGHT_VERBS, partial(self._preview_weights, bounds)),
            'crushmap': partial(self._preview_map, bounds),
            'rule': partial(self._preview_rule, bounds),
            'pg_num': self._preview_pg_num, 'balance': self._preview_balance}
        preview = verbs[order.verb]

        def work() -> Preview:
            return preview(order, observation, facts).with_balance_and_effects(
                order, facts, observation, options)

        return work

    def supposing(self, order: Order, observation: Observation, options: Options,
                  rates: Sequence[float]) -> Callable[[], Document]:
        """A function for the tool thread: the answer of an order that supposes a cluster which has
        lost OSDs (LOSE), or has more hosts (`what_if`). The function raises Refused. `rates`: bytes
        per second of earlier campaigns."""
        facts = self._preview_facts(observation, rates)

        def lose() -> Document:
            lost = lost_osds(order, facts)
            future = _computed(
                for_same_mons(self._cluster.shrunk(observation.osdmap, lost), observation.crush),
                'compute where PGs would be')
            return loss_of(order, lost, future, observation, facts).as_json()

        def grow() -> Document:
            supposed = growth(order, facts)
            grown = _computed(self._cluster.grown(observation.osdmap, supposed.new),
                              'compute where PGs would be')
            # The observation and the facts have the new OSDs without weight, as an expansion finds
            # them; `future` already has their weights, so it is the outlook of this expansion.
            future = for_same_mons(grown.future, observation.crush)
            observed_then = supposed.observed(observation, grown)
            facts_then, expand = supposed.facts(facts, observed_then), supposed.order(order)
            preview = weights_preview(
                expand, facts_then, observed_then, lambda change: future,
                self._cluster.config_entries() if observation.crush.weight_sets else None)
            preview = preview.with_balance_and_effects(expand, facts_then, observed_then, options)
            return {**preview.answer(expand, None, observed_then, options), **preview.measured_eta,
                    'what_if': supposed.as_json()}

        return lose if order.verb == LOSE else grow

    def _preview_weights(self, bounds: Optional[Bounds], order: Order, observation: Observation,
                         facts: OrderFacts) -> Preview:
        """The preview of other CRUSH weights. `bounds`: of the balance, which depends on all PGs;
        None: the end state is that of CRUSH. Raises Refused."""
        return weights_preview(
            order, facts, observation, lambda change: self._outlook(
                observation, change.weights, whole=bounds is not None),
            self._cluster.config_entries() if observation.crush.weight_sets else None)

    def _preview_map(self, bounds: Optional[Bounds], order: Order, observation: Observation,
                     facts: OrderFacts) -> Preview:
        """The preview of another CRUSH map. `bounds`: PGs that the map does not allow to stay move
        before it is set, no more than map and balance require; None: they move with it."""
        try:
            # The number of ids of OSDs limits the size of the map.
            crush_map = self._cluster.compiled_crush_map(
                order.crush_map or b'', 1 + max(observation.osdmap.osds, default=-1))
            rules = self._cluster.crush_rules(crush_map)
        except ToolFailed as failure:
            raise Refused(errno.EINVAL, 'not a CRUSH map: %s' % failure) from failure
        check_map(rules, facts)
        if order.prior_version is not None and order.prior_version != observation.crush_version:
            raise Refused(errno.EPERM, 'the CRUSH map has version %d, not %d: it has changed since '
                          '"ceph osd getcrushmap"' % (observation.crush_version,
                                                      order.prior_version))
        preview = self._preview_of(MapChange.to(rules, observation), observation, crush_map)
        if bounds is None or not preview.planned.unpinnable:
            _refuse_upmaps_max(order, 'no PGs move before the CRUSH map is set')
            return preview
        return _with_first_moves(preview, observation, bounds, order)

    def _preview_rule(self, bounds: Optional[Bounds], order: Order, observation: Observation,
                      _: OrderFacts) -> Preview:
        """The preview of another CRUSH rule of a pool. `bounds`: PGs move no more than the rule and
        the balance require; None: they end where the rule places them. Raises Refused."""
        rule = rule_ordered(order.names, observation.osdmap, observation.crush)
        # Of all PGs, also those that stay where they are; nothing but the rule changes.
        outlook = _computed(self._outlook(observation, setting=rule),
                            'preview the CRUSH rule')
        pool, crush = observation.osdmap.pools[rule.pool], observation.crush
        refuse_incomplete(pool, outlook, order.names[1])
        change, fewest_moves, warnings = RuleChange(rule=rule), None, []
        planned = plan_join(observation.osdmap, outlook,
                            pool_bytes=observation.signals.pool_bytes)
        # The new rule does not allow them to stay where they are.
        must_move = {pgid for pgid in planned.unpinnable if may_stay(
            pool, outlook.pgs[pgid].acting, crush, observation.osdmap.out)}
        if not must_move:
            _refuse_upmaps_max(order, 'the new rule allows every PG to stay where it is')
        else:
            why = why_all_follow(pool, outlook.crush, observation.balancing)
            if bounds is not None and not why:
                fewest_moves = least_moves(outlook, pool, observation, bounds, order.upmaps_max)
            else:
                text = 'all PGs move to where the new rule places them: ' + (
                    why if bounds is not None else 'target=crush')
                _refuse_upmaps_max(order, text)
                warnings = [] if bounds is None else [text]
            finals = None if fewest_moves is None else fewest_moves.finals
            # The rule while PGs move, which allows both places: the present or an intermediate one.
            via = bridging_rule(pool, outlook, crush, observation.osdmap, rule.rule, finals)
            unpinnable = {pgid: why for pgid, why in planned.unpinnable.items()
                          if pgid not in must_move}
            planned = first_moves(observation, outlook, finals,
                                  changed=replace(pool, crush_rule=via))
            if via == pool.crush_rule:
                change = replace(change, moves_first=True)
            else:
                # All PGs are pinned in the epoch of the intermediate rule.
                change = replace(change, rule=PoolRule(pool.id, via), then=rule.rule)
                planned = replace(planned, unpinnable={**planned.unpinnable, **unpinnable})
            change = replace(change, least=None if fewest_moves is None else bounds,
                             upmaps_max=order.upmaps_max)
        change = with_names(change, observation.osdmap, crush)
        details = rule_details(change, observation.osdmap, crush, fewest_moves)
        return Preview(change, planned, outlook=None if details.moves_first else outlook,
                       details=details,
                       warnings=(*warnings, *(risk.text for risk in details.risks)))

    def _preview_pg_num(self, order: Order, observation: Observation, _: OrderFacts) -> Preview:
        """The preview of another pg_num of a pool: its first step, with the moves of all steps
        together. Raises Refused."""
        osdmap = observation.osdmap
        pool, pg_num = pg_num_ordered(self._pool_and_number(order), osdmap,
                                      observation.crush, *self._cluster.mon_pg_limits())
        if not order.dry_run and len(order.names) == 1:
            raise Refused(errno.EINVAL, 'pg_num is missing: the pg_autoscaler recommends %d for '
                          'pool %s ("ceph perfguard pg_num %s %d --dry-run" shows what would move)'
                          % (pg_num, pool.name, quote(pool.name), pg_num))
        setting = final_numbers(pool, pg_num)
        # False: only of PGs that move or have an upmap.
        outlook = _computed(self._outlook(observation, whole=False, setting=setting),
                            'preview pg_num')
        refuse_incomplete(pool, outlook, observation.crush.rule_name(pool.crush_rule))
        planned = first_moves(observation, outlook, changed=replace(pool, pg_num=setting.pg_num))
        step = step_to(osdmap, pool, pg_num, pool.pg_num, observation.split_limit)
        assert step is not None  # pg_num_ordered refuses the present pg_num
        return Preview(step, planned, details=pg_num_details(pool, pg_num),
                       pgs_by_split=pgs_by_split(pool, pg_num, outlook))

    def _preview_balance(self, order: Order, observation: Observation,
                         facts: OrderFacts) -> Preview:
        """The preview of a balance of pools. Raises Refused."""
        outlook = _computed(self._outlook(observation),
                            'read where CRUSH places the PGs')
        change, details, planned = balance_ordered(order, observation, facts.space, outlook)
        return Preview(change, planned, details=details)

    def _pool_and_number(self, order: Order) -> Tuple[str, str]:
        """The pool and its new pg_num: the autoscaler's recommendation if the order names only a
        pool."""
        pool, *number = order.names
        if number:
            return pool, number[0]
        try:
            recommended = self._cluster.recommended_pg_nums()
        except OSError as error:
            raise Refused(errno.EIO, 'cannot read the recommended pg_num: %s (try again)'
                          % error) from error
        if pool not in recommended:
            raise Refused(errno.ENOENT, 'the pg_autoscaler recommends no pg_num for pool %r: give '
                          'the number, "pg_num <pool> <number>"' % pool)
        return pool, str(recommended[pool])

    def mgr_is_behind_mons(self, observation: Observation) -> bool:
        """Whether the CRUSH map of this mgr is known to be older than that of the mons."""
        try:
            return self._cluster.crush_map()[1] > observation.crush_version
        except OSError:
            # Without an answer the commands may have been executed. The mons are asked again.
            return True

    def remember(self, observation: Observation) -> None:
        """Journal the CRUSH map from before a campaign, for its rollback. Raises Refused if it
        cannot be had; a map from before an earlier campaign then stays."""
        try:
            crush_map, version = self._cluster.crush_map()
        except OSError as error:
            raise _no_way_back(str(error)) from error
        if version != observation.crush_version:
            raise _no_way_back(
                'CRUSH is changing: the mons have version %d, this mgr has version %d' % (
                    version, observation.crush_version))
        self._store.put(CRUSH_BEFORE, encode(CrushBefore(version, crush_map)))

    @property
    def knows_before(self) -> bool:
        """Whether CRUSH from before the campaign is known."""
        return self._stored_before()[0] is not None

    def forget_before(self) -> None:
        """Forget CRUSH from before the campaign: it changed before the campaign began."""
        self._store.remove(CRUSH_BEFORE)

    def previewing_back(self, campaign: Campaign, pins: Mapping[str, PinRecord],
                        observation: Observation, options: Options,
                        rates: Sequence[float]) -> Callable[[], Preview]:
        """A function for the tool thread: the change that rolls the campaign back, and its effects.
        The function raises Refused.

        Raises Refused at once if there is nothing to restore. `rates`: bytes per second of earlier
        campaigns.
        """
        undone = campaign.change
        moves = None if undone is None else undone.moves_back(observation)
        crush_map = self._crush_map_before(observation) if moves is None else b''
        facts = replace(self._preview_facts(observation, rates), drained={
            osd: record.weight for osd, record in self._records.items()})
        pins = dict(pins)  # the loop changes them meanwhile

        def work() -> Preview:
            if undone is not None and moves is not None:
                # Its upmaps lead back, and CRUSH stays as it is.
                preview = Preview(replace(undone, ahead={}), moves, entries=0)
            else:
                preview = self._preview_back(campaign, pins, observation, crush_map, facts)
            return preview.with_effects(facts, observation, options)

        return work

    def _preview_back(self, campaign: Campaign, pins: Mapping[str, PinRecord],
                      observation: Observation, crush_map: bytes, facts: OrderFacts) -> Preview:
        """The preview of a rollback by CRUSH: to the weights from before the campaign or, if the
        maps differ in more than weights, to the whole map `crush_map`. Raises Refused."""
        try:
            rules = self._cluster.crush_rules(crush_map)
        except ToolFailed as failure:
            raise Refused(errno.EIO, 'cannot read the CRUSH map from before the campaign: %s '
                          '(try again)' % failure) from failure
        # None: the maps differ in more than the weights of OSDs; {}: they do not differ.
        weights = observation.crush.weights_towards(rules)
        if weights == {}:
            raise _nothing_to_restore(observation)
        outlook = _computed(self._outlook(
            observation, weights or {}, None if weights else crush_map, whole=False),
                            'preview the rollback')
        # OSDs that hold PGs, or are about to: they must not get weight 0 yet.
        with_pgs = {osd for pg in outlook.pgs.values() for osd in pg.acting} - {NO_OSD}
        flights = campaign.flights.in_flight.values()
        with_pgs.update(osd for flight in flights for osd in flight.targets)
        change: AnyChange
        if weights:
            change = weights_back(weights, facts, with_pgs)
        else:
            change = map_back(rules, facts, with_pgs, observation)
        preview = self._preview_of(change, observation, None if weights else crush_map, pins)
        if preview.no_outlook:
            raise _not_computed('preview the rollback', preview.no_outlook)
        return preview

    def _crush_map_before(self, observation: Observation) -> bytes:
        """The CRUSH map from before the campaign. Raises Refused if it is not known, or if it is
        still in force."""
        before, _ = self._stored_before()
        if before is None:
            raise Refused(errno.ENOENT, 'the CRUSH map from before the campaign is not known: '
                          + EARLIER_MAP)
        if before.version == observation.crush_version:
            raise _nothing_to_restore(observation)
        return before.map

    def _stored_before(self) -> Tuple[Optional[CrushBefore], List[str]]:
        """CRUSH from before the campaign, if it is known; errors if it cannot be read."""
        return self._store.load(CRUSH_BEFORE, Optional[CrushBefore], None)

    def _stored_map(self) -> Tuple[Optional[bytes], List[str]]:
        """The new CRUSH map of the campaign, if it has one; errors if it cannot be read."""
        return self._store.load(CRUSH_MAP, Optional[bytes], None)

    def _stored_base(self) -> Tuple[Dict[str, int], List[str]]:
        """The digest of the map that the new one replaces, {} if it is not known; errors if it
        cannot be read."""
        return self._store.load(CRUSH_BASE, Dict[str, int], {})

    def _preview_of(self, change: AnyChange, observation: Observation,
                    crush_map: Optional[bytes],
                    pins: Mapping[str, PinRecord] = NO_PINS) -> Preview:
        """The preview of new CRUSH weights, or of a whole map (`crush_map`; None: of weights).
        `pins`: those of the campaign that is rolled back, which show the entries from before it.
        Raises Refused for a map whose effects cannot be computed."""
        outlook = self._outlook(observation, change.weights, crush_map, whole=True)
        if crush_map is not None:
            outlook = _computed(outlook, 'preview the CRUSH map')
        return preview_of(change, outlook, observation, crush_map, bases_of(pins))

    def journal(self, preview: Preview, observation: Observation) -> None:
        """Journal what a campaign that begins needs besides its own document: the new CRUSH map,
        and the records of the OSDs that it drains or adds."""
        if preview.crush_map is not None:
            self._store.put(CRUSH_BASE, observation.crush.digest)
            self._store.put(CRUSH_MAP, encode(preview.crush_map))
        if preview.change.drained:
            weights = observation.crush.weights()
            # A rollback that continues an earlier one finds tiny weights: these are not recorded.
            self._put_drained({**self._records, **{osd: Drained(
                weights[osd], observation.osdmap.osds[osd].uuid
                if osd in observation.osdmap.osds else '',
                tuple(sorted(observation.crush.uneven.get(osd, {}).items())))
                for osd in preview.change.drained if weights[osd] > DRAINED_WEIGHT}})
        self._note_added(preview.order, preview.change, observation)

    def _note_added(self, order: Optional[Order], change: Change, observation: Observation) -> None:
        """Record the new OSDs that an expansion adds. `order`: None for a rollback, after which
        the recorded OSDs to which it gives their earlier weight count as new again."""
        added = self._added
        if order is None:
            self._put_added({osd: record._replace(undone=record.undone or osd in change.weights)
                             for osd, record in added.items()})
        elif order.verb == 'expand':
            # '': the OSD is new.
            why_not_new, osds = reasons_not_new(self.facts(observation)), observation.osdmap.osds
            # Until the weights are in force, an abort leaves the state after an earlier rollback.
            undone = self._undone(observation.osdmap)
            self._put_added({**added, **{osd: Added(osds[osd].uuid, osd in undone)
                                         for osd in change.weights if why_not_new.get(osd) == ''}})

    def remove_maps(self) -> None:
        """Remove the CRUSH maps of a campaign that has ended."""
        self._store.remove(CRUSH_MAP)
        self._store.remove(CRUSH_BEFORE)
        self._store.remove(CRUSH_BASE)

    def load(self) -> List[str]:
        """Load the records, which another mgr may have changed; returns texts on what cannot be
        read."""
        self._records, drained_errors = self._store.load(DRAINED, Dict[int, Drained], {})
        self._added, added_errors = self._store.load(ADDED, Dict[int, Added], {})
        # Other documents are read when a rollback, or a change that is not sent yet, needs them.
        lost = (('the drained OSDs', drained_errors), ('the new OSDs', added_errors),
                ('the CRUSH map from before the campaign', self._stored_before()[1]),
                ('the new CRUSH map of the campaign', self._stored_map()[1]),
                ('the checksums of CRUSH from before the campaign', self._stored_base()[1]))
        return ['%s (%s)' % (what, error) for what, errors in lost for error in errors]

    def renew(self, osdmap: OsdMap, weights: Mapping[int, float]) -> None:
        """Record these weights for `undrain`, with the new devices of the OSDs."""
        records = self._records
        new = {osd: Drained(weight, osdmap.osds[osd].uuid) for osd, weight in weights.items()}
        if any(records.get(osd) != record for osd, record in new.items()):
            self._put_drained({**records, **new})

    def on_other_device(self, osdmap: OsdMap) -> FrozenSet[int]:
        """OSDs that were created again after the drain of their id was ordered."""
        osds = osdmap.osds
        return frozenset(osd for osd, record in self._records.items()
                         if record.uuid and osd in osds and not osds[osd].destroyed
                         and osds[osd].uuid != record.uuid)

    def forget_added(self, osds: Collection[int]) -> None:
        """Forget that these OSDs were new: their devices must not be filled again."""
        self._put_added({osd: record for osd, record in self._added.items()
                         if osd not in osds})

    def forget_old_records(self, observation: Observation, campaign: Campaign,
                           may_write: Callable[[], bool]) -> None:
        """Forget the records of drained and of new OSDs that nothing needs any longer. `campaign`:
        the open one, or NO_CAMPAIGN; `may_write`: whether this mgr owns the journal."""
        if not self._records and not self._added:
            return
        needed = self._needed_drains(observation, campaign)
        needed_added = self._needed_added(observation, campaign)
        if (needed != self._records or needed_added != self._added) and may_write():
            self._put_drained(needed)
            self._put_added(needed_added)

    def _needed_drains(self, observation: Observation, campaign: Campaign) -> Dict[int, 'Drained']:
        """The records of drains, without those of OSDs that were purged, since their ids may be
        reused, and of OSDs that have a weight again, which `undrain` must not replace by the
        earlier one. OSDs whose weight the campaign is about to change keep their records."""
        changing = _changing(campaign)
        return {osd: record for osd, record in self._records.items()
                if osd in observation.osdmap.osds
                and (osd in changing or _is_empty(osd, observation))}

    def _needed_added(self, observation: Observation, campaign: Campaign) -> Dict[int, 'Added']:
        """The records of new OSDs whose expansion has not ended, or was rolled back and left them
        empty. The weights of another expansion, once in force, overrule a rollback."""
        changing = _changing(campaign)
        # At its end, the change to weight 0 for the OSDs of an earlier drain replaces the change of
        # an expansion, whose OSDs are then no longer in `changing`.
        closing = campaign.change is not None and campaign.change.closing
        going_back = campaign.rollback.begun or campaign.rollback.wanted is not None
        empty = {osd for osd in self._added if _is_empty(osd, observation)}
        return {osd: record._replace(undone=record.undone and (going_back or osd in empty))
                for osd, record in self._added.items()
                if osd in changing or closing or record.undone and osd in empty}

    def _drained(self, observation: Observation) -> Dict[int, float]:
        """OSD -> its CRUSH weight from before its drain, of OSDs that have received none since.

        An OSD with another uuid is new if the id was purged, which also clears `has_led`. If the
        earlier OSD was only destroyed, its weight still counts.
        """
        weights, osds = observation.crush.weights(), observation.osdmap.osds

        def is_new(osd: int, record: Drained) -> bool:
            has_other_uuid = osd in osds and bool(record.uuid) and osds[osd].uuid != record.uuid
            return weights[osd] == 0.0 and has_other_uuid and not osds[osd].has_led

        return {osd: record.weight for osd, record in self._records.items()
                if weights.get(osd, 1.0) <= DRAINED_WEIGHT and not is_new(osd, record)}

    def _put_drained(self, records: Dict[int, 'Drained']) -> None:
        """Make these the records of drains, also in the store."""
        if records != self._records:
            self._store.put_or_remove(DRAINED, encode(records, Dict[int, Drained]))
            self._records = records

    def _undone(self, osdmap: OsdMap) -> FrozenSet[int]:
        """OSDs that were new before an expansion that was rolled back, with the same devices."""
        return frozenset(osd for osd, record in self._added.items() if record.undone
                         and record.uuid and osd in osdmap.osds
                         and osdmap.osds[osd].uuid == record.uuid)

    def _put_added(self, records: Dict[int, 'Added']) -> None:
        """Make these the records of new OSDs, also in the store."""
        if records != self._added:
            self._store.put_or_remove(ADDED, encode(records, Dict[int, Added]))
            self._added = records


def _with_first_moves(preview: Preview, observation: Observation, bounds: Bounds,
                      order: Order) -> Preview:
    """The preview of a CRUSH map that does not allow all PGs to stay where they are: the others
    move before it is set, no more than map and balance require. Unchanged if none has to. Raises
    Refused for a limit of upmaps (--upmaps-max) that is too low, or that does not apply."""
    assert isinstance(preview.change, MapChange) and preview.outlook is not None
    upmaps_max, osdmap = order.upmaps_max, observation.osdmap
    fewest = moves_for_map(preview.outlook, observation, bounds, upmaps_max)
    if upmaps_max is not None and fewest.upmaps > upmaps_max:
        raise Refused(errno.EINVAL, '--upmaps-max must be at least %d: the current CRUSH map does '
                      'not allow the other PGs to be where the new one places them'
                      % fewest.upmaps)
    change = replace(preview.change, least=bounds, upmaps_max=upmaps_max,
                     limited=() if upmaps_max is None else fewest.pools, balanced=fewest.balanced)
    outlook = replace(preview.outlook, finals=fewest.finals)
    moving_first = change.first_moves(observation, outlook, {})
    if moving_first is None:
        _refuse_upmaps_max(order, 'no PGs move before the CRUSH map is set')
        return preview
    # up=(): not known, since the upmap entries of these PGs change before.
    once_moved = replace(outlook, pgs={**outlook.pgs, **{
        pgid: outlook.of(pgid)._replace(acting=fewest.finals[pgid], up=())
        for pgid in moving_first.pins}})
    planned = plan_join(osdmap, once_moved, change.drains(observation.crush, once_moved),
                        observation.signals.pool_bytes, evacuation=observation.evacuation)
    return replace(
        preview, change=change, planned=planned, outlook=once_moved,
        first=tuple(moving_first.moves.values()),
        entries=entries_needed(planned, once_moved, osdmap),
        details=Details('crushmap', {'pgs': len(moving_first.pins),
                                     'least_moves': fewest.as_json()}, upmaps=fewest.upmaps))


def _refuse_upmaps_max(order: Order, why: str) -> None:
    """Raise Refused if the order limits upmaps, for a change that does not choose any. `why`: why
    it does not."""
    if order.upmaps_max is not None:
        raise Refused(errno.EINVAL, '--upmaps-max does not apply: ' + why)


def _computed(result: Union[Computed, NoFuture], what: str) -> Computed:
    """The result; raises Refused if Ceph's tools have none."""
    if isinstance(result, NoFuture):
        raise _not_computed(what, result.reason)
    return result


def _not_computed(what: str, reason: str) -> Refused:
    return Refused(errno.EIO, 'cannot %s: %s (try again)' % (what, reason))


def _no_way_back(why: str) -> Refused:
    # The command tries again for a while, and a queued order later.
    return Refused(errno.EAGAIN, 'no rollback would be possible: %s (try again)' % why,
                   not_fit=True)


def _nothing_to_restore(observation: Observation) -> Refused:
    return Refused(errno.ENOENT, 'CRUSH has not changed since the campaign began (version %d): '
                   '"campaign abort" or "finish --keep" ends it' % observation.crush_version)


def _is_empty(osd: int, observation: Observation) -> bool:
    """Whether an OSD exists and is drained: it has no weight, or a tiny one."""
    return osd in observation.osdmap.osds \
        and observation.crush.weights().get(osd, 0.0) <= DRAINED_WEIGHT


def _changing(campaign: Campaign) -> Set[int]:
    """OSDs whose weights the campaign changes, or restores."""
    return {osd for change in campaign.changes if change is not None for osd in change.weights}


class Drained(NamedTuple):
    """The record of a drained OSD."""
    #: The CRUSH weight of the OSD from before.
    weight: float
    #: The uuid of the OSD; '': unknown.
    uuid: str = ''
    #: (location, weight) from before, where the weights differed between trees.
    uneven: Tuple[Tuple[str, float], ...] = ()


class Added(NamedTuple):
    """The record of an OSD that was new when its expansion began."""
    uuid: str
    #: The expansion was rolled back.
    undone: bool = False


def changed_crush_parts(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Text: the names of OSDs, buckets and rules that differ between two digests of CRUSH."""
    names = sorted((name for name in before.keys() | now.keys()
                    if before.get(name) != now.get(name)), key=_by_number)
    return listed(names, NAMED_PARTS) or 'tunables or weight sets'


def _by_number(name: str) -> Tuple[bool, int, str]:
    kind, _, number = name.rpartition('.')
    return kind != 'osd', int(number) if kind == 'osd' else 0, name
