# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state machine of a campaign: all phases, what each borrows, and all ways out of it.

`Draft.enter` takes no other way than these, and requests.py accepts a verb only where it is listed,
except those that are accepted in every phase, and `rollback`, which campaign_orders.py checks. Pins
of a campaign that is unknown begin one that is ABORTED (Campaigns). The steps of the phases are in
phases.py.
"""
from typing import FrozenSet, Mapping, NamedTuple

from .types import Phase

#: What keeps every PG in place: no backfill, and no upmap or pg_num that changes meanwhile.
STILL = 'norebalance; balancer and autoscaler off'
ENDING = 'balancer and autoscaler off'
#: Added while OSDMaps change: see wanted_mon_options (rebalance/holds.py).
CHANGING = STILL + '; paxos_propose_interval of the mons while pins are sent'
MOVING = ENDING + '; options of the mons, and those of the OSDs for copying and scrubs'
_IN_VAIN = 'the change that PGs move for can no longer be made'


class State(NamedTuple):
    borrows: str
    #: Where a step of the campaign leads, and when.
    exits: Mapping[Phase, str] = {}
    #: Where a verb of operators leads.
    verbs: Mapping[str, Phase] = {}
    #: Whether the campaign sets norebalance, or has set it.
    keeps_still: bool = False


STATES: Mapping[Phase, State] = {
    Phase.IDLE: State('nothing', {}, {'prepare': Phase.PREPARED}),
    Phase.PREPARED: State(
        CHANGING, {Phase.PINNING: 'CRUSH was changed, or the campaign makes the change'},
        {'pin': Phase.PINNING, 'finish': Phase.FINISHING, 'abort': Phase.ABORTING,
         'rollback': Phase.ABORTING}, keeps_still=True),
    Phase.PINNING: State(
        CHANGING, {Phase.PINNED: 'the change is in force, and every remapped PG is pinned',
                   Phase.ABORTING: 'the change cannot be made'},
        {'abort': Phase.ABORTING, 'rollback': Phase.ABORTING}, keeps_still=True),
    Phase.PINNED: State(
        STILL, {Phase.RELEASING: 'the campaign proceeds automatically', Phase.ABORTING: _IN_VAIN},
        {'pin': Phase.PINNING, 'start': Phase.RELEASING, 'resume': Phase.PINNED,
         'finish': Phase.FINISHING, 'abort': Phase.ABORTING,
         'rollback': Phase.ABORTING}, keeps_still=True),
    Phase.RELEASING: State(
        MOVING + '; norebalance while PGs that have no pin must not move',
        {Phase.HOLDING: 'a stop condition holds, or the time window is closed',
         Phase.PINNED: 'too many PGs cannot be pinned',
         Phase.PINNING: 'all PGs have moved, and the campaign makes its next change',
         Phase.FINISHING: 'all PGs have moved', Phase.ABORTING: _IN_VAIN},
        {'pause': Phase.RELEASING, 'resume': Phase.RELEASING, 'finish': Phase.FINISHING,
         'abort': Phase.ABORTING, 'rollback': Phase.ABORTING}),
    Phase.HOLDING: State(
        MOVING + '; norebalance if it is paused, latency has halted it, or PGs that have no pin '
        'must not move',
        {Phase.RELEASING: 'the stop condition has cleared for one report',
         Phase.PINNED: 'too many PGs cannot be pinned', Phase.ABORTING: _IN_VAIN},
        {'pause': Phase.HOLDING, 'resume': Phase.HOLDING, 'finish': Phase.FINISHING,
         'abort': Phase.ABORTING, 'rollback': Phase.ABORTING}),
    Phase.FINISHING: State(
        ENDING + '; while PGs are in flight, options of the OSDs for copying, and norebalance if '
        'latency has halted them',
        {Phase.DONE: 'nothing is in flight, and all settings are given back'},
        {'abort': Phase.ABORTING}),
    Phase.DONE: State('nothing', {}, {'prepare': Phase.PREPARED}),
    Phase.ABORTING: State(
        STILL, {Phase.ABORTED: 'what was in flight is pinned back',
                Phase.PINNING: 'what was in flight is pinned back, and a rollback was ordered'},
        {'abort': Phase.ABORTING, 'rollback': Phase.ABORTING}, keeps_still=True),
    Phase.ABORTED: State(
        'nothing; while PGs are pinned, ' + ENDING,
        {Phase.ABORTING: 'a release takes effect late, or auto_expand finds remapped PGs'},
        {'prepare': Phase.PREPARED, 'resume': Phase.PINNING, 'finish': Phase.FINISHING,
         'rollback': Phase.ABORTING}),
}

STILL_PHASES = frozenset(phase for phase, state in STATES.items() if state.keeps_still)


def from_phases(verb: str) -> FrozenSet[Phase]:
    """Phases in which a verb changes something."""
    return frozenset(phase for phase, state in STATES.items() if verb in state.verbs)
