# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags, balancer and autoscaler: hold them during a campaign, give them back after it.

The rule is: what somebody else set is never touched, and what somebody else changed after us is
theirs from then on. Each hold goes through three states: absent -> wanted (journalled before the
command is sent) -> seen (read back). Doing a step twice does no harm.
"""
from dataclasses import dataclass, replace
from typing import AbstractSet, Dict, List, Mapping, Optional, Tuple

from ..cluster.types import OsdMap
from ..observation import BALANCER, Settings
from . import mon_options
from .types import Action, Held, Holds, SetAutoscale, SetBalancer, SetFlag

NOREBALANCE = 'norebalance'
#: Flags of others under which nothing that was released could move.
MOVEMENT_FLAGS = ('norebalance', 'nobackfill', 'norecover')
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Reconciled:
    holds: Holds
    actions: Tuple[Action, ...] = ()
    #: What somebody else changed under us, in words.
    notices: Tuple[str, ...] = ()


def reconcile(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
              begin: bool, mon: Mapping[str, str] = NOTHING,
              pools: Optional[AbstractSet[int]] = None) -> Reconciled:
    """One step towards what the campaign wants.

    `norebalance`: movement shall be stopped. `quiet`: balancer and autoscaler shall be off;
    `begin`: they may be taken now, later their being on is somebody's wish. `mon`: options that
    the mons shall have. `pools`: with `quiet`, the autoscaler is off for these alone; None: all.
    With `norebalance` and `quiet` False and no `mon` everything is given back; the result's `holds`
    is false when that is complete.
    """
    flags = _flag(holds, settings.osdmap, norebalance)
    options = _balancer(flags.holds, settings, quiet, begin)
    autoscale = _autoscale(options.holds, settings.osdmap, _quiet_pools(settings, quiet, pools),
                           begin)
    held, actions, notices = mon_options.reconcile(autoscale.holds, settings.mon, mon)
    return Reconciled(held,
                      flags.actions + options.actions + autoscale.actions + tuple(actions),
                      flags.notices + options.notices + autoscale.notices + tuple(notices))


def retaken(holds: Holds, name: str) -> Holds:
    """The operator asks for what others had taken back."""
    return replace(holds, given_up=tuple(each for each in holds.given_up if each != name))


def _flag(holds: Holds, osdmap: OsdMap, wanted: bool) -> Reconciled:
    flags = dict(holds.flags)
    is_set = NOREBALANCE in osdmap.flags
    if not wanted:
        holds = retaken(holds, NOREBALANCE)
        if NOREBALANCE not in flags:
            return Reconciled(holds)
        if is_set or not flags[NOREBALANCE]:
            # Not seen yet, it may still be on its way into the map: taken back in any case.
            flags[NOREBALANCE] = True
            return Reconciled(replace(holds, flags=flags, returning=(NOREBALANCE,)),
                              (SetFlag(NOREBALANCE, False),))
        del flags[NOREBALANCE]
        return Reconciled(replace(holds, flags=flags, returning=()))
    if NOREBALANCE in holds.given_up:
        return Reconciled(holds)
    if NOREBALANCE not in flags:
        if is_set:
            return Reconciled(holds)  # somebody else's: it serves us as it is, and stays theirs
        return Reconciled(replace(holds, flags={**flags, NOREBALANCE: False}),
                          (SetFlag(NOREBALANCE, True),))
    if NOREBALANCE in holds.returning:
        return _taken_again(holds, is_set)
    if is_set:
        return Reconciled(replace(holds, flags={**flags, NOREBALANCE: True}))
    if flags[NOREBALANCE]:
        del flags[NOREBALANCE]
        return Reconciled(
            replace(holds, flags=flags, given_up=holds.given_up + (NOREBALANCE,)), (),
            ('norebalance was cleared outside perfguard: perfguard does not set it again',))
    return Reconciled(holds, (SetFlag(NOREBALANCE, True),))


def _taken_again(holds: Holds, is_set: bool) -> Reconciled:
    """Wanted again before the map showed that it was given back.

    The map may show it from before, then our own clearing: neither says what others did.
    """
    if not is_set:
        holds = replace(holds, returning=())
    elif not holds.flags[NOREBALANCE]:
        return Reconciled(holds)  # sent already
    return Reconciled(replace(holds, flags={**holds.flags, NOREBALANCE: False}),
                      (SetFlag(NOREBALANCE, True),))


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
            options[BALANCER] = Held(settings.balancer_stored, 'false')
            return Reconciled(replace(holds, options=options), (SetBalancer(False, 'false'),))
        if active == held.put:
            options[BALANCER] = replace(held, seen=True)
            return Reconciled(replace(holds, options=options))
        if held.seen:
            return _theirs(holds)
        return Reconciled(holds, (SetBalancer(False, held.put),))
    if held is None or settings.stored is None:
        return Reconciled(holds)
    if held.found != held.put and (settings.balancer_stored == held.put or not held.seen):
        options[BALANCER] = replace(held, seen=True)
        return Reconciled(replace(holds, options=options), (SetBalancer(True, held.found),))
    del options[BALANCER]  # given back, or changed by somebody else meanwhile
    return Reconciled(replace(holds, options=options))


def _theirs(holds: Holds) -> Reconciled:
    """Somebody switched the balancer on in the middle of the campaign."""
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
        elif pool.autoscale_mode == held[pool.id].put:
            held[pool.id] = replace(held[pool.id], seen=True)
        elif held[pool.id].seen:
            del held[pool.id]
            given_up.append(mark)
            notices.append(f'the autoscaler of pool {pool.name} was switched to '
                           f'{pool.autoscale_mode} outside perfguard')
        else:
            actions.append(SetAutoscale(pool.name, held[pool.id].put))
    for pool_id, hold in list(held.items()):
        if pool_id in wanted:
            continue
        current = osdmap.pools.get(pool_id)
        if current is not None and (current.autoscale_mode == hold.put or not hold.seen):
            held[pool_id] = replace(hold, seen=True)
            actions.append(SetAutoscale(current.name, hold.found or 'on'))
        else:
            del held[pool_id]
    # A pool that is gone needs nothing back.
    held = {pool_id: hold for pool_id, hold in held.items() if pool_id in osdmap.pools}
    return Reconciled(replace(holds, autoscale=held, given_up=tuple(given_up)),
                      tuple(actions), tuple(notices))


def settled(holds: Holds, settings: Settings, norebalance: bool, quiet: bool,
            mon: Mapping[str, str] = NOTHING,
            pools: Optional[AbstractSet[int]] = None) -> bool:
    """Every setting is seen as the campaign wants it, or is somebody else's."""
    if not mon_options.settled(holds, settings.mon, mon):
        return False
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
    """Flags of somebody else that keep released PGs from moving."""
    return tuple(flag for flag in MOVEMENT_FLAGS if flag in flags and flag not in holds.flags)
