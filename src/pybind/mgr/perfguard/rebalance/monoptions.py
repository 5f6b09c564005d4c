# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options of the mons that a campaign changes for a while, in the configuration database.

Like flags and balancer (holds.py): journalled before they are sent, read back, given back with the
value that was found, and left to whoever changes them meanwhile.
"""
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Tuple

from ..cluster.values import same_value
from ..options import Options
from .change import Stage
from .types import Action, Campaign, Held, Holds, Phase, SetOption

#: The section of the configuration database.
MON = 'mon'
#: Seconds from a commit of the mons to their next proposal (Ceph's default: 1).
PROPOSE_INTERVAL = 'paxos_propose_interval'
#: With so many, a burst of hundreds of commands ends up in one epoch, if it is sent right after a
#: commit: longer than that after one, the mons propose within paxos_min_wait (50 ms). The journal's
#: writes, which come just before the burst, are such commits.
GATHER_SECONDS = '3'
#: While PGs are released, which wait for several proposals each while they peer: up to so many PGs
#: in the cluster -> seconds. An OSDMap takes the mon some 12 us of CPU for each PG (Tentacle: 20),
#: most of it for mapping all PGs anew (qa/bench/bench_map_epochs.py).
FAST_PROPOSALS = ((10000, '0.1'), (25000, '0.25'))


def wanted(campaign: Campaign, options: Options, pgs: int) -> Mapping[str, str]:
    """Option -> value that the mons of a cluster of so many PGs shall have, as things are."""
    change = campaign.change
    if campaign.phase is Phase.PINNING and change is not None and (
            change.stage is Stage.WANTED or change.stage is Stage.SENT and change.more):
        return {PROPOSE_INTERVAL: GATHER_SECONDS}
    releasing = campaign.phase is Phase.RELEASING or (
        campaign.phase is Phase.HOLDING and campaign.in_flight)
    if options.fast_peering == 'off' or not releasing:
        return {}
    fitting = [seconds for most, seconds in FAST_PROPOSALS if pgs <= most]
    if not fitting and options.fast_peering == 'on':
        fitting = [FAST_PROPOSALS[-1][1]]
    return {PROPOSE_INTERVAL: fitting[0]} if fitting else {}


def reconcile(holds: Holds, stored: Optional[Mapping[str, str]], wanted: Mapping[str, str]
              ) -> Tuple[Holds, List[Action], List[str]]:
    """One step towards the wanted values; what is held and not wanted is given back.

    `stored`: the database's section mon by option; None: not read this time, then nothing changes.
    Returns the holds, what is to be sent, and what somebody else changed, in words.
    """
    if stored is None:
        return holds, [], []
    held: Dict[str, Held] = {}
    actions: List[Action] = []
    theirs: List[str] = []
    for name, before in holds.mon.items():
        now = stored.get(name)
        if name not in wanted:
            # One not seen yet may still be on its way into the database: given back in any case.
            if not same_value(before.found, before.put) \
                    and (same_value(now, before.put) or not before.seen):
                held[name] = replace(before, seen=True, returning=True)
                actions.append(SetOption(MON, name, before.found))
        elif before.seen and not before.returning and not same_value(now, before.put):
            theirs.append(name)
        else:
            held[name] = Held(before.found, wanted[name], seen=same_value(now, wanted[name]))
    for name, value in wanted.items():
        if name not in holds.mon and mark(name) not in holds.given_up:
            found = stored.get(name)
            held[name] = Held(found, value, seen=same_value(found, value))
    actions += [SetOption(MON, name, value) for name, value in wanted.items()
                if name in held and not held[name].seen]
    notices = ['%s of the mons was changed by somebody else: it is theirs from now on' % name
               for name in theirs]
    given_up = holds.given_up + tuple(mark(name) for name in theirs)
    return replace(holds, mon=held, given_up=given_up), actions, notices


def settled(holds: Holds, stored: Optional[Mapping[str, str]],
            wanted: Mapping[str, str]) -> bool:
    """Every option is seen as wanted, or is somebody else's, and nothing else is held."""
    for name, value in wanted.items():
        held = holds.mon.get(name)
        if held is None:
            if mark(name) not in holds.given_up and (
                    stored is None or not same_value(stored.get(name), value)):
                return False
        elif held.returning or not held.seen or held.put != value:
            return False
    return wanted.keys() >= holds.mon.keys()


def mark(name: str) -> str:
    """What stands in Holds.given_up for an option that somebody else has changed."""
    return 'mon option ' + name
