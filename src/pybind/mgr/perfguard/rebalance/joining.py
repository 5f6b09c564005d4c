# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change of CRUSH together with the pins that keep every PG where it is: one burst, one epoch.

If the future mapping is not available, as in the preview of the order, or if the burst is split
over two epochs, the ordinary way remains: norebalance is set, and PGs that become remapped are
pinned.
"""
import zlib
from dataclasses import replace
from typing import AbstractSet, Dict, FrozenSet, List, NamedTuple, Optional

from ..cluster.crush import CrushRules
from ..cluster.ports import Future, NoFuture, Outlook
from ..cluster.types import OsdSet, Pool, UpmapEntry
from ..errors import Code, Reason
from ..observation import Observation
from ..options import Options
from ..tables import listed, osds_text, pgs, pgs_are, plural
from ..upmap.pins import INCOMPLETE, after_commit, without
from ..upmap.semantics import apply_entry, raw_from_up
from ..watch.stop_conditions import is_muted, is_waived
from .draft import Draft, has_own_crush
from .holds import flags_settled, waiting_text
from .join_plan import (Join, PlannedFuture, bases_of, bridging, hides_raw, in_both, is_given_up,
                        plan_join, undersized)
from .orders import is_tiny
from .pinning import STUCK_SECONDS, audit, pin_remapped
from .pool_change import (accepted, change_to, first_moves_of, has_numbers, has_targets,
                          interrupted, move_first, other_rule, pg_num_begun, stands_still,
                          step_now, step_text, stop_step, targets_of, too_early,
                          upmaps_to_remove)
from .releasing import balancer_of_others
from .tranches import (SHARE_MIN, divided, has_tranches, next_tranche, pin_limit, same_weight,
                       without_others)
from .types import (TINY_WEIGHT, Action, Campaign, Change, ChangeStage, Phase, PinRecord, Sent,
                    SetCrushMap, SetEntry, SetPoolPgs, SetPoolRule, SetWeight)

#: Attempts after which the change counts as refused by the mons.
SEND_TIMES = 3
#: Maximum number of pins that are sent with a change, which always fit into one proposal of the
#: mons. The weights of further OSDs wait for the next burst. PGs whose pins do not fit are remapped
#: until they are pinned. If these were most PGs of a large cluster, clients would stall.
MAX_BURST_PINS = 2000
#: Maximum number of PGs on a drained OSD that an event names.
NAMED = 10


def wants_outlook(campaign: Campaign, seen: Observation) -> bool:
    """The change is about to be sent, and nothing else of the campaign changes the mapping."""
    change = campaign.change
    return (campaign.phase is Phase.PINNING and change is not None
            and change.stage is ChangeStage.WANTED and change.needs_outlook
            and (change.pending or not campaign.pinning)
            and flags_settled(campaign.holds, seen.settings, True, True))


def closing_change(draft: Draft) -> Optional[Change]:
    """The change that ends a drain, or a rollback that empties OSDs, once no PG has to be kept on
    them: weight 0. The balancer takes an OSD of a tiny weight for one that lacks PGs."""
    change, osds = draft.campaign.change, tiny_osds(draft)
    if not osds or change is not None and change.closing:
        return None
    drained = {*osds, *(change.drained if change is not None else ())}
    return Change(dict.fromkeys(osds, 0.0), drained=tuple(sorted(drained)), closing=True)


def tiny_osds(draft: Draft) -> List[int]:
    """OSDs of the campaign's drain, and of one that it continues, that still have a tiny
    weight."""
    campaign, weights = draft.campaign, draft.seen.crush.weights()
    drained = {*campaign.draining, *(campaign.change.drained if campaign.change else ())}
    return sorted(osd for osd in drained if is_tiny(weights.get(osd, 0.0)))


def join(draft: Draft, ready: bool) -> Draft:
    """One step of a change: wanted -> sent -> landed."""
    change = draft.campaign.change
    assert change is not None
    if draft.campaign.undersized_pgs and draft.seen.new_map:
        draft = _forget_recovered(draft)
    if change.pending and landed(change, draft):
        return _land(draft, change)
    impossible = _impossible(draft, change)
    if impossible:
        return draft.enter(Phase.ABORTING, impossible)
    changed = _left_by_others(draft, _left_by_purge(draft, step_now(draft, change)))
    if changed != change:
        return name_others(draft, change, changed).set(change=changed)
    if change.stage is ChangeStage.WANTED:
        return _next_burst(draft, change, ready)
    if overdue(draft.campaign, draft.seen, draft.options):
        return _again(draft, change)
    return draft.set(change=accepted(draft, change)).because(
        Code.CRUSH_SENT, step_text(draft, change) if change.pgs else
        'waiting for the CRUSH change to show in the OSDMap')


def _impossible(draft: Draft, change: Change) -> str:
    """Why the change cannot be made any longer; '' if it can."""
    if change.pool is not None and change.pool not in draft.seen.osdmap.pools:
        return 'the pool no longer exists'
    replaced = other_rule(change, draft.seen.crush) if change.rule is not None else ''
    if replaced or interrupted(draft, change):
        return replaced or interrupted(draft, change)
    overtaken = draft.seen.overtaken
    return overtaken and 'CRUSH has changed since "crushmap": %s. Get the current ' \
        'CRUSH map, change it, and apply it again' % overtaken


def _next_burst(draft: Draft, change: Change, ready: bool) -> Draft:
    """Send it once its pins are known and, last, the mons gather commands for longer than by
    default. All other waits may be long, and clients would wait for each proposal of the mons."""
    outlook = draft.seen.outlook
    at_ease = draft.set(change=replace(change, gathers=False))
    if (change.done or change.tranche or change.moves_first or change.pgs) and not change.pending:
        draft = pin_remapped(draft)
        at_ease = draft.set(change=replace(change, gathers=False))
        if _unsettled(draft, change):
            return at_ease.because(
                Code.PINS_SENT, 'waiting for the pins of %d of %s'
                % (len(change.done), plural(len(change.weights), 'OSD'))
                if change.pool is None else
                'waiting until no PG of the pool is peering or waiting for its pin')
    if not ready:
        waiting = draft if _only_interval(draft) else at_ease
        return waiting.because(Code.SETTINGS, waiting_text(
            draft.seen.settings, 'norebalance is set, the balancer is off, and '
            'paxos_propose_interval is %s' % ('raised' if change.gathers else 'not raised')))
    if outlook is None and change.needs_outlook:
        return at_ease.because(Code.OUTLOOK, 'computing where CRUSH will place the PGs' + (
            draft.seen.outlook_failure and ' again: ' + draft.seen.outlook_failure))
    if change.closing and outlook is not None:
        staying = _staying(draft, change, outlook)
        if staying is not None:
            return _leave_weight(draft, change, staying)
    if isinstance(outlook, NoFuture) and not change.ordinary:
        return draft.enter(Phase.ABORTING,
                           'cannot preview the CRUSH change: %s' % outlook.reason)
    if change.moves_first and not change.pending and isinstance(outlook, Future):
        moves = first_moves_of(draft, change, outlook)
        if moves.pins:
            return move_first(draft, change, outlook, moves).enter(
                Phase.PINNED, 'the PGs move before the pool is changed')
    return _send(draft, change) if change.gathers else _gather(draft, change)


def _left_by_purge(draft: Draft, change: Change) -> Change:
    """The change without the OSDs of later bursts that were purged: no preview of it would ever
    succeed."""
    if change.pending or not change.done and not change.tranche:
        return change
    known = draft.seen.crush.weights()
    weights = {osd: weight for osd, weight in change.weights.items()
               if osd in change.done or osd in known}
    if len(weights) == len(change.weights):
        return change
    stage = change.stage if weights.keys() - set(change.done) else ChangeStage.LANDED
    return replace(change, weights=weights, stage=stage, burst=0, gathers=False)


def _left_by_others(draft: Draft, change: Change) -> Change:
    """A later tranche without the OSDs to which others have given another weight since the one
    before."""
    if not change.tranche or change.pending or change.done or change.stage is ChangeStage.LANDED:
        return change
    left = without_others(change, draft.seen.crush.weights())
    if len(left.weights) == len(change.weights):
        return change
    return replace(left, stage=change.stage if left.weights else ChangeStage.LANDED, step={},
                   share=1.0, burst=0, gathers=False)


def name_others(draft: Draft, before: Optional[Change], change: Change) -> Draft:
    """An event on the OSDs that the change leaves out."""
    known = draft.seen.crush.weights()
    others = [osd for osd in before.weights if osd in known and osd not in change.weights] \
        if before is not None else []
    return draft.event('join', 'the CRUSH weight of %s stays as it is' % osds_text(others),
                       'it was changed outside perfguard') if others else draft


class _Staying(NamedTuple):
    """OSDs on which PGs would lose their pins with weight 0, and why; None: it is not known."""
    osds: Optional[FrozenSet[int]]
    why: str


def _staying(draft: Draft, change: Change, outlook: Outlook) -> Optional[_Staying]:
    """None: no PG remains on the OSDs. Weight 0 would move PGs that do at once, since the mons
    drop pins to such OSDs. PGs that lack an OSD are awaited."""
    if isinstance(outlook, NoFuture):
        return _Staying(None, 'cannot preview weight 0: ' + outlook.reason)
    planned = _planned(draft, change, outlook)
    awaited = undersized(planned, outlook)
    lost = {pgid: _why_it_stays(draft, pgid, change, why.reason)
            for pgid, why in planned.unpinnable.items()
            if why != INCOMPLETE and pgid not in awaited}
    lost.update((pgid, 'CRUSH would find too few OSDs') for pgid in (
        *planned.unpinnable, *planned.pins) if is_given_up(pgid, outlook, draft.seen.osdmap))
    if not lost:
        return None
    remain = {osd for pgid in lost for osd in outlook.pgs[pgid].acting} & change.weights.keys()
    return _Staying(frozenset(remain), 'with weight 0, %s could not be pinned: %s' % (
        pgs(len(lost)), listed(['PG %s (%s)' % row for row in sorted(lost.items())], NAMED)))


def _leave_weight(draft: Draft, change: Change, staying: _Staying) -> Draft:
    """Leave the tiny weight to OSDs on which PGs remain."""
    left = {osd: weight for osd, weight in change.weights.items()
            if staying.osds is not None and osd not in staying.osds}
    if staying.osds is None or change.pending or len(left) in (0, len(change.weights)):
        return _leave_out(draft, change, staying.why)
    return _note_tiny(draft, staying.osds, staying.why).set(
        change=replace(change, weights=left, burst=0, gathers=False))


def _why_it_stays(draft: Draft, pgid: str, change: Change, why: str) -> str:
    """Why a PG is still on an OSD that was drained; `why` if it is not."""
    place, entry = draft.seen.placement(pgid), draft.seen.osdmap.entry(pgid)
    here = change.weights.keys() & set(place.up if place is not None else ())
    if not here:
        return why
    return '%s it on %s' % ('an upmap keeps' if here & set(entry.targets) else 'CRUSH still places',
                            osds_text(here))


def _leave_out(draft: Draft, change: Change, why: str) -> Draft:
    """End with the tiny weight."""
    if change.pending:
        draft = _unsent(draft, change)
    return _note_tiny(draft, change.weights.keys() - set(change.done), why).set(change=replace(
        change, weights={osd: change.weights[osd] for osd in change.done}, burst=0, times=0,
        gathers=False, stage=ChangeStage.LANDED), phase_since=draft.now)


def _note_tiny(draft: Draft, osds: AbstractSet[int], why: str) -> Draft:
    return draft.event(
        'join', 'the CRUSH weight of %s stays %s' % (osds_text(osds), TINY_WEIGHT), why)


def _only_interval(draft: Draft) -> bool:
    """Whether the burst waits for nothing but the longer interval of the mons."""
    return not balancer_of_others(draft) and flags_settled(
        draft.campaign.holds, draft.seen.settings, True, True)


def _unsettled(draft: Draft, change: Change) -> bool:
    """Whether the last burst is not completely in force; PGs that it has missed are pinned."""
    peering = draft.seen.signals.counts.in_transition > 0
    if change.pgs is not None and draft.now - change.since <= draft.seen.stats_period + 1:
        return True  # PGs that were split have not reported yet
    return bool(draft.left or draft.campaign.pinning
                or peering and draft.now - change.since <= STUCK_SECONDS)


def _gather(draft: Draft, change: Change) -> Draft:
    """Have the mons gather commands for longer, once all pins of the burst can be sent."""
    outlook = draft.seen.outlook
    if isinstance(outlook, Future) and not change.moves_first:
        planned = _planned(draft, change, outlook)
        others = set(undersized(planned, outlook)) - set(draft.campaign.undersized_pgs)
        incomplete = _awaits_osds(draft, len(others))
        if incomplete is not None:
            return draft.report(incomplete)
        smaller = _in_tranches(draft, change, planned)
        if smaller != change:
            return draft.set(change=smaller).because(
                Code.OUTLOOK, 'the change requires %d pins (limit %d, max_pins); computing it with '
                'a smaller part of the weights' % (
                    len(planned.pins), pin_limit(draft.options, draft.seen.osdmap,
                                                 draft.pin_count)))
        fewer = _divided(draft, change, _entries(draft, planned))
        if fewer != change:
            return draft.set(change=fewer).because(
                Code.OUTLOOK, 'the change requires %d pins, too many for one epoch; '
                'changing fewer OSDs at a time' % _entries(draft, planned))
    return draft.set(change=replace(change, gathers=True)).because(
        Code.SETTINGS, 'waiting until paxos_propose_interval is raised')


def _forget_recovered(draft: Draft) -> Draft:
    """Forget accepted PGs that have recovered: if they lack an OSD again, the change waits."""
    incomplete = []
    for pgid in draft.campaign.undersized_pgs:
        pool, place = draft.pool(pgid), draft.seen.placement(pgid)
        if pool is not None and (place is None or not pool.is_complete(place.acting)):
            incomplete.append(pgid)
    return draft.set(undersized_pgs=tuple(incomplete))


def _awaits_osds(draft: Draft, number: int) -> Optional[Reason]:
    """Why the change waits if `number` PGs besides those of the order lack an OSD. Without pins,
    all of them would be copied to other OSDs at once, although the OSD may only have restarted."""
    reason = Reason(Code.DEGRADED, '%s undersized and would be remapped by the change; waiting '
                    'until the OSDs are back or the PGs have recovered ("campaign accept '
                    'DEGRADED" changes CRUSH anyway)' % pgs_are(number))
    if number <= draft.campaign.undersized or is_muted(reason, draft.seen.signals) \
            or is_waived(reason, draft.campaign.acknowledged):
        return None
    return reason


def _in_tranches(draft: Draft, change: Change, planned: Join) -> Change:
    """The change with a smaller tranche if the present one requires too many pins."""
    others = len(draft.pinned().keys() - planned.pins.keys())
    most = pin_limit(draft.options, draft.seen.osdmap, draft.pin_count) - others
    begun = bool(change.done or change.burst)
    if len(planned.pins) <= most or begun or change.share <= SHARE_MIN \
            or not is_divisible(draft.campaign, draft.seen.crush):
        return change
    return divided(change, len(planned.pins), max(1, most), draft.seen.crush.weights())


def is_divisible(campaign: Campaign, crush: CrushRules) -> bool:
    """Whether the change comes in tranches if it requires too many pins. Half of a rollback would
    release the pins that the other half makes unnecessary."""
    change = campaign.change
    return change is not None and not change.closing and not campaign.rolled_back \
        and has_tranches(change, crush) \
        and not is_waived(Reason(Code.PIN_LIMIT, ''), campaign.acknowledged)


def following_tranche(draft: Draft) -> Optional[Change]:
    """The change with its next tranche, once the PGs of the present one have moved; None: it is in
    force as a whole, as far as others have not changed the weights."""
    change = draft.campaign.change
    if change is None or change.is_last:
        return None
    following = next_tranche(change, draft.seen.crush.weights())
    return following if following.weights else None


def _divided(draft: Draft, change: Change, pins: int) -> Change:
    """The change with fewer OSDs at a time if the burst requires too many pins."""
    if pins <= MAX_BURST_PINS or len(change.chunk) < 2:
        return change
    fitting = max(1, MAX_BURST_PINS * len(change.chunk) // pins)
    return replace(change, burst=min(fitting, len(change.chunk) - 1))


def _send(draft: Draft, change: Change) -> Draft:
    outlook = draft.seen.outlook
    planned = Join({}, {}, {})
    if isinstance(outlook, Future):
        planned = _planned(draft, change, outlook)
        early = too_early(draft, change, planned.unpinnable)
        if early:
            return draft.enter(Phase.ABORTING, early)
        if change.moves_first and not _restores(draft, change):
            draft = draft.note_pins({
                pgid: pin for pgid, pin in upmaps_to_remove(draft, outlook).items()
                if draft.pin_of(pgid) != pin})
    if not has_own_crush(draft.campaign, draft.seen):
        draft = draft.set(crush_own=-1)
    draft = _lead_elsewhere(draft, change.drained)
    draft = draft.send(*_commands(draft, change))
    if change.pgs is not None:
        change = replace(change, replaces=targets_of(draft.seen.osdmap.pools[change.pgs.pool]))
    if isinstance(outlook, NoFuture):
        draft = _adopt_upmaps(draft, change.drained).event(
            'join', 'the change remaps PGs first and perfguard pins them afterwards',
            outlook.reason)
    elif outlook is not None:
        draft = _note(draft, planned, outlook)
    return draft.set(change=replace(
        change, stage=ChangeStage.SENT, since=draft.now, times=change.times + 1,
        pins=len(planned.pins), vectors=planned.vectors, fingerprint=_expected(draft, change),
        tunables=_expected_crush(draft, change).tunables,
        crush_version=draft.seen.crush_version, gathers=False), pins_sent=draft.now).event(
            'join', 'changing %s and pinning %s in one OSDMap epoch' % (
                'CRUSH' if change.pgs is None else 'pg_num or pgp_num',
                pgs(len(planned.pins))), '%d of them with pg_upmap' % planned.vectors)


def _commands(draft: Draft, change: Change) -> List[Action]:
    """What changes CRUSH or the pool, without pins."""
    outlook, osdmap = draft.seen.outlook, draft.seen.osdmap
    actions: List[Action] = [SetWeight(osd, weight) for osd, weight in change.chunk.items()]
    if change.rule is not None:
        actions.append(SetPoolRule(osdmap.pools[change.rule.pool].name,
                                   draft.seen.crush.rule_name(change.rule.rule)))
    if change.pgs is not None:
        actions.append(SetPoolPgs(osdmap.pools[change.pgs.pool].name, change.pgs.pg_num,
                                  change.pgs.pgp_num))
    if isinstance(outlook, Future) and outlook.crush_map is not None:
        actions.append(SetCrushMap(outlook.crush_map, draft.seen.crush_version))
    return actions


def _restores(draft: Draft, change: Change) -> bool:
    """Whether the pins lead back to the upmaps from before the campaign."""
    return draft.campaign.rolled_back and not change.closing


def _planned(draft: Draft, change: Change, outlook: Future) -> Join:
    osdmap, drained = draft.seen.osdmap, change.drained
    if _restores(draft, change):
        return plan_join(osdmap, outlook, drained, bases=bases_of(draft.pinned()))
    if change.moves_first:
        return plan_join(osdmap, outlook, drained, bases=dict.fromkeys(
            upmaps_to_remove(draft, outlook), UpmapEntry()))
    return outlook.join if isinstance(outlook, PlannedFuture) else plan_join(
        osdmap, outlook, drained)


def _expected(draft: Draft, change: Change) -> int:
    if change.crush_map and isinstance(draft.seen.outlook, Future):
        return draft.seen.outlook.crush.fingerprint()
    return _rest_of_crush(draft, change)


def _expected_crush(draft: Draft, change: Change) -> CrushRules:
    """CRUSH whose tunables are in force after the change; new weights do not change them."""
    outlook = draft.seen.outlook
    return outlook.crush if change.crush_map and isinstance(outlook, Future) else draft.seen.crush


def _entries(draft: Draft, planned: Join) -> int:
    """Upmap entries to be sent."""
    return sum(draft.seen.osdmap.entry(pgid) != pin.entry for pgid, pin in planned.pins.items()) \
        + len(planned.removed)


def _lead_elsewhere(draft: Draft, drained: OsdSet) -> Draft:
    """Pins that an aborted campaign left must not be released to OSDs that are drained now."""
    if not drained:
        return draft
    return draft.note_pins({
        pgid: replace(pin, before=without(pin.before, drained))
        for pgid, pin in draft.pinned().items() if without(pin.before, drained) != pin.before})


def _adopt_upmaps(draft: Draft, drained: OsdSet) -> Draft:
    """Upmaps to drained OSDs stay in force under the tiny weight, so they have to be released."""
    osdmap = draft.seen.osdmap
    entries = {pgid: osdmap.entry(pgid) for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors)
               if draft.pin_of(pgid) is None}
    return draft.note_pins({pgid: PinRecord(without(entry, drained), entry)
                            for pgid, entry in entries.items()
                            if without(entry, drained) != entry})


def _note(draft: Draft, planned: Join, future: Future) -> Draft:
    """Note and send the pins of the change."""
    pins: Dict[str, PinRecord] = {}
    actions: List[Action] = []
    for pgid, pin in planned.pins.items():
        old = draft.pin_of(pgid)
        pins[pgid] = pin if old is None else replace(pin, before=old.before, was=old.was)
        present = draft.seen.osdmap.entry(pgid)
        if present != pin.entry:
            actions.append(SetEntry(pgid, in_both(draft, pgid, pin.entry, future), present))
    pinning = dict.fromkeys([action.pgid for action in actions if isinstance(action, SetEntry)],
                            Sent(draft.now))
    draft = draft.note_pins(pins).send(*actions)
    for pgid, entry in planned.removed.items():
        draft = _bridge(draft, pgid, entry, future)
    return draft.set(pinning={**draft.campaign.pinning, **pinning})


def _bridge(draft: Draft, pgid: str, entry: UpmapEntry, future: Future) -> Draft:
    """Send the entry of a pin that becomes unnecessary for the epoch of the change, mostly none.

    The mons may refuse the change of CRUSH and carry out all the rest. So the pin and its record
    stay until the change is read back, and `_unpin` removes them.
    """
    present, pin = draft.seen.osdmap.entry(pgid), draft.pin_of(pgid)
    sent = bridging(draft, pgid, entry, future)
    if pin is not None and hides_raw(draft, pgid, sent, future):
        # `_unpin` cannot see then where CRUSH places the PG.
        draft = draft.note_pins({pgid: replace(pin, goal=entry)})
    return draft if sent == present else draft.send(SetEntry(pgid, sent, present))


def _kept(draft: Draft, pgid: str, pool: Pool, up: OsdSet,
          base: UpmapEntry) -> Optional[UpmapEntry]:
    """The remaining part of the earlier entry if the PG stays in place with it, else None."""
    present, pin = draft.seen.osdmap.entry(pgid), draft.pinned()[pgid]
    raw = raw_from_up(up, present, draft.out)
    if raw is None:
        return pin.goal
    kept = after_commit(raw, base, pool, draft.seen.osdmap.osds, draft.seen.crush, pgid, draft.out)
    return kept if apply_entry(raw, kept, draft.out) == up else None


def _unpin(draft: Draft, change: Change) -> Draft:
    """Remove the pins that are unnecessary under the restored CRUSH map."""
    osdmap = draft.seen.osdmap
    needless: Dict[str, UpmapEntry] = {}
    for pgid, base in bases_of(draft.pinned()).items():
        pool, place = draft.pool(pgid), draft.seen.placement(pgid)
        if pool is None or place is None or pgid in osdmap.pg_temp or place.up != place.acting:
            continue
        if pgid in draft.campaign.pinning and osdmap.entry(pgid) != draft.pinned()[pgid].entry:
            continue  # the change needs this pin, which follows; until then the PG peers without it
        kept = _kept(draft, pgid, pool, place.up, base)
        if kept is not None and kept == without(kept, change.drained):
            needless[pgid] = kept
    if not needless:
        return draft
    return draft.forget_pins(needless).send(*[
        SetEntry(pgid, kept, osdmap.entry(pgid)) for pgid, kept in needless.items()
        if osdmap.entry(pgid) != kept
    ]).set(pinning={pgid: sent for pgid, sent in draft.campaign.pinning.items()
                    if pgid not in needless and draft.pin_of(pgid) is not None},
           pins_sent=draft.now).event(
               'join', '%s removed' % plural(len(needless), 'pin'),
               'the restored CRUSH map does not need them')


def landed(change: Change, draft: Draft) -> bool:
    """Whether the OSDMap of the mgr shows the change."""
    if change.crush_map:
        return (draft.seen.crush_version != change.crush_version
                and draft.seen.crush.fingerprint() == change.fingerprint
                # It must not be the old map under a new version.
                and draft.seen.crush.identity != change.crush_identity)
    if change.pgs is not None:
        return has_numbers(draft, change)
    if change.rule is not None:
        pool = draft.seen.osdmap.pools.get(change.rule.pool)
        return pool is not None and pool.crush_rule == change.rule.rule
    return len(_in_force(draft, change)) == len(change.chunk)


def _in_force(draft: Draft, change: Change) -> List[int]:
    """OSDs of the burst that have their new weight."""
    weights = draft.seen.crush.weights()
    return [osd for osd, weight in change.chunk.items()
            if same_weight(weights.get(osd, -1.0), weight)]


def _claim(draft: Draft, change: Change) -> Draft:
    """Note the CRUSH version as the campaign's own, unless others changed CRUSH along with it."""
    version, crush = draft.seen.crush_version, draft.seen.crush
    if draft.campaign.crush_own in (-1, version):
        return draft
    expected = crush.fingerprint() if change.crush_map else _rest_of_crush(draft, change)
    own = change.fingerprint == expected and change.tunables in (0, crush.tunables)
    return draft.set(crush_own=version if own else -1, crush_identity=crush.identity)


def _rest_of_crush(draft: Draft, change: Change) -> int:
    """A checksum of CRUSH without the OSDs of the burst."""
    names = {'osd.%d' % osd for osd in change.chunk}
    rest = sorted(item for item in draft.seen.crush.digest().items() if item[0] not in names)
    return zlib.crc32(repr(rest).encode())


def _land(draft: Draft, change: Change) -> Draft:
    if draft.campaign.removes_upmaps:
        draft = _unpin(draft, change)
    return audit(_next_stage(_claim(draft, change), change))


def remove_needless(draft: Draft) -> Draft:
    """Remove pairs from upmaps of PGs that have moved with an earlier tranche where CRUSH places
    them by now. The mons drop only those whose source it does not choose any longer.

    To be called until nothing is sent; whatever the mons do not remove for long is left.
    """
    change = draft.campaign.change
    if change is None or not change.tranche or change.stage is not ChangeStage.LANDED:
        return draft
    actions = _needless_pairs(draft, change)
    if not actions:
        return _pin_vectors(draft, change)
    since = change.removing or draft.now
    if draft.now - since > SEND_TIMES * draft.options.readback_timeout:
        return draft
    return draft.set(change=replace(change, removing=since)).send(*actions)


def _pin_vectors(draft: Draft, change: Change) -> Draft:
    """Pin PGs again that a vector has led ahead. It hides where CRUSH places them by now, so that
    they are released like others."""
    if draft.campaign.target == 'balanced' or not change.is_last:
        return draft
    pins = {pgid: PinRecord(led.before, led.entry) for pgid, led in change.ahead.items()
            if led.entry.vector is not None and draft.seen.osdmap.entry(pgid) == led.entry}
    return draft.note_pins(pins) if pins else draft


def _needless_pairs(draft: Draft, change: Change) -> List[SetEntry]:
    osdmap, actions = draft.seen.osdmap, []
    for pgid, led in change.ahead.items():
        place, present = draft.seen.placement(pgid), osdmap.entry(pgid)
        items = present.items
        ours = [pair for pair in items if pair in led.entry.items and pair not in led.before.items]
        if not ours or place is None or draft.pin_of(pgid) is not None \
                or pgid in osdmap.pg_temp or place.up != place.acting:
            continue
        raw = raw_from_up(place.up, present, draft.out)
        left = replace(present, items=tuple([pair for pair in items if pair not in ours or (
            raw is None or pair[0] in raw and pair[1] not in raw)]))
        if left != present and raw is not None and apply_entry(raw, left, draft.out) == place.up:
            actions.append(SetEntry(pgid, left, present))
    return actions


def _next_stage(draft: Draft, change: Change) -> Draft:
    read_back = 'read back from the OSDMap'
    if change.more:
        done = tuple(sorted((*change.done, *change.chunk)))
        return draft.set(change=replace(
            change, stage=ChangeStage.WANTED, done=done, times=0, since=draft.now)).event(
                'join', 'CRUSH weights of %d of %s are in force' % (
                    len(done), plural(len(change.weights), 'OSD')), read_back)
    if change.rule is not None and change.then is not None:
        return draft.set(
            change=Change(rule=change.rule._replace(rule=change.then), moves_first=True,
                          rule_name=change.rule_name, found_rule=change.found_rule,
                          via=change.via, since=draft.now),
            phase_since=draft.now).event(
                'join', 'the intermediate CRUSH rule is in force, %s pinned'
                % pgs_are(draft.pin_count), read_back)
    following = change_to(draft, change)
    if following is not None:
        return draft.event('join', step_text(draft, change), read_back).set(
            change=following, phase_since=draft.now)
    change = replace(change, stage=ChangeStage.LANDED,
                     following=0 if change.is_last else change.following)
    text = 'CRUSH is changed' if change.tranches == 1 else \
        'tranche %d of %d of the CRUSH change is in force' % (change.tranche + 1, change.tranches)
    return draft.set(change=change, phase_since=draft.now, undersized_pgs=()).event(
        'join', '%s, %s pinned, %d remapped' % (
            text, pgs_are(draft.pin_count), len(draft.seen.osdmap.pg_temp)), read_back)


def drop_refused(draft: Draft) -> Draft:
    """At the end of an abort: drop a change of which nothing is in force."""
    campaign, change = draft.campaign, draft.campaign.change
    if change is None or change.stage is ChangeStage.LANDED:
        return draft
    done = tuple(sorted((*change.done, *_in_force(draft, change))))
    if change.closing:
        return _leave_out(draft, replace(change, done=done), 'the campaign was aborted')
    if done:
        return draft.set(change=replace(change, done=done))
    if change.tranche:
        # The one before is in force, and "campaign resume" continues after it.
        return draft.set(change=replace(
            change, stage=ChangeStage.LANDED, tranche=change.tranche - 1, share=SHARE_MIN,
            following=change.following + 1, step=change.reached))
    if change.moves_first or pg_num_begun(change, draft.seen.osdmap):
        return draft  # "campaign resume" continues with the remaining PGs
    if campaign.rolled_back:
        return draft.set(change=campaign.undone, undone=None, rolled_back=False)
    return draft.set(change=Change(stage=ChangeStage.LANDED))


def settle_change(draft: Draft) -> Draft:
    """For a campaign that is being aborted: read back its change of CRUSH, or stop it."""
    change = draft.campaign.change
    if change is None or not change.pending:
        return draft
    if landed(change, draft):
        return _land(draft, change)
    if not stands_still(draft, change):
        return stop_step(draft, change)
    if overdue(draft.campaign, draft.seen, draft.options):
        return _unsent(draft, change)
    return draft


def on_its_way(draft: Draft) -> bool:
    """Whether the change of CRUSH of a campaign that is being aborted may still take effect."""
    change = draft.campaign.change
    return change is not None and change.pending


def overdue(campaign: Campaign, seen: Observation, options: Options) -> bool:
    """Whether the OSDMap should show a burst by now; without an answer from the mons it may still
    take effect."""
    change = campaign.change
    if change is None or not change.pending or (
            change.stage is ChangeStage.WANTED and campaign.phase is not Phase.ABORTING
    ) or has_targets(seen.osdmap, change):
        return False
    since = max(change.since, campaign.phase_since, seen.answered)
    return seen.now - since > options.readback_timeout


def _unsent(draft: Draft, change: Change) -> Draft:
    """The burst, or the part of it that changes CRUSH, is not in force."""
    forgotten: List[str] = []
    earlier: Dict[str, PinRecord] = {}
    for pgid in draft.campaign.pinning:
        pin, present = draft.pin_of(pgid), draft.seen.osdmap.entry(pgid)
        if pin is None or present == pin.entry:
            continue
        if not present or present in (pin.before, pin.was):
            # Planned for a mapping that is not in force: the present one needs no such pin.
            forgotten.append(pgid)
        else:
            earlier[pgid] = replace(pin, entry=present)  # an earlier pin is still there
    draft = _claim(draft.forget_pins(forgotten).note_pins(earlier), change)
    return _pin_again(draft).set(change=replace(change, stage=ChangeStage.WANTED, times=0))


def _again(draft: Draft, change: Change) -> Draft:
    """The records of the pins stay until the change is given up: the burst may take effect late."""
    draft = _claim(draft, change)
    if change.times < SEND_TIMES:
        return draft.set(change=replace(change, stage=ChangeStage.WANTED)).event(
            'join', 'the CRUSH change is sent again', 'the OSDMap does not show it')
    if change.closing:
        return _leave_out(draft, change, 'the mons did not accept weight 0')
    return _unsent(draft, change).event(
        'join', 'the CRUSH change is given up', 'the mons did not accept it').enter(
            Phase.ABORTING, 'the mons did not accept the CRUSH change')


def _pin_again(draft: Draft) -> Draft:
    """Send pins again that were removed with a change of CRUSH that is not in force."""
    pins = {pgid: pin for pgid, pin in draft.pinned().items() if pin == draft.pin_of(pgid)} \
        if draft.campaign.removes_upmaps else {}
    actions = [SetEntry(pgid, pin.entry, draft.seen.osdmap.entry(pgid))
               for pgid, pin in pins.items() if pin.entry != draft.seen.osdmap.entry(pgid)]
    return draft.note_pins({pgid: replace(pin, goal=None) for pgid, pin in pins.items()
                            if pin.goal is not None}).send(*actions).set(
        pinning={action.pgid: Sent(draft.now) for action in actions},
        pins_sent=draft.now if actions else draft.campaign.pins_sent)
