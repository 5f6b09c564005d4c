# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options of the mons that a campaign changes for a while, in the configuration database.

Like flags and balancer (holds.py): journalled before they are sent, read back, given back with the
value that was found, and left to whoever changes them meanwhile.
"""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..cluster.types import OsdMap
from ..cluster.values import same_value
from ..observation import MON
from ..options import Options
from ..words import pgs, plural
from .types import Action, Campaign, Held, Holds, Phase, SetOption, Stage

#: Seconds from a commit of the mons to their next proposal (Ceph's default: 1).
PROPOSE_INTERVAL = 'paxos_propose_interval'
#: With so many, a burst of hundreds of commands ends up in one epoch, if it is sent right after a
#: commit: longer than that after one, the mons propose within paxos_min_wait (50 ms). The journal's
#: writes, which come just before the burst, are such commits.
GATHER_SECONDS = '3'
#: While PGs are released, which wait for several proposals each while they peer: (PGs of the
#: cluster, bytes that its OSDs store for one OSDMap epoch, seconds), the first row that fits.
FAST_PROPOSALS = ((10000, 64 << 20, '0.1'), (25000, 512 << 20, '0.25'))
#: Seconds of CPU that an epoch takes the mon for each PG, most of it for mapping all PGs anew
#: (qa/bench/bench_map_epochs.py; Tentacle: 20 us).
MON_SECONDS_PER_PG = 12e-6
#: About how many bytes of a full OSDMap are due to an OSD (300 of them its eight addresses; the
#: bench has none), a pool, and an upmap entry or a pg_temp.
OSD_BYTES, POOL_BYTES, PG_BYTES = 450, 400, 30


class Epoch(NamedTuple):
    """What one OSDMap epoch costs a cluster."""
    pgs: int
    osds: int
    #: Of the full map, which each OSD stores beside the incremental one (OSD::handle_osd_map).
    map_bytes: int

    @property
    def stored_bytes(self) -> int:
        return self.osds * self.map_bytes

    @property
    def mon_seconds(self) -> float:
        return MON_SECONDS_PER_PG * self.pgs

    def text(self) -> str:
        return 'an OSDMap epoch costs a mon about %.0f ms of CPU (%s) and each OSD a write of ' \
            'about %.3g MiB (%s)' % (1e3 * self.mon_seconds, pgs(self.pgs),
                                     self.map_bytes / (1 << 20), plural(self.osds, 'OSD'))


def epoch_of(osdmap: OsdMap) -> Epoch:
    entries = len(osdmap.upmap_items) + len(osdmap.upmap_vectors) + len(osdmap.pg_temp)
    return Epoch(osdmap.pg_count, len(osdmap.osds), OSD_BYTES * len(osdmap.osds)
                 + POOL_BYTES * len(osdmap.pools) + PG_BYTES * entries)


def release_interval(epoch: Epoch, fast_peering: str) -> Optional[str]:
    """Seconds between two proposals while PGs are released; None: as the operator has it."""
    if fast_peering == 'off':
        return None
    fitting = [seconds for most_pgs, most_bytes, seconds in FAST_PROPOSALS
               if epoch.pgs <= most_pgs and epoch.stored_bytes <= most_bytes]
    if not fitting and fast_peering == 'on':
        return FAST_PROPOSALS[-1][2]
    return fitting[0] if fitting else None


def forecast(osdmap: OsdMap, fast_peering: str) -> Dict[str, Any]:
    """For previews: the interval while PGs are released (None: unchanged), and what it costs."""
    epoch = epoch_of(osdmap)
    seconds = release_interval(epoch, fast_peering)
    return {'seconds': None if seconds is None else float(seconds),
            'map_bytes': epoch.map_bytes, 'stored_bytes': epoch.stored_bytes,
            'mon_cpu_ms': round(1e3 * epoch.mon_seconds, 1),
            'text': peering_text(epoch, fast_peering)}


def peering_text(epoch: Epoch, fast_peering: str) -> str:
    """What happens to paxos_propose_interval while PGs are released, and why."""
    seconds = release_interval(epoch, fast_peering)
    if seconds is not None:
        return '%s of the mons will be %s s while PGs are released: %s' % (
            PROPOSE_INTERVAL, seconds, epoch.text())
    return '%s of the mons remains unchanged (fast_peering is %s): %s' % (
        PROPOSE_INTERVAL, fast_peering, epoch.text())


def wanted(campaign: Campaign, options: Options, osdmap: OsdMap) -> Mapping[str, str]:
    """Option -> value that the mons of a cluster with such a map must have, as things are."""
    change = campaign.change
    if campaign.phase is Phase.PINNING and change is not None and (
            change.stage is Stage.WANTED or change.stage is Stage.SENT and change.more):
        return {PROPOSE_INTERVAL: GATHER_SECONDS}
    releasing = campaign.phase is Phase.RELEASING or (
        campaign.phase is Phase.HOLDING and campaign.in_flight)
    seconds = release_interval(epoch_of(osdmap), options.fast_peering) if releasing else None
    return {} if seconds is None else {PROPOSE_INTERVAL: seconds}


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
    notices = ['%s of the mons was changed outside perfguard: perfguard '
               'leaves it alone from now on' % name
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
