# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pins PGs where their data is, and compares the pins with the OSDMap."""
import enum
from dataclasses import replace
from typing import (AbstractSet, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Set)

from ..cluster.evacuation import Evacuation, moves_others
from ..cluster.types import NO_ENTRY, NO_OSD, OsdSet, Placement, Pool, UpmapEntry
from ..errors import Code, Reason
from ..observation import Observation
from ..options import Options
from ..text import listed, osds_text, pgs, pgs_are, plural
from ..upmap.pins import (BEYOND_LIMIT, DEGRADED, DROPPED_BY_MON, INCOMPLETE, Unpinnable,
                          broken_rule, has_no_target, lawful, merge_reason, next_merge_reason,
                          plan_partial_pin, without_targets)
from ..upmap.semantics import raw_from_up
from ..watch.stop_conditions import is_waived
from .campaign import TRIAL_KEPT, TRIAL_REFUSED, Campaign
from .draft import Draft
from .epochs import pin_limit, why_too_many_pins
from .holds import NOREBALANCE, gives_way
from .types import RELEASING_PHASES, Phase, PinRecord, Sent, SetEntry

#: Number of times that a pin is sent before it counts as refused if the OSDMap does not show it.
PIN_SEND_TIMES = 2
#: If more PGs than this cannot be pinned, they are not replanned for each new OSDMap.
PLANNED_AGAIN = 1000
#: Seconds without a new pin after which PGs that are stuck in peering no longer delay the others.
STUCK_PINS_SECONDS = 30.0
#: Seconds after which OSDs that are down count as about to be marked out: more than a reboot takes,
#: and less than mon_osd_down_out_interval (600 s by default).
DOWN_SECONDS = 300.0
#: Number of PGs that cannot be pinned which events name in a turn.
REPORTED_UNPINNABLE = 10
#: Phases in which pins stay as they are until their PGs are released.
_PINS_ONLY_RELEASED = frozenset({Phase.PINNED, *RELEASING_PHASES, Phase.ABORTED})


class PinDecision(NamedTuple):
    """How to keep one PG where its data is; without a reason and an action it stays there."""
    pgid: str
    #: Why it cannot be pinned.
    reason: Optional[Unpinnable] = None
    action: Optional[SetEntry] = None
    #: The record to note with the action.
    pin: Optional[PinRecord] = None
    #: Its earlier entry suffices: its record is forgotten.
    forgets: bool = False
    #: Pinning.trials: the rule that it tries; 0: none.
    tries: int = 0


class RemovalCode(enum.Enum):
    """Who has removed a pin."""
    NO_PG = 'NO_PG'
    #: The mons, which keep no pair of items with an OSD that is out (OSDMap::clean_pg_upmaps). A
    #: vector stays.
    OUT = 'OUT'
    OTHERS = 'OTHERS'


#: What an event says of each.
_REMOVAL_TEXTS = {
    RemovalCode.NO_PG: ('no longer needed', 'pools were removed, or PGs were merged'),
    RemovalCode.OUT: ('removed by the mons', 'they keep no upmap item of an OSD that is out (%s)'),
    RemovalCode.OTHERS: ('removed outside perfguard',
                         'by a command, or by the mons after a change of CRUSH')}


class Removal(NamedTuple):
    """Why the OSDMap shows nothing of a pin that was not released."""
    code: RemovalCode
    #: OSDs that are out.
    osds: FrozenSet[int] = frozenset()


def audit(draft: Draft) -> Draft:
    """Compare the pins with the OSDMap: confirm new ones, drop refused, lost and foreign ones."""
    change = draft.campaign.change
    if change is not None and change.pending and draft.campaign.phase is not Phase.ABORTED \
            and not change.is_accepted(draft.observed.osdmap):
        return draft  # the pins are the earlier or the new ones: joining.py determines which
    draft = _confirm(draft)
    return draft.then(_find_lost, _forget_purged) if draft.observed.new_map else draft


def _confirm(draft: Draft) -> Draft:
    """Read back the pins that were sent, some of them as a trial whether the mons keep them
    (`_tried_pin`). Those that the OSDMap does not show in time are sent again, given up, or left to
    others who have set another upmap."""
    unconfirmed: Dict[str, Sent] = {}
    given_up: Dict[str, PinRecord] = {}
    for pgid, sent in draft.campaign.pinning.sent.items():
        pin = draft.pin_of(pgid)
        if pin is None or draft.pool(pgid) is None:
            draft = _end_trial(draft, pgid, is_kept=False)
            continue
        present = draft.observed.osdmap.entry(pgid)
        if present == pin.entry:
            if pin.earlier is not None:
                draft = draft.note_pins({pgid: pin})  # without `earlier`
        elif draft.now - max(sent.since, draft.observed.unanswered_at) \
                <= draft.options.readback_timeout:
            unconfirmed[pgid] = sent
        elif _is_needless(draft, pgid, pin) \
                or not is_mixture(present, *pin.ours, pin.before, pin.leads_to):
            draft = _drop(draft, pgid, pin, present)
        elif sent.times < PIN_SEND_TIMES:
            draft = _pin_again(draft, pgid, pin)
            unconfirmed[pgid] = Sent(draft.now, sent.times + 1)
        else:
            given_up[pgid] = pin
        if pgid not in unconfirmed or draft.pin_of(pgid) != pin:
            draft = _end_trial(draft, pgid, is_kept=present == pin.entry)
    draft = _give_up(draft, given_up)
    if unconfirmed == draft.campaign.pinning.sent:
        return draft
    return draft.set(pinning=replace(draft.campaign.pinning, sent=unconfirmed))


def _is_needless(draft: Draft, pgid: str, pin: PinRecord) -> bool:
    """Whether the mons do not keep a pin because it has no effect: the PG is where CRUSH places it
    without the pin, or the entry leads to an OSD that is out. Once that is in, the PG is planned
    again."""
    return _is_not_remapped(draft, pgid) or not draft.out.isdisjoint(pin.entry.targets)


def _drop(draft: Draft, pgid: str, pin: PinRecord, present: UpmapEntry) -> Draft:
    """Forget a pin that is needless or was replaced by others. Of a needless one, what the OSDMap
    still contains remains recorded; if that is the pin from before it, this one may still replace
    that, so it becomes the `earlier` one."""
    if not _is_needless(draft, pgid, pin):
        return draft.forget_pins([pgid]).event(
            'pins', 'the pin of PG %s was replaced outside perfguard' % pgid,
            'perfguard leaves it alone')
    if present and _is_remnant(present, pin) and present not in (pin.before, pin.leads_to):
        return draft.note_pins({pgid: _remaining(draft, pin, present)})
    return draft.forget_pins([pgid])


def _pin_again(draft: Draft, pgid: str, pin: PinRecord) -> Draft:
    """Send a pin again. It may never have been sent: this mgr may have taken over from one that
    failed before. Or the mons dropped it because CRUSH places the PG elsewhere by now."""
    decision = pin_decision(draft, pgid, sent=pin.entry)
    if decision.reason:
        return draft.send(SetEntry(pgid, pin.entry, draft.observed.osdmap.entry(pgid)))
    return _carried_out(draft, [decision])


def _give_up(draft: Draft, pins: Mapping[str, PinRecord]) -> Draft:
    """Give up pins that the mons do not keep although they were sent several times: the mons return
    0, and their own clean-up removes them. Each PG gets the entry to which a release leads, and
    counts as unpinnable; if it leaves an OSD that is to be emptied, it may move to where CRUSH
    places it."""
    if not pins:
        return draft
    pinning, crush, osdmap = draft.campaign.pinning, draft.observed.crush, draft.observed.osdmap
    rules = {pool.crush_rule for pgid in pins for pool in [draft.pool(pgid)] if pool is not None}
    for rule in sorted(rules):
        pinning = pinning.cancelled_under(crush.checksum(rule))
    let_go = pins.keys() & draft.observed.evacuation.keys()
    return _report_unpinnable(draft, dict.fromkeys(pins, DROPPED_BY_MON)).send(
        *[SetEntry(pgid, pin.leads_to, osdmap.entry(pgid)) for pgid, pin in pins.items()]
    ).forget_pins(list(pins)).set(pinning=replace(
        pinning, let_go=pinning.let_go | let_go,
        unpinnable={**pinning.unpinnable, **dict.fromkeys(pins.keys() - let_go, DROPPED_BY_MON)}))


def is_mixture(present: UpmapEntry, *ours: UpmapEntry) -> bool:
    """Whether `present` may be a mixture of our entries.

    Items and vector are set by commands of their own, and the mon drops pairs; an entry with
    anything else in it was set by others.
    """
    return (present.vector in (None, *(entry.vector for entry in ours))
            and set(present.items) <= {pair for entry in ours for pair in entry.items})


def _is_not_remapped(draft: Draft, pgid: str) -> bool:
    """Whether a PG is on its up set, by the OSDMap."""
    place = draft.observed.placement(pgid)
    return place is not None and place.up == place.acting \
        and pgid not in draft.observed.osdmap.pg_temp


def _find_lost(draft: Draft) -> Draft:
    """Forget pins that the OSDMap does not show any more, and report those that others have removed
    or replaced."""
    osdmap, pinned = draft.observed.osdmap, draft.pins
    forgotten: List[str] = []
    removed: Dict[str, Removal] = {}
    foreign: List[str] = []
    remnants: Dict[str, PinRecord] = {}
    for pgid in pinned.differing(osdmap):
        if pgid in draft.campaign.flights.in_flight or pgid in draft.campaign.pinning.sent \
                or draft.pin_of(pgid) is None:
            continue
        present, pin = osdmap.entry(pgid), pinned[pgid]
        if present in (pin.before, pin.leads_to):
            forgotten.append(pgid)  # released; a restart may bring its record back
        elif draft.pool(pgid) is None:
            removed[pgid] = Removal(RemovalCode.NO_PG)
        elif not present:
            removed[pgid] = _removal(draft, pin)
        elif _is_remnant(present, pin):
            # The mons dropped some pairs, as they do when CRUSH changes: the rest is ours. Or this
            # pin was noted and not sent.
            remnants[pgid] = _remaining(draft, pin, present)
        else:
            foreign.append(pgid)
    draft = draft.forget_pins([*forgotten, *removed, *foreign]).note_pins(remnants)
    draft = _report_removed(draft, removed)
    if foreign:
        draft = draft.event('pins', '%s replaced outside perfguard' % plural(len(foreign), 'pin'),
                            'perfguard leaves them alone: %s' % listed(sorted(foreign)))
    return draft


def _removal(draft: Draft, pin: PinRecord) -> Removal:
    """Why the OSDMap has no upmap of a PG that exists and was pinned."""
    osds = draft.out & {osd for pair in pin.entry.items for osd in pair}
    return Removal(RemovalCode.OUT, osds) if osds else Removal(RemovalCode.OTHERS)


def _report_removed(draft: Draft, removed: Mapping[str, Removal]) -> Draft:
    """The draft with an event for each reason why pins were removed."""
    for code, (subject, why) in _REMOVAL_TEXTS.items():
        osds = {pgid: removal.osds for pgid, removal in removed.items() if removal.code is code}
        if osds:
            if code is RemovalCode.OUT:
                why = why % osds_text(frozenset().union(*osds.values()))
            draft = draft.event('pins', '%s %s' % (plural(len(osds), 'pin'), subject),
                                '%s: %s' % (why, listed(sorted(osds))))
    return draft


def _forget_purged(draft: Draft) -> Draft:
    """Remove purged OSDs from the entries that a release (`before`, `goal`) or a rollback (`was`)
    sets: the mons would refuse them."""
    osds = draft.observed.osdmap.osds
    changed: Dict[str, PinRecord] = {}
    for pgid in draft.pins.leading_elsewhere(osds):
        pin = draft.pin_of(pgid)
        if pin is not None:
            purged = pin.ahead - osds.keys()
            changed[pgid] = replace(
                pin, before=without_targets(pin.before, purged),
                goal=pin.goal and without_targets(pin.goal, purged),
                was=pin.was and without_targets(pin.was, purged))
    if not changed:
        return draft
    return draft.note_pins(changed).event(
        'pins', '%s will be released without an upmap to an OSD that was purged'
        % pgs(len(changed)), listed(sorted(changed)))


def _remaining(draft: Draft, pin: PinRecord, present: UpmapEntry) -> PinRecord:
    """The record of a pin of which the OSDMap shows the part `present`."""
    goal = pin.goal if draft.campaign.removes_upmaps else None
    return replace(pin, entry=present, raw=None, goal=goal)


def _is_remnant(now: UpmapEntry, pin: PinRecord) -> bool:
    """Whether the entry `now` in the OSDMap is a part of the pin, perhaps with pairs of the entry
    that its release sets: a rollback sends both together. Of two entries of ours that replace each
    other, it may have the vector of one and the pairs of the other."""
    return any(now.vector == entry.vector for entry in pin.ours) and set(now.items) <= {
        *pin.leads_to.items, *(pair for entry in pin.ours for pair in entry.items)}


def outlast_out(draft: Draft) -> Draft:
    """Let pins stay in force when OSDs that are down are marked out, and when these come back.

    CRUSH chooses other OSDs then, and the mons drop pairs whose source it does not choose: all PGs
    that are to move to such OSDs would be remapped at once, and again when the OSDs are back. A
    vector stays, unless it is what CRUSH chooses meanwhile.
    """
    if draft.campaign.phase not in _PINS_ONLY_RELEASED:
        return draft
    # An mgr that has just become active knows only that nothing has changed for long.
    observed, long_ago = draft.observed, draft.now - DOWN_SECONDS
    down = {osd.id for osd in observed.osdmap.osds.values() if osd.is_down_but_in
            and min(observed.osds_or_crush_changed,
                    observed.down_since.get(osd.id, draft.now)) <= long_ago}
    if down.isdisjoint(draft.moves.targets()):
        return draft
    pins: Dict[str, PinRecord] = {}
    for move in draft.moves.values():
        pin = None if down.isdisjoint(move.targets) else _as_vector(draft, move.pgid)
        if pin is not None:
            pins[move.pgid] = pin
        if len(pins) >= draft.options.pin_batch:
            break
    if not pins:
        return draft
    osdmap = draft.observed.osdmap
    return draft.note_pins(pins).send(*[
        SetEntry(pgid, pin.entry, osdmap.entry(pgid)) for pgid, pin in pins.items()]).set(
            pinning=draft.campaign.pinning.sending(pins, draft.now)).event(
            'pin', 'pinning %s by pg_upmap' % pgs(len(pins)),
            'OSDs are down to which they are to move: their pins must stay if these are marked out')


def _as_vector(draft: Draft, pgid: str) -> Optional[PinRecord]:
    """The pin of a PG that is in place as a vector; None: it is one, or must stay as it is."""
    pin, pool = draft.pin_of(pgid), draft.pool(pgid)
    if pin is None or pool is None or pin.entry.vector is not None or pin.stays \
            or pgid in draft.campaign.flights.in_flight or pgid in draft.campaign.pinning.sent \
            or draft.observed.osdmap.entry(pgid) != pin.entry:
        return None
    place = draft.observed.placement(pgid)
    if place is None or not _is_not_remapped(draft, pgid) or not pool.is_complete(place.up) \
            or broken_rule(pool, place.up, draft.observed.crush, draft.out):
        return None
    raw = raw_from_up(place.up, pin.entry, draft.out)
    return None if raw is None else replace(pin, entry=UpmapEntry(vector=place.up), raw=raw)


def pin_remapped(draft: Draft) -> Draft:
    """Pin PGs that are remapped and not in flight. `to_pin` of the draft counts those that are left
    for later turns, including those that are pinned after their recovery.

    PGs that cannot be pinned are noted in the campaign with the reason, and so are those that wait
    for recovery. Of PGs that leave OSDs which are to be emptied, the other shards are pinned if
    possible.
    """
    plan = _plan_pins(draft)
    later, decisions = plan.later, plan.decisions
    draft = _note_unpinnable(draft, plan.unpinnable)
    crush_version = draft.observed.crush_version
    draft = draft.set(pinning=replace(draft.campaign.pinning, let_go=frozenset(plan.let_go)))
    if later and plan.limited:
        draft = draft.because(Code.PIN_LIMIT, '%s pinned, and %s not: %s; "campaign accept '
                              'PIN_LIMIT" pins them, or undo the change of CRUSH' % (
                                  pgs_are(draft.pin_count), pgs_are(later), why_too_many_pins(
                                      draft.pin_count + len(decisions) + later, draft.options,
                                      draft.observed.osdmap, draft.pin_count)))
    if crush_version != draft.campaign.pinning.refused_crush:
        draft = draft.set(pinning=replace(draft.campaign.pinning, refused_crush=crush_version))
    # A PG that arrives before norebalance is in force would move back to its pin. While norebalance
    # gives way to recovery, PGs without a pin move, so they are pinned nevertheless.
    if is_still(draft) or gives_way(draft.campaign.holds.blocked, draft.now):
        draft = _pin(draft, decisions)
    else:
        later += len(decisions)
    return replace(draft, to_pin=later + pinned_after_recovery(draft))


class _PinPlan(NamedTuple):
    """What becomes of the remapped PGs in this turn."""
    decisions: Sequence[PinDecision]
    unpinnable: Mapping[str, Unpinnable]
    #: PGs of an evacuation of which no shard can be pinned.
    let_go: AbstractSet[str]
    #: Number of PGs left for later turns.
    later: int
    #: Whether the limit of pins (max_pins) is the reason for that, and not the batch size.
    limited: bool


def _plan_pins(draft: Draft) -> _PinPlan:
    """Decide on each remapped PG that is not in flight, as long as more may be pinned: `room` PGs
    may peer at once, and `allowed` more may be pinned in all."""
    campaign = draft.campaign
    room, allowed = _pinning_room(draft), _pins_allowed(draft)
    # Under other CRUSH rules, what could not be pinned is tried again.
    other_crush = draft.observed.crush_version != campaign.pinning.refused_crush
    decisions: List[PinDecision] = []
    unpinnable: Dict[str, Unpinnable] = {}
    let_go: Set[str] = set()
    if not other_crush:
        let_go.update(campaign.pinning.let_go & draft.observed.evacuation.keys())
    later = 0  # PGs that are left for later turns
    for pgid in draft.observed.osdmap.pg_temp:
        if pgid in campaign.flights.in_flight or pgid in campaign.pinning.sent:
            continue
        if pgid in draft.observed.evacuation:
            if pgid in let_go or len(decisions) >= allowed or not _moves_others(draft, pgid):
                continue
            if len(decisions) >= room:
                later += 1
                continue
            decision = pin_decision(draft, pgid)
            if decision.action is None:
                let_go.add(pgid)
            else:
                decisions.append(decision)
        elif _stays_unpinnable(draft, pgid, other_crush):
            unpinnable[pgid] = campaign.pinning.unpinnable[pgid]
        elif len(decisions) >= allowed and campaign.phase is Phase.ABORTING:
            # The abort does not wait for an operator: norebalance keeps them in place.
            unpinnable[pgid] = BEYOND_LIMIT
        elif len(decisions) >= min(room, allowed):
            later += 1
        else:
            decision = pin_decision(draft, pgid)
            if decision.reason:
                decision = _tried_pin(draft, decision, decisions)
            if decision.reason:
                unpinnable[pgid] = decision.reason
            elif decision.action is not None:
                decisions.append(decision)
    return _PinPlan(decisions, unpinnable, let_go, later,
                    limited=allowed <= min(room, len(decisions)))


def _tried_pin(draft: Draft, decision: PinDecision,
               other_decisions: Sequence[PinDecision]) -> PinDecision:
    """If the mons are expected to cancel every upmap under the rule of an unpinnable PG, and no
    other PG has tried that: the decision to pin it as a trial, since later releases of Ceph may
    keep such upmaps. Otherwise `decision`.

    Not in an upgrade: the next leader of the mons may be one that cancels them. Nor for an abort,
    which would wait for the result.
    """
    pool, crush = draft.pool(decision.pgid), draft.observed.crush
    trials = draft.campaign.pinning.trials
    if pool is None or crush.keeps_upmaps(pool.crush_rule, pool.size) \
            or not draft.observed.mons_alike or draft.observed.orchestrating.image \
            or draft.campaign.phase is Phase.ABORTING:
        return decision
    rule = crush.checksum(pool.crush_rule)
    if rule in trials or any(other.tries == rule for other in other_decisions):
        return decision
    # As if the mons kept upmaps under this rule.
    as_if_kept = replace(draft.observed, crush=crush.with_upmaps_kept_under(
        crush.proven_rules | {rule}))
    trial = pin_decision(replace(draft, observed=as_if_kept), decision.pgid)
    return decision if trial.pin is None else trial._replace(tries=rule)


def _end_trial(draft: Draft, pgid: str, is_kept: bool) -> Draft:
    """Note whether the mons have kept the pin with which a rule was tried; if so, all PGs under the
    rule are pinned from the next turn on. The pool may have another rule by now."""
    pinning, crush = draft.campaign.pinning, draft.observed.crush
    if pgid not in pinning.trials.values():
        return draft
    pool = draft.pool(pgid)
    if not is_kept or pool is None or crush.keeps_upmaps(pool.crush_rule, pool.size) \
            or pinning.trials.get(crush.checksum(pool.crush_rule)) != pgid:
        return draft.set(pinning=pinning.tried(pgid, TRIAL_REFUSED))
    # PGs that could not be pinned are tried again.
    pinning = replace(pinning.tried(pgid, TRIAL_KEPT), refused_crush=-1)
    return replace(draft, observed=replace(
        draft.observed, crush=crush.with_upmaps_kept_under(pinning.kept_rules))).set(
            pinning=pinning).event(
            'pins', 'the mons keep upmaps under the CRUSH rule of PG %s' % pgid, 'tried with a pin')


def _moves_others(draft: Draft, pgid: str) -> bool:
    """Whether a PG of an evacuation moves further shards than those that must leave their OSDs."""
    pool, place = draft.pool(pgid), draft.observed.placement(pgid)
    return pool is not None and place is not None \
        and moves_others(pool, place, draft.observed.evacuation[pgid])


def _pinning_room(draft: Draft) -> int:
    """How many PGs may be pinned now. A pin ends the remapping of a PG and moves no data, so many
    may peer at once, but not all."""
    campaign, batch = draft.campaign, draft.options.pin_batch
    room = batch - max(len(campaign.pinning.sent), draft.in_transition)
    stuck = not campaign.pinning.sent and draft.now - campaign.pinning.sent_at > STUCK_PINS_SECONDS
    return batch if room <= 0 and stuck else room


def _pin(draft: Draft, decisions: Sequence[PinDecision]) -> Draft:
    """Carry out decisions on remapped PGs, and note which pins were sent and which of them are
    trials."""
    draft = _carried_out(draft, decisions)
    pinned = [decision.pgid for decision in decisions if decision.pin]
    if not pinned:
        return draft
    trials = {decision.tries: decision.pgid for decision in decisions if decision.tries}
    return draft.event('pin', 'pinning ' + pgs(len(pinned))).set(
        pinning=replace(draft.campaign.pinning.sending(pinned, draft.now),
                        trials={**draft.campaign.pinning.trials, **trials}))


def _carried_out(draft: Draft, decisions: Sequence[PinDecision]) -> Draft:
    """Note and forget pins, and send the entries, as decided."""
    pins = {decision.pgid: decision.pin for decision in decisions if decision.pin is not None}
    return draft.note_pins(pins) \
        .forget_pins([decision.pgid for decision in decisions if decision.forgets]) \
        .send(*[decision.action for decision in decisions if decision.action is not None])


def _pins_allowed(draft: Draft) -> int:
    """How many more PGs may be pinned within the limit (max_pins). PGs that others remap meanwhile
    may double the pins of the campaign; an abort that an operator orders pins all of them.

    A limit that has become lower than the number of pins is for the next tranche. If it held for
    the present one, a single PG that others remap would stop the releases that lower the number.
    """
    if is_waived(Reason(Code.PIN_LIMIT, ''), draft.campaign.orders.acknowledged):
        return len(draft.observed.osdmap.pg_temp)
    limit = pin_limit(draft.options, draft.observed.osdmap, draft.pin_count)
    if draft.campaign.phase in _PINS_ONLY_RELEASED:
        limit = max(limit, draft.campaign.pinning.begun_with)
    return max(0, 2 * limit - draft.pin_count)


def is_still(draft: Draft) -> bool:
    """Whether norebalance is in force, or others want it cleared."""
    return NOREBALANCE in draft.observed.osdmap.flags or draft.campaign.holds.gave_up_flag


def _stays_unpinnable(draft: Draft, pgid: str, other_crush: bool) -> bool:
    """Whether the PG cannot be pinned for a reason that is known and has not changed.

    OSDs may return and complete a set; what the mons have refused, they refuse again as long as
    CRUSH is the same.
    """
    # The pin of a degraded PG is retried in every turn, like that of one that was never tried;
    # norebalance stays set until it succeeds.
    reason = draft.campaign.pinning.unpinnable.get(pgid, DEGRADED)
    if reason == DEGRADED or other_crush:
        return False
    if reason == DROPPED_BY_MON or not draft.observed.new_map:
        return True
    # So many are not planned again for each OSDMap, except those that had nowhere to move: one that
    # can move after all must be noticed.
    return reason != INCOMPLETE and len(draft.campaign.pinning.unpinnable) > PLANNED_AGAIN


def pinned_once_recovered(campaign: Campaign, pgid: str) -> bool:
    """Whether the PG is remapped and will be pinned after its recovery."""
    return campaign.pinning.unpinnable.get(pgid) == DEGRADED


def recovering_count(campaign: Campaign) -> int:
    """How many remapped PGs are pinned only after their recovery."""
    return sum(1 for pgid in campaign.pinning.unpinnable if pinned_once_recovered(campaign, pgid))


def lastingly_unpinnable(campaign: Campaign) -> Dict[str, Unpinnable]:
    """PGs that cannot be pinned, with the reasons, without those that wait for recovery."""
    return {pgid: why for pgid, why in campaign.pinning.unpinnable.items() if why != DEGRADED}


def kept_on_osds(campaign: Campaign, observation: Observation) -> Evacuation:
    """The PGs that norebalance, while it is set, keeps on OSDs which are to be emptied; PG -> these
    OSDs.

    In PREPARED, also the PGs on OSDs whose CRUSH weight 0 counts as the operator's change: others
    may have set it, for a disk that fails.
    """
    if campaign.phase is not Phase.PREPARED or not campaign.crush.emptied:
        return observation.evacuation
    weights = observation.crush.weights()
    emptied = {osd for osd in campaign.crush.emptied if not weights.get(osd)}
    kept_pgs = {pgid: tuple([osd for osd in acting if osd in emptied])
                for pgid, acting in observation.osdmap.pg_temp.items()
                if not emptied.isdisjoint(acting)}
    return {**kept_pgs, **observation.evacuation}


def pinned_after_recovery(draft: Draft) -> int:
    """How many PGs have to be pinned after their recovery.

    Those that lack an OSD which is out do not: norebalance does not stop them, and they recover to
    where CRUSH places them. They may wait for an OSD that is too full, until releases have made
    room. Nor do those whose copies or shards are all in place, or that have nowhere to move.
    """
    return sum(1 for pgid in draft.campaign.pinning.unpinnable
               if pinned_once_recovered(draft.campaign, pgid) and not _only_recovers(draft, pgid))


def _only_recovers(draft: Draft, pgid: str) -> bool:
    """Whether a degraded PG need not be pinned after its recovery: it has nowhere to move; or it
    lacks an OSD, and either none is down that may come back or none of its copies or shards is
    misplaced."""
    pool, place = draft.pool(pgid), draft.observed.placement(pgid)
    if pool is None or place is None:
        return False
    return has_no_target(pool, place.up, place.acting) or not pool.is_complete(place.acting) and (
        not draft.lost or _none_is_misplaced(pool, place))


def immovable_count(campaign: Campaign) -> int:
    """How many PGs are remapped, but have nowhere to move (INCOMPLETE)."""
    return len(campaign.pinning.incomplete)


def unpinned_count(campaign: Campaign) -> int:
    """How many PGs without a pin move as soon as norebalance is cleared, or once they have
    recovered."""
    return len(campaign.pinning.unpinnable) - immovable_count(campaign)


def lastingly_unpinned(campaign: Campaign) -> int:
    """How many PGs without a pin move as soon as norebalance is cleared."""
    return unpinned_count(campaign) - recovering_count(campaign)


def are_many(number: int, campaign_pgs: int, options: Options) -> bool:
    """Whether so many PGs must not move at once, outside the caps. `campaign_pgs`: PGs of the
    campaign that are pinned, move or have moved."""
    return number > max(options.max_backfills_target,
                        options.max_unpinnable_ratio * (number + campaign_pgs))


def unpinnable_excess(campaign: Campaign, campaign_pgs: int, options: Options) -> str:
    """Why releases must not begin: too many PGs would move outside the caps; '' if they may.

    `campaign_pgs`: PGs of the campaign that are pinned, move or have moved.
    """
    number, ratio = lastingly_unpinned(campaign), options.max_unpinnable_ratio
    if not are_many(number - campaign.orders.accepted_unpinnable, campaign_pgs, options):
        return ''
    return ('%s of %d cannot be pinned (limit %g %%, max_unpinnable_ratio) and will move all at '
            'once, regardless of the caps, when norebalance is cleared: "campaign start" accepts '
            'that; otherwise revert the CRUSH change' % (
                pgs(number), number + campaign_pgs, 100 * ratio))


def loose_pgs(campaign: Campaign, observation: Observation) -> Iterator[str]:
    """The remapped PGs that only norebalance keeps from moving, without those that are unpinnable
    because they recover or have nowhere to move."""
    return (pgid for pgid in observation.osdmap.pg_temp
            if pgid not in campaign.flights.in_flight and pgid not in observation.evacuation
            and campaign.pinning.unpinnable.get(pgid) not in (DEGRADED, INCOMPLETE))


def unpinned_warning(campaign: Campaign, pins: int, observation: Observation,
                     options: Options) -> str:
    """Why the campaign must not give norebalance back now: too many PGs would move outside the
    caps; '' if it may. `pins`: PGs that are pinned and not in flight."""
    if campaign.holds.flag is None:
        return ''
    number = sum(1 for _ in loose_pgs(campaign, observation))
    if not are_many(number, pins + campaign.progress.released + campaign.progress.kept, options):
        return ''
    return '%s remapped without a pin and will move at once, outside the caps' % pgs_are(number)


def _why_not_pinned(draft: Draft, pgid: str, pool: Pool, place: Placement) -> Optional[Unpinnable]:
    """Why a remapped PG must not be pinned, even if the mons would keep the pin; None if it may
    be."""
    merging = merge_reason(pool, pgid) or next_merge_reason(pool, pgid)
    if merging is not None:
        return Unpinnable(merging)
    if draft.has_no_target(pgid, pool, place):
        return INCOMPLETE
    if draft.campaign.phase in RELEASING_PHASES and has_no_target(pool, place.up, place.acting):
        # While an OSD is down, one that the PG has left may serve it again. A pin to that would let
        # Ceph delete the copy on the OSD that is down, as soon as it is back. In other phases
        # nothing may move, also not to a new OSD that is down.
        return DEGRADED
    return None


def pin_decision(draft: Draft, pgid: str, sent: UpmapEntry = NO_ENTRY) -> PinDecision:
    """What becomes of a remapped PG: it is pinned as far as possible, or cannot be pinned, with the
    reason. `sent`: the entry of an earlier pin that the mons may still have in their queue."""
    pool = draft.pool(pgid)
    place = draft.observed.placement(pgid)
    if pool is None or place is None or place.up == place.acting:
        return PinDecision(pgid)
    why_not = _why_not_pinned(draft, pgid, pool, place)
    if why_not is not None:
        return PinDecision(pgid, why_not)
    present = draft.observed.osdmap.entry(pgid)
    result = plan_partial_pin(pool, place.up, place.acting, present, draft.observed.osdmap.osds,
                              draft.observed.crush, draft.out,
                              draft.observed.evacuation.get(pgid, ()))
    if isinstance(result, Unpinnable):
        # PGs without objects are never reported as degraded, others seconds after the OSDMap.
        degraded = lacks_an_osd(pool, place) or may_be_degraded(
            place.acting, draft.observed.degraded_osds)
        return PinDecision(pgid, DEGRADED if degraded else result)
    if not result.changed:
        return PinDecision(pgid)
    old = draft.pin_of(pgid)
    raw = _raw(draft, pool, place, present)
    before = _entry_to_restore(draft, pool, present, raw) if old is None else old.before
    action = SetEntry(pgid, result.entry, _with_late(present, sent, result.entry))
    if result.entry == before:
        # The entry from before suffices, so there is no pin to release later.
        return PinDecision(pgid, action=action, forgets=True)
    # A vector hides the raw set, which shows where its release leads.
    raw = None if result.entry.vector is None else raw
    if old is not None and old.entry == result.entry:
        return PinDecision(pgid, action=action, pin=replace(old, raw=raw))  # with its goal
    return PinDecision(pgid, action=action, pin=PinRecord(
        before, result.entry, raw, was=None if old is None else old.was))


def _none_is_misplaced(pool: Pool, place: Placement) -> bool:
    """Whether no copy or shard of the PG is misplaced."""
    if not pool.erasure:
        return set(place.acting) - {NO_OSD} <= set(place.up)
    return len(place.up) == len(place.acting) and all(
        osd in (NO_OSD, new) for osd, new in zip(place.acting, place.up))


def _raw(draft: Draft, pool: Pool, place: Placement, present: UpmapEntry) -> Optional[OsdSet]:
    """Where CRUSH places a PG; None: not known, for example while one of its OSDs may be down."""
    is_known = pool.is_complete(place.up) or not draft.lost
    return raw_from_up(place.up, present, draft.out) if is_known else None


def _with_late(present: UpmapEntry, sent: UpmapEntry, entry: UpmapEntry) -> UpmapEntry:
    """The present entry with the part of `sent` (an earlier pin that the mons may still set) that
    `entry` does not replace: it must be removed too."""
    return UpmapEntry(present.items or (() if entry.items else sent.items),
                      present.vector or (None if entry.vector else sent.vector))


def lacks_an_osd(pool: Pool, place: Placement) -> bool:
    """Whether fewer OSDs serve the PG than the pool's size, by the OSDMap."""
    return len(set(place.acting) - {NO_OSD}) < pool.size


def may_be_degraded(acting: OsdSet, degraded_osds: FrozenSet[int]) -> bool:
    """Whether each OSD that serves the PG has a degraded PG; holes in the set are ignored."""
    return degraded_osds.issuperset(set(acting) - {NO_OSD})


def _entry_to_restore(draft: Draft, pool: Pool, present: UpmapEntry,
                      raw: Optional[OsdSet]) -> UpmapEntry:
    """The entry that a release restores: the part of the present one that leads to no drained OSD
    and obeys the rule of the pool."""
    before = without_targets(present, draft.campaign.drained)
    return before if raw is None else lawful(before, raw, pool, draft.observed.crush, draft.out)


def _note_unpinnable(draft: Draft, unpinnable: Mapping[str, Unpinnable]) -> Draft:
    """Note which PGs cannot be pinned, and report those that are new."""
    fresh = {pgid: why for pgid, why in unpinnable.items()
             if pgid not in draft.campaign.pinning.unpinnable}
    # Also without new PGs, since the reasons may differ.
    return _report_unpinnable(draft, fresh).set(
        pinning=replace(draft.campaign.pinning, unpinnable=unpinnable))


def _report_unpinnable(draft: Draft, unpinnable: Mapping[str, Unpinnable]) -> Draft:
    """The draft with events on PGs that cannot be pinned: on some of them, and the number of the
    others."""
    for pgid in sorted(unpinnable)[:REPORTED_UNPINNABLE]:
        draft = draft.event('unpinnable', 'PG %s cannot be pinned' % pgid, unpinnable[pgid].reason)
    others = len(unpinnable) - REPORTED_UNPINNABLE
    return draft.event('unpinnable', '%s more cannot be pinned' % pgs(others)) \
        if others > 0 else draft
