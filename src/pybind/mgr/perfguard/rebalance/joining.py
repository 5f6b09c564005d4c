# SPDX-License-Identifier: LGPL-2.1-or-later
"""A change of CRUSH together with the pins that keep every PG where it is: one burst, one epoch.

If the future mapping is not available, as in the preview of the order, or if the burst is split
over two epochs, the ordinary way remains: norebalance is set, and PGs that become remapped are
pinned.
"""
import zlib
from dataclasses import replace
from typing import AbstractSet, Dict, List, Optional

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
from .holds import flags_settled, waiting_text
from .join_plan import (Join, PlannedFuture, bases_of, bridging, hides_raw, in_both,
                        plan_join, undersized)
from .orders import is_tiny
from .pinning import STUCK_SECONDS, audit, pin_remapped
from .pool_change import (accepted, change_to, has_numbers, has_targets, interrupted, move_first,
                          other_rule, pg_num_begun, stands_still, step_now, step_text, targets_of,
                          too_early, upmaps_to_remove)
from .releasing import balancer_of_others
from .turn import Turn, has_own_crush
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
#: CRUSH keeps weights in units of 1/65536.
WEIGHT_UNIT = 1 / 0x10000


def wants_outlook(campaign: Campaign, seen: Observation) -> bool:
    """The change is about to be sent, and nothing else of the campaign changes the mapping."""
    change = campaign.change
    return (campaign.phase is Phase.PINNING and change is not None
            and change.stage is ChangeStage.WANTED and change.needs_outlook
            and (change.pending or not campaign.pinning)
            and flags_settled(campaign.holds, seen.settings, True, True))


def closing_change(turn: Turn) -> Optional[Change]:
    """The change that ends a drain, or a rollback that empties OSDs, once no PG has to be kept on
    them: weight 0. The balancer takes an OSD of a tiny weight for one that lacks PGs."""
    change, osds = turn.campaign.change, tiny_osds(turn)
    if not osds or change is not None and change.closing:
        return None
    drained = {*osds, *(change.drained if change is not None else ())}
    return Change(dict.fromkeys(osds, 0.0), drained=tuple(sorted(drained)), closing=True)


def tiny_osds(turn: Turn) -> List[int]:
    """OSDs of the campaign's drain, and of one that it continues, that still have a tiny
    weight."""
    campaign, weights = turn.campaign, turn.seen.crush.weights()
    drained = {*campaign.draining, *(campaign.change.drained if campaign.change else ())}
    return sorted(osd for osd in drained if is_tiny(weights.get(osd, 0.0)))


def join(turn: Turn, ready: bool) -> None:
    """One step of a change: wanted -> sent -> landed."""
    change = turn.campaign.change
    assert change is not None
    if turn.campaign.undersized_pgs and turn.seen.new_map:
        _forget_recovered(turn)
    if change.pending and landed(change, turn):
        _land(turn, change)
    elif change.pool is not None and change.pool not in turn.seen.osdmap.pools:
        turn.enter(Phase.ABORTING, 'the pool no longer exists')
    elif change.rule is not None and other_rule(change, turn.seen.crush):
        turn.enter(Phase.ABORTING, other_rule(change, turn.seen.crush))
    elif interrupted(turn, change):
        turn.enter(Phase.ABORTING, interrupted(turn, change))
    elif step_now(turn, change) != change:
        turn.set(change=step_now(turn, change))
    elif turn.seen.overtaken:
        turn.enter(Phase.ABORTING, 'CRUSH has changed since "rebalance apply": %s. Get the current '
                   'CRUSH map, change it, and apply it again' % turn.seen.overtaken)
    elif _left_by_purge(turn, change) != change:
        turn.set(change=_left_by_purge(turn, change))
    elif change.stage is ChangeStage.WANTED:
        _next_burst(turn, change, ready)
    elif overdue(turn.campaign, turn.seen, turn.options):
        _again(turn, change)
    else:
        turn.set(change=accepted(turn, change))
        turn.because(Code.CRUSH_SENT, step_text(turn, change) if change.pgs else
                     'waiting for the CRUSH change to show in the OSDMap')


def _next_burst(turn: Turn, change: Change, ready: bool) -> None:
    """Send it once its pins are known and, last, the mons gather commands for longer than by
    default. All other waits may be long, and clients would wait for each proposal of the mons."""
    outlook = turn.seen.outlook
    if (change.done or change.moves_first or change.pgs) and not change.pending \
            and _unsettled(turn, change):
        turn.set(change=replace(change, gathers=False))
        turn.because(Code.PINS_SENT, 'waiting for the pins of %d of %s'
                     % (len(change.done), plural(len(change.weights), 'OSD'))
                     if change.pool is None else
                     'waiting until no PG of the pool is peering or waiting for its pin')
    elif not ready:
        if not _only_interval(turn):
            turn.set(change=replace(change, gathers=False))
        turn.because(Code.SETTINGS, waiting_text(
            turn.seen.settings, 'norebalance is set, the balancer is off, and '
            'paxos_propose_interval is %s' % ('raised' if change.gathers else 'not raised')))
    elif outlook is None and change.needs_outlook:
        turn.set(change=replace(change, gathers=False))
        turn.because(Code.OUTLOOK, 'computing where CRUSH will place the PGs' + (
            turn.seen.outlook_failure and ' again: ' + turn.seen.outlook_failure))
    elif change.closing and outlook is not None and _leave_where_pgs_remain(turn, change, outlook):
        pass
    elif isinstance(outlook, NoFuture) and not change.ordinary:
        turn.enter(Phase.ABORTING, 'cannot preview the CRUSH change: %s' % outlook.reason)
    elif change.moves_first and not change.pending and isinstance(outlook, Future) \
            and move_first(turn, change, outlook):
        turn.enter(Phase.PINNED, 'the PGs move before the pool is changed')
    elif change.gathers:
        _send(turn, change)
    elif _may_gather(turn, change):
        turn.set(change=replace(change, gathers=True))
        turn.because(Code.SETTINGS, 'waiting until paxos_propose_interval is raised')


def _left_by_purge(turn: Turn, change: Change) -> Change:
    """The change without the OSDs of later bursts that were purged: no preview of it would ever
    succeed."""
    if change.pending or not change.done:
        return change
    known = turn.seen.crush.weights()
    weights = {osd: weight for osd, weight in change.weights.items()
               if osd in change.done or osd in known}
    if len(weights) == len(change.weights):
        return change
    stage = change.stage if weights.keys() - set(change.done) else ChangeStage.LANDED
    return replace(change, weights=weights, stage=stage, burst=0, gathers=False)


def _leave_where_pgs_remain(turn: Turn, change: Change, outlook: Outlook) -> bool:
    """Leave the tiny weight to OSDs on which PGs remain: weight 0 would move these at once, since
    the mons drop pins to such OSDs. Returns whether there are any. PGs that lack an OSD are
    awaited."""
    if isinstance(outlook, NoFuture):
        _leave_out(turn, change, 'cannot preview weight 0: ' + outlook.reason)
        return True
    planned = _planned(turn, change, outlook)
    awaited = undersized(planned, outlook)
    lost = {pgid: _why_it_stays(turn, pgid, change, why)
            for pgid, why in planned.unpinnable.items()
            if why != INCOMPLETE and pgid not in awaited}
    lost.update((pgid, 'CRUSH would find too few OSDs') for pgid in (
        *planned.unpinnable, *planned.pins) if _is_given_up(turn, pgid, outlook))
    if not lost:
        return False
    remain = {osd for pgid in lost for osd in outlook.pgs[pgid].acting} & change.weights.keys()
    left = {osd: weight for osd, weight in change.weights.items() if osd not in remain}
    why = 'with weight 0, %s could not be pinned: %s' % (pgs(len(lost)), listed(
        ['PG %s (%s)' % row for row in sorted(lost.items())], NAMED))
    if change.pending or len(left) in (0, len(change.weights)):
        _leave_out(turn, change, why)
    else:
        _note_tiny(turn, remain, why)
        turn.set(change=replace(change, weights=left, burst=0, gathers=False))
    return True


def _why_it_stays(turn: Turn, pgid: str, change: Change, why: str) -> str:
    """Why a PG is still on an OSD that was drained; `why` if it is not."""
    place, entry = turn.seen.placement(pgid), turn.seen.osdmap.entry(pgid)
    here = change.weights.keys() & set(place.up if place is not None else ())
    if not here:
        return why
    return '%s it on %s' % ('an upmap keeps' if here & set(entry.targets) else 'CRUSH still places',
                            osds_text(here))


def _is_given_up(turn: Turn, pgid: str, outlook: Future) -> bool:
    """Whether CRUSH finds enough OSDs for the PG now, and would find too few."""
    pool, place = turn.pool(pgid), turn.seen.placement(pgid)
    return pool is not None and place is not None and pool.is_complete(place.up) \
        and not pool.is_complete(outlook.pgs[pgid].raw)


def _leave_out(turn: Turn, change: Change, why: str) -> None:
    """End with the tiny weight."""
    if change.pending:
        _unsent(turn, change)
    _note_tiny(turn, change.weights.keys() - set(change.done), why)
    turn.set(change=replace(
        change, weights={osd: change.weights[osd] for osd in change.done}, burst=0, times=0,
        gathers=False, stage=ChangeStage.LANDED), phase_since=turn.now)


def _note_tiny(turn: Turn, osds: AbstractSet[int], why: str) -> None:
    turn.event('join', 'the CRUSH weight of %s stays %s' % (osds_text(osds), TINY_WEIGHT), why)


def _only_interval(turn: Turn) -> bool:
    """Whether the burst waits for nothing but the longer interval of the mons."""
    return not balancer_of_others(turn) and flags_settled(
        turn.campaign.holds, turn.seen.settings, True, True)


def _unsettled(turn: Turn, change: Change) -> bool:
    """Whether the last burst is not completely in force; PGs that it has missed are pinned here."""
    left = pin_remapped(turn)
    peering = turn.seen.signals.counts.in_transition > 0
    if change.pgs is not None and turn.now - change.since <= turn.seen.stats_period + 1:
        return True  # PGs that were split have not reported yet
    return bool(left or turn.campaign.pinning
                or peering and turn.now - change.since <= STUCK_SECONDS)


def _may_gather(turn: Turn, change: Change) -> bool:
    """Whether all pins of the burst can be sent."""
    outlook = turn.seen.outlook
    if not isinstance(outlook, Future) or change.moves_first:
        return True
    planned = _planned(turn, change, outlook)
    others = set(undersized(planned, outlook)) - set(turn.campaign.undersized_pgs)
    return not _awaits_osds(turn, len(others)) \
        and not _divided(turn, change, _entries(turn, planned))


def _forget_recovered(turn: Turn) -> None:
    """Forget accepted PGs that have recovered: if they lack an OSD again, the change waits."""
    left = []
    for pgid in turn.campaign.undersized_pgs:
        pool, place = turn.pool(pgid), turn.seen.placement(pgid)
        if pool is not None and (place is None or not pool.is_complete(place.acting)):
            left.append(pgid)
    turn.set(undersized_pgs=tuple(left))


def _awaits_osds(turn: Turn, number: int) -> bool:
    """Whether `number` PGs besides those of the order lack an OSD. Without pins, all of them would
    be copied to other OSDs at once, although the OSD may only have restarted."""
    reason = Reason(Code.DEGRADED, '%s undersized and would be remapped by the change; waiting '
                    'until the OSDs are back or the PGs have recovered ("rebalance acknowledge '
                    'DEGRADED" changes CRUSH anyway)' % pgs_are(number))
    if number <= turn.campaign.undersized or is_muted(reason, turn.seen.signals) \
            or is_waived(reason, turn.campaign.acknowledged):
        return False
    turn.reasons.append(reason)
    return True


def _divided(turn: Turn, change: Change, pins: int) -> bool:
    """Take fewer OSDs at a time if the burst requires too many pins."""
    if pins <= MAX_BURST_PINS or len(change.chunk) < 2:
        return False
    fitting = max(1, MAX_BURST_PINS * len(change.chunk) // pins)
    turn.set(change=replace(change, burst=min(fitting, len(change.chunk) - 1)))
    turn.because(Code.OUTLOOK, 'the change requires %d pins, too many for one epoch; '
                 'changing fewer OSDs at a time' % pins)
    return True


def _send(turn: Turn, change: Change) -> None:
    outlook = turn.seen.outlook
    planned = Join({}, {}, {})
    if isinstance(outlook, Future):
        planned = _planned(turn, change, outlook)
        early = too_early(turn, change, planned.unpinnable)
        if early:
            turn.enter(Phase.ABORTING, early)
            return
    if not has_own_crush(turn.campaign, turn.seen):
        turn.set(crush_own=-1)
    _lead_elsewhere(turn, change.drained)
    actions: List[Action] = [SetWeight(osd, weight)
                             for osd, weight in change.chunk.items()]
    if change.rule is not None:
        actions.append(SetPoolRule(turn.seen.osdmap.pools[change.rule.pool].name,
                                   turn.seen.crush.rule_name(change.rule.rule)))
    if change.pgs is not None:
        pool = turn.seen.osdmap.pools[change.pgs.pool]
        actions.append(SetPoolPgs(pool.name, change.pgs.pg_num, change.pgs.pgp_num))
        change = replace(change, replaces=targets_of(pool))
    if isinstance(outlook, Future) and outlook.crush_map is not None:
        actions.append(SetCrushMap(outlook.crush_map, turn.seen.crush_version))
    pins = vectors = 0
    if isinstance(outlook, NoFuture):
        _adopt_upmaps(turn, change.drained)
        turn.event('join', 'the change remaps PGs first and perfguard pins them afterwards',
                   outlook.reason)
    elif outlook is not None:
        pins, vectors = len(planned.pins), planned.vectors
        _note(turn, planned, outlook, actions)
    turn.actions.extend(actions)
    turn.set(change=replace(change, stage=ChangeStage.SENT, since=turn.now, times=change.times + 1,
                            pins=pins, vectors=vectors, fingerprint=_expected(turn, change),
                            tunables=_expected_crush(turn, change).tunables,
                            crush_version=turn.seen.crush_version, gathers=False),
             pins_sent=turn.now)
    turn.event('join', 'changing %s and pinning %s in one OSDMap epoch' % (
        'CRUSH' if change.pgs is None else 'pg_num or pgp_num', pgs(pins)),
        '%d of them with pg_upmap' % vectors)


def _planned(turn: Turn, change: Change, outlook: Future) -> Join:
    osdmap, drained = turn.seen.osdmap, change.drained
    if turn.campaign.rolled_back and not change.closing:
        return plan_join(osdmap, outlook, drained, bases=bases_of(turn.pinned()))
    if change.moves_first:
        return plan_join(osdmap, outlook, drained, bases=upmaps_to_remove(turn, outlook))
    return outlook.join if isinstance(outlook, PlannedFuture) else plan_join(
        osdmap, outlook, drained)


def _expected(turn: Turn, change: Change) -> int:
    if change.crush_map and isinstance(turn.seen.outlook, Future):
        return turn.seen.outlook.crush.fingerprint()
    return _rest_of_crush(turn, change)


def _expected_crush(turn: Turn, change: Change) -> CrushRules:
    """CRUSH whose tunables are in force after the change; new weights do not change them."""
    outlook = turn.seen.outlook
    return outlook.crush if change.crush_map and isinstance(outlook, Future) else turn.seen.crush


def _entries(turn: Turn, planned: Join) -> int:
    """Upmap entries to be sent."""
    return sum(turn.seen.osdmap.entry(pgid) != pin.entry for pgid, pin in planned.pins.items()) \
        + len(planned.removed)


def _lead_elsewhere(turn: Turn, drained: OsdSet) -> None:
    """Pins that an aborted campaign left must not be released to OSDs that are drained now."""
    for pgid, left in turn.pinned().items() if drained else ():
        if without(left.before, drained) != left.before:
            turn.note_pin(pgid, replace(left, before=without(left.before, drained)))


def _adopt_upmaps(turn: Turn, drained: OsdSet) -> None:
    """Upmaps to drained OSDs stay in force under the tiny weight, so they have to be released."""
    osdmap = turn.seen.osdmap
    for pgid in (*osdmap.upmap_items, *osdmap.upmap_vectors):
        entry = osdmap.entry(pgid)
        if turn.pin_of(pgid) is None and without(entry, drained) != entry:
            turn.note_pin(pgid, PinRecord(without(entry, drained), entry))


def _note(turn: Turn, planned: Join, future: Future, actions: List[Action]) -> None:
    pinning = dict(turn.campaign.pinning)
    for pgid, pin in planned.pins.items():
        old = turn.pin_of(pgid)
        if old is not None:
            pin = replace(pin, before=old.before, was=old.was)
        turn.note_pin(pgid, pin)
        present = turn.seen.osdmap.entry(pgid)
        if present != pin.entry:
            actions.append(SetEntry(pgid, in_both(turn, pgid, pin.entry, future), present))
            pinning[pgid] = Sent(turn.now)
    for pgid, entry in planned.removed.items():
        _bridge(turn, pgid, entry, future, actions)
    turn.set(pinning=pinning)


def _bridge(turn: Turn, pgid: str, entry: UpmapEntry, future: Future,
            actions: List[Action]) -> None:
    """Send the entry of a pin that becomes unnecessary for the epoch of the change, mostly none.

    The mons may refuse the change of CRUSH and carry out all the rest. So the pin and its record
    stay until the change is read back, and `_unpin` removes them.
    """
    present, pin = turn.seen.osdmap.entry(pgid), turn.pin_of(pgid)
    sent = bridging(turn, pgid, entry, future)
    if pin is not None and hides_raw(turn, pgid, sent, future):
        # `_unpin` cannot see then where CRUSH places the PG.
        turn.note_pin(pgid, replace(pin, goal=entry))
    if sent != present:
        actions.append(SetEntry(pgid, sent, present))


def _kept(turn: Turn, pgid: str, pool: Pool, up: OsdSet,
          base: UpmapEntry) -> Optional[UpmapEntry]:
    """The remaining part of the earlier entry if the PG stays in place with it, else None."""
    present, pin = turn.seen.osdmap.entry(pgid), turn.pinned()[pgid]
    raw = raw_from_up(up, present, turn.out)
    if raw is None:
        return pin.goal
    kept = after_commit(raw, base, pool, turn.seen.osdmap.osds, turn.seen.crush, pgid, turn.out)
    return kept if apply_entry(raw, kept, turn.out) == up else None


def _unpin(turn: Turn, change: Change) -> None:
    """Remove the pins that are unnecessary under the restored CRUSH map."""
    osdmap, count = turn.seen.osdmap, 0
    for pgid, base in bases_of(turn.pinned()).items():
        pool, place = turn.pool(pgid), turn.seen.placement(pgid)
        present = osdmap.entry(pgid)
        if pool is None or place is None or pgid in osdmap.pg_temp or place.up != place.acting:
            continue
        if pgid in turn.campaign.pinning and present != turn.pinned()[pgid].entry:
            continue  # the change needs this pin, which follows; until then the PG peers without it
        kept = _kept(turn, pgid, pool, place.up, base)
        if kept is not None and kept == without(kept, change.drained):
            turn.forget_pin(pgid)
            count += 1
            if present != kept:
                turn.actions.append(SetEntry(pgid, kept, present))
    if count:
        turn.set(pinning={pgid: sent for pgid, sent in turn.campaign.pinning.items()
                          if turn.pin_of(pgid) is not None}, pins_sent=turn.now)
        turn.event('join', '%s removed' % plural(count, 'pin'), 'the restored CRUSH '
                   'map does not need them')


def landed(change: Change, turn: Turn) -> bool:
    """Whether the OSDMap of the mgr shows the change."""
    if change.crush_map:
        return (turn.seen.crush_version != change.crush_version
                and turn.seen.crush.fingerprint() == change.fingerprint
                # It must not be the old map under a new version.
                and turn.seen.crush.identity != change.crush_identity)
    if change.pgs is not None:
        return has_numbers(turn, change)
    if change.rule is not None:
        pool = turn.seen.osdmap.pools.get(change.rule.pool)
        return pool is not None and pool.crush_rule == change.rule.rule
    return len(_in_force(turn, change)) == len(change.chunk)


def _in_force(turn: Turn, change: Change) -> List[int]:
    """OSDs of the burst that have their new weight."""
    weights = turn.seen.crush.weights()
    return [osd for osd, weight in change.chunk.items()
            if abs(weights.get(osd, -1.0) - weight) < 2 * WEIGHT_UNIT]


def _claim(turn: Turn, change: Change) -> None:
    """Note the CRUSH version as the campaign's own, unless others changed CRUSH along with it."""
    version = turn.seen.crush_version
    if turn.campaign.crush_own not in (-1, version):
        # For weights, earlier versions also stored the fingerprint of the whole map.
        found = {turn.seen.crush.fingerprint()}
        if not change.crush_map:
            found.add(_rest_of_crush(turn, change))
        own = change.fingerprint in found and change.tunables in (0, turn.seen.crush.tunables)
        turn.set(crush_own=version if own else -1, crush_identity=turn.seen.crush.identity)


def _rest_of_crush(turn: Turn, change: Change) -> int:
    """A checksum of CRUSH without the OSDs of the burst."""
    names = {'osd.%d' % osd for osd in change.chunk}
    rest = sorted(item for item in turn.seen.crush.digest().items() if item[0] not in names)
    return zlib.crc32(repr(rest).encode())


def _land(turn: Turn, change: Change) -> None:
    if turn.campaign.removes_upmaps:
        _unpin(turn, change)
    _claim(turn, change)
    _next_stage(turn, change)
    audit(turn)


def _next_stage(turn: Turn, change: Change) -> None:
    if change.more:
        done = tuple(sorted((*change.done, *change.chunk)))
        turn.set(change=replace(change, stage=ChangeStage.WANTED, done=done, times=0,
                                since=turn.now))
        turn.event('join', 'CRUSH weights of %d of %s are in force' % (
            len(done), plural(len(change.weights), 'OSD')), 'read back from the OSDMap')
        return
    if change.rule is not None and change.then is not None:
        turn.set(change=Change(rule=change.rule._replace(rule=change.then), moves_first=True,
                               rule_name=change.rule_name, found_rule=change.found_rule,
                               via=change.via, since=turn.now),
                 phase_since=turn.now)
        turn.event('join', 'the intermediate CRUSH rule is in force, %s pinned'
                   % pgs_are(turn.pin_count), 'read back from the OSDMap')
        return
    following = change_to(turn, change)
    if following is not None:
        turn.set(change=following, phase_since=turn.now)
        turn.event('join', step_text(turn, change), 'read back from the OSDMap')
        return
    turn.set(change=replace(change, stage=ChangeStage.LANDED), phase_since=turn.now,
             undersized_pgs=())
    turn.event('join', 'CRUSH is changed, %s pinned, %d remapped' % (
        pgs_are(turn.pin_count), len(turn.seen.osdmap.pg_temp)), 'read back from the OSDMap')


def drop_refused(turn: Turn) -> None:
    """At the end of an abort: drop a change of which nothing is in force."""
    campaign, change = turn.campaign, turn.campaign.change
    if change is None or change.stage is ChangeStage.LANDED:
        return
    done = tuple(sorted((*change.done, *_in_force(turn, change))))
    if change.closing:
        _leave_out(turn, replace(change, done=done), 'the campaign was aborted')
    elif done:
        turn.set(change=replace(change, done=done))
    elif change.moves_first or pg_num_begun(change, turn.seen.osdmap):
        return  # "rebalance resume" continues with the remaining PGs
    elif campaign.rolled_back:
        turn.set(change=campaign.undone, undone=None, rolled_back=False)
    else:
        turn.set(change=Change(stage=ChangeStage.LANDED))


def on_its_way(turn: Turn) -> bool:
    """For a campaign that is being aborted: whether its change of CRUSH may still take effect."""
    change = turn.campaign.change
    if change is None or not change.pending:
        return False
    if landed(change, turn):
        _land(turn, change)
    elif not stands_still(turn, change):
        return True
    elif overdue(turn.campaign, turn.seen, turn.options):
        _unsent(turn, change)
    else:
        return True
    return False


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


def _unsent(turn: Turn, change: Change) -> None:
    """The burst, or the part of it that changes CRUSH, is not in force."""
    for pgid in turn.campaign.pinning:
        pin, present = turn.pin_of(pgid), turn.seen.osdmap.entry(pgid)
        if pin is None or present == pin.entry:
            continue
        if not present or present in (pin.before, pin.was):
            # Planned for a mapping that is not in force: the present one needs no such pin.
            turn.forget_pin(pgid)
        else:
            turn.note_pin(pgid, replace(pin, entry=present))  # an earlier pin is still there
    _claim(turn, change)
    turn.set(pinning=_pinned_again(turn), change=replace(change, stage=ChangeStage.WANTED, times=0))


def _again(turn: Turn, change: Change) -> None:
    """The records of the pins stay until the change is given up: the burst may take effect late."""
    _claim(turn, change)
    if change.times < SEND_TIMES:
        turn.set(change=replace(change, stage=ChangeStage.WANTED))
        turn.event('join', 'the CRUSH change is sent again', 'the OSDMap does not show it')
        return
    if change.closing:
        _leave_out(turn, change, 'the mons did not accept weight 0')
        return
    _unsent(turn, change)
    turn.event('join', 'the CRUSH change is given up', 'the mons did not accept it')
    turn.enter(Phase.ABORTING, 'the mons did not accept the CRUSH change')


def _pinned_again(turn: Turn) -> Dict[str, Sent]:
    """Send pins again that were removed with a change of CRUSH that is not in force."""
    sent: Dict[str, Sent] = {}
    for pgid, pin in turn.pinned().items() if turn.campaign.removes_upmaps else ():
        present = turn.seen.osdmap.entry(pgid)
        if pin != turn.pin_of(pgid):
            continue
        if pin.goal is not None:
            turn.note_pin(pgid, replace(pin, goal=None))
        if pin.entry != present:
            turn.actions.append(SetEntry(pgid, pin.entry, present))
            sent[pgid] = Sent(turn.now)
    if sent:
        turn.set(pins_sent=turn.now)
    return sent
