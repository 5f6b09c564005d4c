# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags, balancer, autoscaler and options of the mons: borrowed for a campaign, given back after
it.

Settings of others are never changed. The rest follows the rule of perfguard/holds.py.
"""
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, Iterable, List, Mapping, Optional, Tuple

from ..cluster.types import OsdMap, PgCounts
from ..holds import Held, give_back, hold, hold_other, same_value
from ..observation import BALANCER, MON, OSD, OSD_OPTION, Settings
from ..options import Options
from .copying import OFF
from .fast_peering import GATHER_SECONDS, PROPOSE_INTERVAL, fast_proposals
from .types import (RELEASING_PHASES, Action, Campaign, ChangeStage, Holds, Phase, SetAutoscale,
                    SetBalancer, SetFlag, SetOption)

NOREBALANCE = 'norebalance'
#: The balancer's default. If there was no entry, this value is given back: an mgr does not notice
#: that an option was removed, so a standby would keep the balancer off.
ACTIVE = 'true'
#: Flags that prevent all movement of released PGs.
MOVEMENT_FLAGS = ('norebalance', 'nobackfill', 'norecover')
NOTHING: Mapping[str, str] = {}
#: A PG without objects is never degraded, so norebalance defers its backfill
#: (PrimaryLogPG::start_recovery_ops). If it is undersized, its backfill has the priority of those
#: of degraded PGs (PeeringState::get_backfill_priority), which wait until it gives its reservations
#: back: as long as norebalance is set. After this time norebalance is cleared for some seconds:
#: backfill without objects takes one. If that was not the cause, it is repeated later.
BLOCKED_SECONDS = 15.0
GIVE_WAY_SECONDS = 45.0
GIVE_WAY_AGAIN_SECONDS = 600.0


@dataclass(frozen=True)
class Reconciled:
    holds: Holds
    actions: Tuple[Action, ...] = ()
    #: Texts on changes by others.
    notices: Tuple[str, ...] = ()


def reconcile(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
              begin: bool, mon: Mapping[str, str] = NOTHING,
              pools: Optional[AbstractSet[int]] = None) -> Reconciled:
    """One step towards the settings that the campaign needs.

    `norebalance`: the flag must be set. `quiet`: balancer and autoscaler must be off; `begin`: they
    may be switched off now; later, others may have switched them on. `mon`: options that the mons
    must have. `pools`: with `quiet`, the autoscaler is off for these alone; None: all. With
    `norebalance` and `quiet` False and no `mon` everything is given back; the result's `holds` is
    false when that is complete.
    """
    flags = _flag(holds, settings, norebalance)
    options = _balancer(flags.holds, settings, quiet, begin)
    autoscale = _autoscale(options.holds, settings.osdmap, _quiet_pools(settings, quiet, pools),
                           begin)
    held, actions, notices = reconcile_mon_options(autoscale.holds, settings.mon, mon)
    return Reconciled(held,
                      flags.actions + options.actions + autoscale.actions + tuple(actions),
                      flags.notices + options.notices + autoscale.notices + tuple(notices))


def blocked_since(before: float, counts: PgCounts, now: float) -> float:
    """Since when PGs without objects may have kept degraded ones from backfill; 0: they do not.

    Once norebalance gives way, it does so until all of these have backfilled.
    """
    waiting = counts.degraded_waiting > 0 or gives_way(before, now)
    if not counts.undersized_empty or not waiting:
        return 0.0
    return before if 0.0 < before <= now else now


def gives_way(blocked: float, now: float) -> bool:
    """Whether norebalance gives way to recovery now; `blocked`: as of blocked_since."""
    passed = (now - blocked) % GIVE_WAY_AGAIN_SECONDS
    return bool(blocked) and 0.0 <= passed - BLOCKED_SECONDS < GIVE_WAY_SECONDS


def retaken(holds: Holds, name: str) -> Holds:
    """The operator requests settings that others had changed."""
    return replace(holds, given_up=tuple(each for each in holds.given_up if each != name))


def _flag(holds: Holds, settings: Settings, wanted: bool) -> Reconciled:
    value = NOREBALANCE if NOREBALANCE in settings.osdmap.flags else None
    if value and NOREBALANCE in settings.ordered_flags and NOREBALANCE in holds.flags:
        # "ceph osd set" changes nothing then, but it is an order: an emergency stop.
        return Reconciled(_with_flag(holds, None), (), (
            'norebalance was set outside perfguard, too: perfguard leaves it set',))
    if not wanted:
        holds = retaken(holds, NOREBALANCE)
    if NOREBALANCE not in holds.flags:
        if not wanted or value or NOREBALANCE in holds.given_up:
            return Reconciled(holds)  # set by others: it is left alone
        return Reconciled(replace(holds, flags={**holds.flags, NOREBALANCE: False}),
                          (SetFlag(NOREBALANCE, True),))
    held = Held(None, NOREBALANCE, holds.flags[NOREBALANCE], NOREBALANCE in holds.returning)
    if wanted and held.returning:
        # An OSDMap may be older than our last commands. If the flag was set again before one has
        # shown that it was cleared, the OSDMaps of both commands would come later and look like
        # changes by others: the flag would be given up, and stay set.
        step = give_back(held, value)
        holds = _with_flag(holds, step.held)
        return _flag(holds, settings, wanted) if step.held is None \
            else Reconciled(holds, (SetFlag(NOREBALANCE, False),))
    step = hold(held, value) if wanted else give_back(held, value)
    holds = _with_flag(holds, step.held)
    if wanted and step.theirs:
        return Reconciled(replace(holds, given_up=holds.given_up + (NOREBALANCE,)), (), (
            'norebalance was cleared outside perfguard: perfguard does not set it again',))
    return Reconciled(holds, (SetFlag(NOREBALANCE, wanted),) if step.send else ())


def _with_flag(holds: Holds, held: Optional[Held]) -> Holds:
    flags = {flag: seen for flag, seen in holds.flags.items() if flag != NOREBALANCE}
    if held is None:
        return replace(holds, flags=flags, returning=())
    return replace(holds, flags={**flags, NOREBALANCE: held.seen},
                   returning=(NOREBALANCE,) if held.returning else ())


def _balancer(holds: Holds, settings: Settings, wanted: bool, begin: bool) -> Reconciled:
    options = dict(holds.options)
    held = options.get(BALANCER)
    active = settings.balancer_active
    if wanted:
        if BALANCER in holds.given_up:
            return Reconciled(holds)
        if held is None:
            if active == 'false':
                return Reconciled(holds)
            if not begin:
                return _theirs(holds)
            if settings.stored is None:
                return Reconciled(holds)
            options[BALANCER] = Held(_stored_active(settings), 'false')
            return Reconciled(replace(holds, options=options), (SetBalancer(False),))
        step = hold(held, _balancer_value(held, settings))
        if step.held is None:
            return _theirs(holds)
        options[BALANCER] = step.held
        return Reconciled(replace(holds, options=options),
                          (SetBalancer(False),) if step.send else ())
    if held is None or settings.stored is None:
        return Reconciled(holds)
    step = give_back(held, _stored_active(settings))
    del options[BALANCER]
    if step.held is not None:
        options[BALANCER] = step.held
    return Reconciled(replace(holds, options=options),
                      (SetBalancer(True),) if step.send else ())


def _stored_active(settings: Settings) -> str:
    """Without an entry, for example because others removed it: the value that the mgr still
    uses."""
    return settings.balancer_stored or settings.balancer_active or ACTIVE


def _balancer_value(held: Held, settings: Settings) -> Optional[str]:
    """The balancer uses the value in force; the entry in the database shows who set it."""
    if settings.balancer_active == held.put:
        return held.put
    if held.seen and not held.returning:
        return settings.balancer_active
    stored = _stored_active(settings)
    return held.found if settings.stored is None or stored == held.put else stored


def _theirs(holds: Holds) -> Reconciled:
    """Others have switched on the balancer during the campaign."""
    options = {name: held for name, held in holds.options.items() if name != BALANCER}
    return Reconciled(
        replace(holds, options=options, given_up=holds.given_up + (BALANCER,)), (),
        ('the balancer was switched on outside perfguard: perfguard leaves it alone from now on',))


def _quiet_pools(settings: Settings, quiet: bool,
                 pools: Optional[AbstractSet[int]]) -> AbstractSet[int]:
    if not quiet:
        return frozenset()
    return settings.osdmap.pools.keys() if pools is None else pools


def _autoscale(holds: Holds, osdmap: OsdMap, wanted: AbstractSet[int], begin: bool) -> Reconciled:
    held: Dict[int, Held] = dict(holds.autoscale)
    actions: List[Action] = []
    notices: List[str] = []
    given_up: List[str] = list(holds.given_up)
    for pool in osdmap.pools.values():
        if pool.id not in wanted:
            continue
        mark = f'pg_autoscale_mode of pool {pool.id}'
        if pool.id not in held:
            if begin and pool.autoscale_mode == 'on' and mark not in given_up:
                held[pool.id] = Held('on', 'off')
                actions.append(SetAutoscale(pool.name, 'off'))
            continue
        step = hold(held.pop(pool.id), pool.autoscale_mode)
        if step.held is None:
            given_up.append(mark)
            notices.append(f'the autoscaler of pool {pool.name} was switched to '
                           f'{pool.autoscale_mode} outside perfguard')
            continue
        held[pool.id] = step.held
        if step.send:
            actions.append(SetAutoscale(pool.name, step.held.put))
    # Nothing is given back to a removed pool.
    held = {pool_id: each for pool_id, each in held.items() if pool_id in osdmap.pools}
    for pool_id in sorted(held.keys() - wanted):
        pool = osdmap.pools[pool_id]
        step = give_back(held.pop(pool_id), pool.autoscale_mode)
        if step.held is not None:
            held[pool_id] = step.held
            actions.append(SetAutoscale(pool.name, step.held.found or 'on'))
    return Reconciled(replace(holds, autoscale=held, given_up=tuple(given_up)),
                      tuple(actions), tuple(notices))


def waiting_text(settings: Settings, until: str) -> str:
    """Why a campaign waits for its borrowed settings."""
    if settings.balancer_busy:
        return 'waiting until the balancer has carried out its last plan; if its module has ' \
            'failed ("ceph health detail"), run "ceph mgr fail"'
    return 'waiting until ' + until


def settled(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
            mon: Mapping[str, str] = NOTHING,
            pools: Optional[AbstractSet[int]] = None) -> bool:
    """Whether the cluster shows every setting as required, or as changed by others."""
    return mon_options_settled(holds, settings.mon, mon) \
        and flags_settled(holds, settings, norebalance, quiet, pools)


def flags_settled(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
                  pools: Optional[AbstractSet[int]] = None) -> bool:
    """As `settled`, without options of the mons and the OSDs."""
    if norebalance and NOREBALANCE not in settings.osdmap.flags \
            and NOREBALANCE not in holds.given_up:
        return False
    if not norebalance and NOREBALANCE in holds.flags:
        return False
    if quiet:
        on = settings.balancer_active != 'false' or settings.balancer_busy
        if on and BALANCER not in holds.given_up:
            return False
        return (all(held.seen for held in holds.options.values())
                and all(held.seen for held in holds.autoscale.values())
                and (pools is None or holds.autoscale.keys() <= pools))
    return not holds.options and not holds.autoscale


def foreign_movement_flags(holds: Holds, flags: AbstractSet[str]) -> Tuple[str, ...]:
    """Flags of others that prevent released PGs from moving."""
    return tuple(flag for flag in MOVEMENT_FLAGS if flag in flags and flag not in holds.flags)


#: Scrubs that an OSD takes part in at the same time; with 0 it starts none.
MAX_SCRUBS = 'osd_max_scrubs'


def wanted_mon_options(campaign: Campaign, options: Options, osdmap: OsdMap) -> Mapping[str, str]:
    """Option -> value that the mons and the OSDs ("osd/<name>") must have now."""
    change = campaign.change
    if campaign.phase is Phase.PINNING and change is not None and change.gathers \
            and change.stage is ChangeStage.WANTED:
        return {PROPOSE_INTERVAL: GATHER_SECONDS}
    releasing = campaign.phase is Phase.RELEASING or bool(
        campaign.phase is Phase.HOLDING and campaign.in_flight)
    found = fast_proposals(campaign, releasing, options, osdmap)
    if releasing and not campaign.paused and options.pace_copying != OFF:
        found.update({OSD_OPTION + name: value
                      for name, value in campaign.copying.wanted.items()})
    # Not while the campaign is HOLDING or stuck: a single PG in flight would disable scrubs for
    # days.
    if campaign.phase is Phase.RELEASING and not campaign.paused and options.hold_scrubs \
            and campaign.idle_seconds(campaign.turned) < options.stalled_after:
        found[OSD_OPTION + MAX_SCRUBS] = '0'
    return {name: value for name, value in found.items()
            if _refused_mark(name) not in campaign.holds.given_up}


def without_refused(holds: Holds, names: Iterable[str]) -> Holds:
    """The mons did not accept these options. The campaign continues without them."""
    marks = [mark for name in sorted(names)
             for mark in (mon_option_mark(name), _refused_mark(name))]
    return replace(holds, given_up=holds.given_up + tuple(marks))


def can_be_missed(holds: Holds, name: str) -> bool:
    """Whether the campaign can continue without an option: it is being set, not given back."""
    held = holds.mon.get(name)
    return held is not None and not held.returning and _refused_mark(name) not in holds.given_up


def refused_options(holds: Holds) -> List[str]:
    """Texts on the options that the campaign continues without."""
    return [option_text(mark[len(_REFUSED):]) for mark in holds.given_up
            if mark.startswith(_REFUSED)]


def reconcile_mon_options(holds: Holds, stored: Optional[Mapping[str, str]],
                          wanted: Mapping[str, str]
                          ) -> Tuple[Holds, List[Action], List[str]]:
    """One step towards the wanted values; other borrowed options are given back.

    `stored`: options of the database, as Settings.mon; None: not read this time, so nothing
    changes. Returns the holds, the actions, and texts on options that others have changed.
    """
    if stored is None:
        return holds, [], []
    held: Dict[str, Held] = {}
    actions: List[Action] = []
    theirs: List[str] = []
    for name, before in holds.mon.items():
        now = stored.get(name)
        if name not in wanted:
            step = give_back(before, now)
            if step.send:
                actions.append(set_option(name, before.found))
        else:
            step = hold_other(before, now, wanted[name])
        if step.theirs:
            theirs.append(name)
        if step.held is not None:
            held[name] = step.held
    for name, value in wanted.items():
        if name not in holds.mon and mon_option_mark(name) not in holds.given_up:
            found = stored.get(name)
            held[name] = Held(found, value, seen=same_value(found, value))
    actions += [set_option(name, value) for name, value in wanted.items()
                if name in held and not held[name].seen]
    notices = ['%s was changed outside perfguard: perfguard leaves it alone from now on'
               % option_text(name)
               for name in theirs]
    given_up = holds.given_up + tuple(mon_option_mark(name) for name in theirs)
    return replace(holds, mon=held, given_up=given_up), actions, notices + _of_scrubs(
        holds.mon.get(OSD_OPTION + MAX_SCRUBS), held.get(OSD_OPTION + MAX_SCRUBS))


def _of_scrubs(before: Optional[Held], now: Optional[Held]) -> List[str]:
    """Operators must know for how long no scrubs began, and since when OSDs catch up."""
    if now is not None and not now.returning and (before is None or before.returning):
        return ['OSDs start no scrubs while PGs are released (hold_scrubs)']
    if now is not None and now.returning and before is not None and not before.returning:
        return ['OSDs start scrubs again (hold_scrubs)']
    return []


def mon_options_settled(holds: Holds, stored: Optional[Mapping[str, str]],
                        wanted: Mapping[str, str]) -> bool:
    """Whether every option is seen as wanted, or was changed by others, and no other one is
    borrowed."""
    for name, value in wanted.items():
        held = holds.mon.get(name)
        if held is None:
            if mon_option_mark(name) not in holds.given_up and (
                    stored is None or not same_value(stored.get(name), value)):
                return False
        elif held.returning or not held.seen or held.put != value:
            return False
    return wanted.keys() >= holds.mon.keys()


def set_option(name: str, value: Optional[str]) -> SetOption:
    """`name` as in Holds.mon; value None: no entry."""
    if name.startswith(OSD_OPTION):
        return SetOption(OSD, name[len(OSD_OPTION):], value)
    return SetOption(MON, name, value)


def option_name(who: str, name: str) -> str:
    """As Holds.mon has an option of a section."""
    return OSD_OPTION + name if who == OSD else name


def option_text(name: str) -> str:
    if name.startswith(OSD_OPTION):
        return '%s of the OSDs' % name[len(OSD_OPTION):]
    return '%s of the mons' % name


def mon_option_mark(name: str) -> str:
    """The entry in Holds.given_up for an option that others have changed."""
    return 'mon option ' + name


#: What entries in Holds.given_up begin with for options that the mons did not accept.
_REFUSED = 'refused '


def _refused_mark(name: str) -> str:
    return _REFUSED + name


def needs_stored_options(campaign: Campaign, pinned: bool, osdmap: OsdMap, options: Options,
                         asked: bool) -> bool:
    """Whether settings are about to be borrowed or given back. `pinned`: pins of the campaign are
    left; `asked`: operators have requests."""
    if campaign.active and not campaign.prepared:
        return True
    mon = wanted_mon_options(campaign, options, osdmap)
    if campaign.phase is Phase.PREPARED:
        return not mon_options_settled(campaign.holds, None, mon)
    if campaign.active and (campaign.copying.due and campaign.phase in RELEASING_PHASES
                            or not mon_options_settled(campaign.holds, None, mon)):
        return True
    giving_back = campaign.phase is Phase.ABORTING or (
        campaign.phase is Phase.FINISHING and not campaign.in_flight) or (
        campaign.held and not pinned)
    return asked or giving_back and bool(campaign.holds.options or campaign.holds.mon)
