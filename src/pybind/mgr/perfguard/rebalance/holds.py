# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags, balancer, autoscaler and options of the mons: borrowed for a campaign, given back after
it.

Settings of others are never changed. The rest follows the rule of perfguard/ledger.py.
"""
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, List, Mapping, Optional, Tuple

from ..cluster.set_by_others import AUTOSCALE_OF_POOL, BALANCER
from ..cluster.types import MAX_SCRUBS, OsdMap, PgCounts
from ..events import Event
from ..ledger import Held, give_back, hold, hold_other, same_value
from ..observation import MON, OSD, OSD_OPTION, Settings
from ..options import Options
from .campaign import Campaign
from .change import ChangeStage
from .copying import OFF
from .epochs import GATHER_SECONDS, PROPOSE_INTERVAL, fast_proposals
from .types import (AUTOSCALE, AUTOSCALE_MODE, NOREBALANCE_KEY, RELEASING_PHASES, Action, Holds,
                    Phase, SetBalancer, SetFlag, SetOption, SetPool)

NOREBALANCE = 'norebalance'
#: The balancer's default. If there was no entry, this value is given back: an mgr does not notice
#: that an option was removed, so a standby would keep the balancer off.
ACTIVE = 'true'
#: Flags that prevent all movement of released PGs.
MOVEMENT_FLAGS = ('norebalance', 'nobackfill', 'norecover')
NO_OPTIONS: Mapping[str, str] = {}
#: A PG without objects is never degraded, so norebalance defers its backfill
#: (PrimaryLogPG::start_recovery_ops). So is the end of a backfill, if the primary publishes that
#: all objects have arrived before the target has confirmed it (OP_BACKFILL_FINISH_ACK). If the PG
#: is undersized, its backfill has the priority of those of degraded PGs
#: (PeeringState::get_backfill_priority), which wait until it gives its reservations back: as long
#: as norebalance is set. If it has fewer copies than min_size, clients wait for it. If no other PG
#: is unclean, only this one keeps the mons from trimming OSDMaps. After this time norebalance is
#: cleared for some seconds: backfill without objects takes one. If that was not the cause, it is
#: repeated later.
BLOCKED_SECONDS = 15.0
GIVE_WAY_SECONDS = 45.0
GIVE_WAY_AGAIN_SECONDS = 600.0


@dataclass(frozen=True)
class Reconciled:
    """One step towards the settings that a campaign needs."""
    #: The holds after the step, to be journalled before its actions are sent.
    holds: Holds
    actions: Tuple[Action, ...] = ()
    #: Texts on changes by others.
    notices: Tuple[str, ...] = ()


def reconcile(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
              begin: bool, mon: Mapping[str, str] = NO_OPTIONS,
              pools: Optional[AbstractSet[int]] = None, now: float = 0.0) -> Reconciled:
    """One step towards the settings that the campaign needs.

    `norebalance`: the flag must be set. `quiet`: balancer and autoscaler must be off. `begin`:
    those that are on and not borrowed yet are switched off; False: others must have switched them
    on since, and they are left alone. `mon`: option -> value that the mons must have. `pools`: with
    `quiet`, the autoscaler is off for these alone; None: all. With `norebalance` and `quiet` False
    and no `mon`, everything is given back; the result's `holds` is empty once that is complete.
    `now`: seconds since the epoch.
    """
    holds, notices_of_others = _without_set_by_others(holds, settings)
    holds, notices_of_balancer = _with_balancer_again(holds, settings, quiet, now)
    flag = _flag(holds, settings, norebalance)
    balancer = _balancer_off(flag.holds, settings, begin) if quiet \
        else _balancer_back(flag.holds, settings)
    quiet_pools = settings.osdmap.pools.keys() if pools is None else pools
    autoscale = _autoscale(balancer.holds, settings.osdmap, quiet_pools if quiet else frozenset(),
                           begin)
    holds_after, actions, notices = reconcile_mon_options(autoscale.holds, settings.mon, mon)
    return Reconciled(holds_after,
                      flag.actions + balancer.actions + autoscale.actions + tuple(actions),
                      notices_of_others + notices_of_balancer + flag.notices + balancer.notices
                      + autoscale.notices + tuple(notices))


def _without_set_by_others(holds: Holds, settings: Settings) -> Tuple[Holds, Tuple[str, ...]]:
    """The holds without the balancer and autoscalers that others have set to what perfguard had
    put: their command changes nothing, but it stays valid at the end. Also returns texts on these
    settings."""
    if not settings.values_set_by_others:
        return holds, ()  # else this would look at each pool in every turn
    notices: List[str] = []
    texts = {BALANCER: (BALANCER, 'the balancer')}
    for pool in settings.osdmap.pools.values():
        texts[AUTOSCALE + str(pool.id)] = (AUTOSCALE_OF_POOL + pool.name,
                                           'the autoscaler of pool %s' % pool.name)
    for key, (setting, text) in texts.items():
        held = holds.held.get(key)
        value, set_at = settings.values_set_by_others.get(setting, ('', 0.0))
        if key == BALANCER and set_at <= holds.balancer_again:
            continue  # the order after which it was borrowed again
        if held is not None and value == held.put:
            holds = holds.put(key, None).give_up(key)
            notices.append('%s was switched off outside perfguard, too: perfguard leaves it off'
                           % text)
    return holds, tuple(notices)


def _with_balancer_again(holds: Holds, settings: Settings, quiet: bool,
                         now: float) -> Tuple[Holds, Tuple[str, ...]]:
    """The holds with the balancer borrowed again if it was on before the campaign, and is off again
    after others have switched it on; also a text on that. `quiet`, `now`: as in `reconcile`.

    The campaign waits until it is off, and asks for that: whoever switches it off then does so for
    the campaign, and expects it to be as before afterwards. Once the campaign no longer needs it to
    be off, it is left as it is.
    """
    found = holds.balancer_found
    if found is None:
        return holds, ()
    if settings.balancer_active == 'false' and not (quiet and settings.balancer_busy):
        holds = not_given_up(holds.put(BALANCER, Held(found, 'false', seen=True)), BALANCER)
        return replace(holds, balancer_found=None, balancer_again=now), (
            'the balancer was switched off again outside perfguard: perfguard switches it on at '
            'the end of the campaign, as it was on before',)
    return holds if quiet else replace(holds, balancer_found=None), ()


def blocked_since(before: float, counts: PgCounts, now: float, is_prepared: bool) -> float:
    """Since when PGs without objects may have kept degraded ones from backfill, clients waiting, or
    the mons from trimming OSDMaps, in seconds since the epoch; 0.0: they do not. `before`: the
    result of the last turn. `is_prepared`: an operator may change CRUSH at any time, and relies on
    norebalance; OSDMaps do not count.

    While norebalance gives way, the harm no longer shows: it counts until all undersized PGs
    without objects have backfilled.
    """
    harmful = counts.degraded_waiting > 0 or counts.inactive_empty > 0 or gives_way(before, now) \
        or counts.only_empty_unclean and not is_prepared
    if not counts.undersized_empty or not harmful:
        return 0.0
    return before or now


def gives_way(blocked: float, now: float) -> bool:
    """Whether norebalance gives way to recovery now; `blocked`: since when it defers recovery
    (blocked_since); 0.0: it does not."""
    elapsed_seconds = (now - blocked) % GIVE_WAY_AGAIN_SECONDS
    return bool(blocked) and 0.0 <= elapsed_seconds - BLOCKED_SECONDS < GIVE_WAY_SECONDS


def not_given_up(holds: Holds, key: str) -> Holds:
    """The holds with a setting that no longer counts as given up, so it may be borrowed again,
    although others had changed it: the operator has requested it since, or the campaign has had no
    need of it."""
    return replace(holds, given_up=holds.given_up - {key})


def _flag(holds: Holds, settings: Settings, wanted: bool) -> Reconciled:
    """One step towards norebalance being set (`wanted`), or given back."""
    value = NOREBALANCE if NOREBALANCE in settings.osdmap.flags else None
    if value and NOREBALANCE in settings.flags_set_by_others and holds.flag is not None:
        # "ceph osd set" changes nothing then, but is meant: an emergency stop.
        return Reconciled(holds.put(NOREBALANCE_KEY, None), (), (
            'norebalance was set outside perfguard, too: perfguard leaves it set',))
    if not wanted:
        # A change by others counts until the flag is no longer wanted.
        holds = not_given_up(holds, NOREBALANCE_KEY)
    held = holds.flag
    if held is None:
        if not wanted or value or NOREBALANCE in settings.borrowed_elsewhere or holds.gave_up_flag:
            return Reconciled(holds)  # set by others, or borrowed by another part
        return Reconciled(holds.put(NOREBALANCE_KEY, Held(None, NOREBALANCE)),
                          (SetFlag(NOREBALANCE, True),))
    if wanted and held.returning:
        # An OSDMap may be older than our last commands. If the flag was set again before one has
        # shown that it was cleared, the OSDMaps of both commands would come later and look like
        # changes by others: the flag would be given up, and stay set.
        step = give_back(held, value)
        holds = holds.put(NOREBALANCE_KEY, step.held)
        return _flag(holds, settings, wanted) if step.held is None \
            else Reconciled(holds, (SetFlag(NOREBALANCE, False),))
    step = hold(held, value) if wanted else give_back(held, value)
    holds = holds.put(NOREBALANCE_KEY, step.held)
    if wanted and step.theirs:
        return Reconciled(holds.give_up(NOREBALANCE_KEY), (), (
            'norebalance was cleared outside perfguard: perfguard does not set it again',))
    return Reconciled(holds, (SetFlag(NOREBALANCE, wanted),) if step.send else ())


def _balancer_off(holds: Holds, settings: Settings, begin: bool) -> Reconciled:
    """One step towards the balancer being off. It is given up once others switch it on, and never
    borrowed if it is off anyway. `begin`: as in `reconcile`."""
    held = holds.held.get(BALANCER)
    if BALANCER in holds.given_up or held is None and settings.balancer_active == 'false':
        return Reconciled(holds)
    if held is None:
        if not begin:
            return _switched_on_by_others(holds)
        if settings.stored is None:
            return Reconciled(holds)  # what to give back is read in a later turn
        holds = replace(holds, balancer_found=None)
        return Reconciled(holds.put(BALANCER, Held(_stored_active(settings), 'false')),
                          (SetBalancer(False),))
    step = hold(held, _balancer_value(held, settings))
    if step.held is None:
        return _switched_on_by_others(holds)
    return Reconciled(holds.put(BALANCER, step.held), (SetBalancer(False),) if step.send else ())


def _balancer_back(holds: Holds, settings: Settings) -> Reconciled:
    """One step towards the balancer being given back, once the configuration database was read;
    nothing if it is not borrowed."""
    held = holds.held.get(BALANCER)
    if held is None or settings.stored is None:
        return Reconciled(holds)
    step = give_back(held, _stored_active(settings))
    return Reconciled(holds.put(BALANCER, step.held), (SetBalancer(True),) if step.send else ())


def _stored_active(settings: Settings) -> str:
    """mgr/balancer/active in the configuration database; without an entry, for example because
    others removed it, the value that the mgr still uses."""
    return settings.balancer_stored or settings.balancer_active or ACTIVE


def _balancer_value(balancer: Held, settings: Settings) -> Optional[str]:
    """The value of the balancer to compare with the borrowed one, as `hold` does.

    Only the value in force shows that the balancer is off. As long as that was not seen, or while
    it is given back, the value in force may be an old one: then the entry in the database shows
    whether others have set it. If the entry is ours, or was not read, the result is the value that
    was found, for which `hold` sends the command again.
    """
    if settings.balancer_active == balancer.put:
        return balancer.put
    if balancer.seen and not balancer.returning:
        return settings.balancer_active
    stored = _stored_active(settings)
    return balancer.found if settings.stored is None or stored == balancer.put else stored


def _switched_on_by_others(holds: Holds) -> Reconciled:
    """Give up the balancer, which others have switched on during the campaign. If it was borrowed,
    what was found is kept, in case they switch it off again."""
    held = holds.held.get(BALANCER)
    found = holds.balancer_found if held is None else held.found
    return Reconciled(
        replace(holds.put(BALANCER, None).give_up(BALANCER), balancer_found=found), (),
        ('the balancer was switched on outside perfguard: perfguard does not switch it off',))


def _autoscale(holds: Holds, osdmap: OsdMap, off: AbstractSet[int], begin: bool) -> Reconciled:
    """One step towards the autoscaler being off for the pools `off` (IDs), and given back for
    others. `begin`: it may be borrowed now."""
    actions: List[Action] = []
    notices: List[str] = []
    for pool in osdmap.pools.values():
        if pool.id not in off:
            continue
        key = AUTOSCALE + str(pool.id)
        if key not in holds.held:
            if begin and pool.autoscale_mode == 'on' and key not in holds.given_up:
                holds = holds.put(key, Held('on', 'off'))
                actions.append(SetPool(pool.name, AUTOSCALE_MODE, 'off'))
            continue
        step = hold(holds.held[key], pool.autoscale_mode)
        holds = holds.put(key, step.held)
        if step.held is None:
            holds = holds.give_up(key)
            notices.append(f'the autoscaler of pool {pool.name} was switched to '
                           f'{pool.autoscale_mode} outside perfguard')
            continue
        if step.send:
            actions.append(SetPool(pool.name, AUTOSCALE_MODE, step.held.put))
    for pool_id, held in sorted(holds.autoscale.items()):
        key = AUTOSCALE + str(pool_id)
        if pool_id not in osdmap.pools:
            holds = holds.put(key, None)  # nothing is given back to a removed pool
        elif pool_id not in off:
            pool = osdmap.pools[pool_id]
            step = give_back(held, pool.autoscale_mode)
            holds = holds.put(key, step.held)
            if step.held is not None:
                actions.append(SetPool(pool.name, AUTOSCALE_MODE, step.held.found or 'on'))
    return Reconciled(holds, tuple(actions), tuple(notices))


def waiting_text(settings: Settings, until: str) -> str:
    """Text on why a campaign waits for its borrowed settings. `until`: what has to show, unless the
    balancer is still carrying out a plan."""
    if settings.balancer_busy:
        return 'waiting until the balancer has carried out its last plan; if its module has ' \
            'failed ("ceph health detail"), run "ceph mgr fail"'
    return 'waiting until ' + until


def settled(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
            mon: Mapping[str, str] = NO_OPTIONS,
            pools: Optional[AbstractSet[int]] = None) -> bool:
    """Whether the cluster shows every setting as required, with the arguments of `reconcile`, or as
    changed by others."""
    return mon_options_settled(holds, settings.mon, mon) \
        and flags_settled(holds, settings, norebalance, quiet, pools)


def flags_settled(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
                  pools: Optional[AbstractSet[int]] = None) -> bool:
    """Whether the flag, the balancer and the autoscaler are as they must be, with the arguments of
    `reconcile`. Options of the mons and the OSDs do not count."""
    if norebalance and NOREBALANCE not in settings.osdmap.flags \
            and not holds.gave_up_flag:
        return False
    if not norebalance and holds.flag is not None:
        return False
    return quiet_settled(holds, settings, quiet, pools)


def flag_is_coming(holds: Holds) -> bool:
    """Whether norebalance was set and no OSDMap has shown it yet. If it was cleared now and set
    again, the OSDMaps of both commands would arrive later, and look like changes by others."""
    return holds.flag is not None and not holds.flag.seen and not holds.flag.returning


def quiet_settled(holds: Holds, settings: Settings, quiet: bool,
                  pools: Optional[AbstractSet[int]] = None) -> bool:
    """Whether the balancer and the autoscaler are as they must be, with the arguments of
    `reconcile`."""
    autoscale = holds.autoscale
    if quiet:
        on = settings.balancer_active != 'false' or settings.balancer_busy
        if on and BALANCER not in holds.given_up:
            return False
        return (all(held.seen for held in autoscale.values())
                and (BALANCER not in holds.held or holds.held[BALANCER].seen)
                and (pools is None or autoscale.keys() <= pools))
    return BALANCER not in holds.held and not autoscale


def foreign_movement_flags(holds: Holds, flags: AbstractSet[str]) -> Tuple[str, ...]:
    """Flags of others that prevent released PGs from moving."""
    return tuple(flag for flag in MOVEMENT_FLAGS if flag in flags - holds.flags)


#: An OSD that boots gets this CRUSH weight; below 0: its size in TiB. See awaiting.py.
INITIAL_WEIGHT = 'osd_crush_initial_weight'


def wanted_mon_options(campaign: Campaign, options: Options, osdmap: OsdMap) -> Mapping[str, str]:
    """Option -> value that the mons and the OSDs ("osd/<name>") must have now."""
    change = campaign.change
    if campaign.phase is Phase.PINNING and change is not None and change.gathers \
            and change.stage is ChangeStage.WANTED:
        # All commands of the change, with its pins, are to be in one epoch.
        return {PROPOSE_INTERVAL: GATHER_SECONDS}
    releasing = campaign.phase is Phase.RELEASING or bool(
        campaign.phase is Phase.HOLDING and campaign.flights.in_flight)
    values = fast_proposals(campaign, releasing, options, osdmap)
    copying = releasing or bool(
        campaign.phase is Phase.FINISHING and campaign.flights.in_flight)
    if copying and not campaign.orders.paused and options.pace_copying != OFF:
        values.update({OSD_OPTION + name: value
                       for name, value in campaign.copying.wanted.items()})
    # Not while the campaign is HOLDING or stuck: a single PG in flight would disable scrubs for
    # days.
    if campaign.phase is Phase.RELEASING and not campaign.orders.paused and options.hold_scrubs \
            and campaign.idle_seconds(campaign.progress.turned) < options.stalled_after:
        values[OSD_OPTION + MAX_SCRUBS] = '0'
    return {name: value for name, value in values.items() if name not in campaign.holds.refused}


def without_refused(holds: Holds, refused: Mapping[str, str]) -> Tuple[Holds, List[Event]]:
    """The holds with these options noted as refused, and an event for each new one: the campaign
    continues without those that are being set, not given back. Their records stay until the next
    reconcile. `refused`: option -> why the mons did not accept it."""
    names = [name for name, held in sorted(holds.mon.items()) if name in refused
             and not held.returning and name not in holds.refused]
    return replace(holds.give_up(*names), refused=holds.refused | set(names)), [
        Event('settings', 'the campaign continues without %s' % option_text(name),
              'the mons did not accept it: %s' % refused[name]) for name in names]


def reconcile_mon_options(holds: Holds, stored: Optional[Mapping[str, str]],
                          wanted: Mapping[str, str]
                          ) -> Tuple[Holds, List[Action], List[str]]:
    """One step towards the wanted values; other borrowed options are given back.

    `stored`: options of the configuration database, by their keys in Holds; None: not read this
    time, so nothing changes. Returns the holds, the actions, and texts on options that others have
    changed.
    """
    if stored is None:
        return holds, [], []
    borrowed = holds.mon
    held_after: Dict[str, Held] = {}
    actions: List[Action] = []
    changed_by_others: List[str] = []
    for name, before in borrowed.items():
        now = stored.get(name)
        if name not in wanted:
            step = give_back(before, now)
            if step.send:
                actions.append(set_option(name, before.found))
        else:
            step = hold_other(before, now, wanted[name])
        if step.theirs:
            changed_by_others.append(name)
        if step.held is not None:
            held_after[name] = step.held
    for name, value in wanted.items():
        if name not in borrowed and name not in holds.given_up:
            value_before = stored.get(name)
            held_after[name] = Held(value_before, value, seen=same_value(value_before, value))
    actions += [set_option(name, value) for name, value in wanted.items()
                if name in held_after and not held_after[name].seen]
    notices = ['%s was changed outside perfguard: perfguard leaves it alone from now on'
               % option_text(name)
               for name in changed_by_others]
    other_settings = {key: setting for key, setting in holds.held.items() if key not in borrowed}
    holds = replace(holds.give_up(*changed_by_others), held={**other_settings, **held_after})
    notices += _scrub_notices(
        borrowed.get(OSD_OPTION + MAX_SCRUBS), held_after.get(OSD_OPTION + MAX_SCRUBS))
    return holds, actions, notices


def _scrub_notices(before: Optional[Held], now: Optional[Held]) -> List[str]:
    """A text when OSDs stop to begin scrubs, and one when they begin them again; else []. Operators
    must know for how long no scrubs began. `before`, `now`: the records of osd_max_scrubs before
    and after a step; None: not borrowed."""
    if now is not None and not now.returning and (before is None or before.returning):
        return ['OSDs start no scrubs while PGs are released (hold_scrubs)']
    if now is not None and now.returning and before is not None and not before.returning:
        return ['OSDs start scrubs again (hold_scrubs)']
    return []


def mon_options_settled(holds: Holds, stored: Optional[Mapping[str, str]],
                        wanted: Mapping[str, str]) -> bool:
    """Whether every wanted option has its value, or was changed by others, and no other one is
    borrowed. `stored`: as in reconcile_mon_options; if it was not read, a wanted option that is
    neither borrowed nor given up counts as not settled."""
    for name, value in wanted.items():
        held = holds.held.get(name)
        if held is None:
            if name not in holds.given_up and (
                    stored is None or not same_value(stored.get(name), value)):
                return False
        elif held.returning or not held.seen or held.put != value:
            return False
    return wanted.keys() >= holds.mon.keys()


def set_option(name: str, value: Optional[str]) -> SetOption:
    """`name`: its key in Holds; value None: no entry."""
    if name.startswith(OSD_OPTION):
        return SetOption(OSD, name[len(OSD_OPTION):], value)
    return SetOption(MON, name, value)


def option_name(who: str, name: str) -> str:
    """The key in Holds of an option of a section."""
    return OSD_OPTION + name if who == OSD else name


def option_text(name: str) -> str:
    if name.startswith(OSD_OPTION):
        return '%s of the OSDs' % name[len(OSD_OPTION):]
    return '%s of the mons' % name


def needs_stored_options(campaign: Campaign, pinned: bool, osdmap: OsdMap, options: Options,
                         has_requests: bool) -> bool:
    """Whether the configuration database must be read in this turn, as settings are about to be
    borrowed or given back. `pinned`: pins of the campaign are left; `has_requests`: operators have
    requests, which do not matter in PREPARED."""
    if campaign.active and not campaign.holds.prepared:
        return True
    mon = wanted_mon_options(campaign, options, osdmap)
    if campaign.phase is Phase.PREPARED:
        return not mon_options_settled(campaign.holds, stored=None, wanted=mon)
    if campaign.active and (campaign.copying.due and campaign.phase in RELEASING_PHASES
                            or not mon_options_settled(campaign.holds, stored=None, wanted=mon)):
        return True
    return has_requests or gives_back(campaign, pinned) and bool(
        BALANCER in campaign.holds.held or campaign.holds.mon)


def gives_back(campaign: Campaign, pinned: bool) -> bool:
    """Whether the campaign gives back its borrowed settings from now on: it is aborting, finishing
    with nothing in flight, or aborted without pins. `pinned`: pins of it are left."""
    return campaign.phase is Phase.ABORTING or (
        campaign.phase is Phase.FINISHING and not campaign.flights.in_flight) or (
        campaign.held and not pinned)
