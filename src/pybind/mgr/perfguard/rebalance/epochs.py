# SPDX-License-Identifier: LGPL-2.1-or-later
"""What OSDMap epochs cost, and what follows from it during a campaign. Pure.

The interval of the mons' proposals: PGs peer faster if the mons propose more often, and a CRUSH
change reaches them along with its pins if the mons wait. And how many PGs may be pinned.
"""
from typing import Dict, NamedTuple, Optional

from ..cluster.types import Document, OsdMap
from ..options import Options
from ..text import bytes_text, pgs, plural
from .campaign import Campaign
from .types import Phase

#: Seconds from a commit of the mons to their next proposal (Ceph's default: 1).
PROPOSE_INTERVAL = 'paxos_propose_interval'
#: With this interval, a burst of hundreds of commands ends up in one epoch if it is sent right
#: after a commit: if the last commit is older than the interval, the mons propose within
#: paxos_min_wait (50 ms). The journal's writes just before the burst are such commits.
GATHER_SECONDS = '3'
#: While PGs are released, each of which waits for several proposals while it peers: (PGs of the
#: cluster, bytes that its OSDs store for one OSDMap epoch, seconds), the first row that fits.
#: A stall lasts two or three intervals: 0.12 s for each release with 0.02 s, 0.33 s with 0.1 s
#: (Pacific, qa/bench/bench_release_stall.py).
FAST_PROPOSALS = ((1000, 4 << 20, '0.02'), (3000, 16 << 20, '0.05'), (10000, 64 << 20, '0.1'),
                  (25000, 512 << 20, '0.25'))
#: Seconds that the mons wait for more commands before they propose, if the last commit is older
#: than the interval (Ceph's default: 0.05). With the shortest interval this is most of a stall.
MIN_WAIT = 'paxos_min_wait'
FAST_WAITS = {'0.02': '0.005'}
#: Minimum interval from prepare until all PGs are pinned: the PGs that a CRUSH change remaps peer
#: at once, and each proposal serves many of them.
CHANGE_SECONDS = '0.1'
#: Maximum time of waiting for the CRUSH change with a shortened interval.
PREPARED_SECONDS = 3600.0
#: Seconds of CPU per PG that an epoch costs the mon, most of it for mapping all PGs again
#: (qa/bench/bench_map_epochs.py; Tentacle: 20 us).
MON_SECONDS_PER_PG = 12e-6
#: Seconds of CPU for each upmap entry, all of which the leading mon checks for each epoch
#: (OSDMap::clean_pg_upmaps): a constant, and for each OSD of the cluster a constant and a part for
#: each member of the PG's set. Measured with "osdmaptool --upmap-cleanup" (Pacific): 0.036 ms with
#: 1,000 OSDs, 0.105 with 3,000, 0.17 with 5,000, each of size 3; 0.31 with 5,000 and size 10.
UPMAP_SECONDS, UPMAP_SECONDS_PER_OSD, UPMAP_SECONDS_PER_MEMBER = 4e-6, 22e-9, 4e-9
#: Threads of a mon that share this work (mon_cpu_threads).
MON_THREADS = 4
#: Approximate bytes in a full OSDMap of an OSD (300 of them for its eight addresses, which the
#: bench lacks), of a pool, and of an upmap entry or a pg_temp.
OSD_BYTES, POOL_BYTES, PG_BYTES = 450, 400, 30


class Epoch(NamedTuple):
    """Costs of one OSDMap epoch."""
    pgs: int
    osds: int
    #: Of the full map, which each OSD stores beside the incremental one (OSD::handle_osd_map).
    map_bytes: int
    upmaps: int
    #: Mean size of the PGs.
    size: float

    @property
    def stored_bytes(self) -> int:
        return self.osds * self.map_bytes

    @property
    def upmap_seconds(self) -> float:
        """Time in which the threads of the leading mon check the upmaps."""
        return self.upmaps / MON_THREADS * (UPMAP_SECONDS + self.osds * (
            UPMAP_SECONDS_PER_OSD + UPMAP_SECONDS_PER_MEMBER * self.size))

    @property
    def mon_seconds(self) -> float:
        return MON_SECONDS_PER_PG * self.pgs + MON_THREADS * self.upmap_seconds

    def text(self) -> str:
        cpu_ms = 1e3 * self.mon_seconds
        return 'an OSDMap epoch costs a mon about %.*f ms of CPU (%s, %s) and each OSD a write ' \
            'of about %s (%s)' % (
                1 if cpu_ms < 10.0 else 0, cpu_ms, pgs(self.pgs), plural(self.upmaps, 'upmap'),
                bytes_text(self.map_bytes), plural(self.osds, 'OSD'))


def epoch_of(osdmap: OsdMap) -> Epoch:
    """The costs of the next OSDMap epoch, by the number of PGs, OSDs and upmaps."""
    upmaps = len(osdmap.upmap_items) + len(osdmap.upmap_vectors)
    members = sum(pool.pg_num * pool.size for pool in osdmap.pools.values())
    return Epoch(osdmap.pg_count, len(osdmap.osds), map_bytes=OSD_BYTES * len(osdmap.osds)
                 + POOL_BYTES * len(osdmap.pools) + PG_BYTES * (upmaps + len(osdmap.pg_temp)),
                 upmaps=upmaps, size=members / max(1, osdmap.pg_count))


def release_interval(epoch: Epoch, fast_peering: str) -> Optional[str]:
    """paxos_propose_interval (seconds, as text) while PGs are released; None: it stays as it is.
    `fast_peering`: the option, "off", "auto" or "on"."""
    if fast_peering == 'off':
        return None
    fitting = [seconds for max_pgs, max_bytes, seconds in FAST_PROPOSALS
               if epoch.pgs <= max_pgs and epoch.stored_bytes <= max_bytes
               and epoch.upmap_seconds <= float(seconds)]
    # The shortest interval that the costs allow; with 'on' the longest one if they allow none.
    if not fitting and fast_peering == 'on':
        return FAST_PROPOSALS[-1][2]
    return fitting[0] if fitting else None


def peering_forecast(osdmap: OsdMap, fast_peering: str) -> Document:
    """For previews: the interval while PGs are released (None: unchanged), and its costs."""
    epoch = epoch_of(osdmap)
    seconds = release_interval(epoch, fast_peering)
    return {'seconds': None if seconds is None else float(seconds),
            'map_bytes': epoch.map_bytes, 'stored_bytes': epoch.stored_bytes,
            'mon_cpu_ms': round(1e3 * epoch.mon_seconds, 1),
            'text': peering_text(epoch, fast_peering)}


def peering_text(epoch: Epoch, fast_peering: str) -> str:
    """Text on paxos_propose_interval while PGs are released, with the reason."""
    seconds = release_interval(epoch, fast_peering)
    if seconds is not None:
        return '%s of the mons is %s s while PGs are released: %s' % (
            PROPOSE_INTERVAL, seconds, epoch.text())
    return '%s of the mons remains unchanged (fast_peering is %s): %s' % (
        PROPOSE_INTERVAL, fast_peering, epoch.text())


def fast_proposals(campaign: Campaign, releasing: bool, options: Options,
                   osdmap: OsdMap) -> Dict[str, str]:
    """Options of the mons that let PGs peer sooner -> value, while PGs of the campaign peer, or may
    peer at any moment; {} otherwise. `releasing`: PGs are being released."""
    # The operator is about to change CRUSH, or has just changed it. A change that the campaign
    # makes comes with its pins, and remaps no PG.
    changing = campaign.change is None and (
        campaign.phase is Phase.PINNING or campaign.phase is Phase.PREPARED
        and campaign.progress.turned - campaign.phase_since < PREPARED_SECONDS)
    if not releasing and not changing:
        return {}
    seconds = release_interval(epoch_of(osdmap), options.fast_peering)
    if seconds is None:
        return {}
    if changing:
        # All remapped PGs peer at once, and each proposal serves many of them.
        return {PROPOSE_INTERVAL: max(seconds, CHANGE_SECONDS, key=float)}
    options_by_name = {PROPOSE_INTERVAL: seconds}
    if seconds in FAST_WAITS:
        options_by_name[MIN_WAIT] = FAST_WAITS[seconds]
    return options_by_name


# ---- How many PGs a campaign may keep pinned at a time
#
# The leading mon checks every upmap for each OSDMap epoch. If that takes longer than mon_lease (5
# s), the mons elect another leader again and again.

#: Seconds that checking all upmaps may take the mons in each epoch; if other upmaps alone take
#: about as long, seconds that the pins may add.
UPMAPS_SECONDS, PINS_SECONDS = 0.3, 0.05


def pin_limit(options: Options, osdmap: OsdMap, own_pins: int = 0) -> int:
    """How many PGs a campaign may keep pinned at a time. `own_pins`: how many upmaps of the OSDMap
    are pins of the campaign."""
    if options.max_pins:
        return options.max_pins
    epoch = epoch_of(osdmap)
    without_own = epoch._replace(upmaps=max(0, epoch.upmaps - own_pins))
    # The pins may use the time that other upmaps leave, and PINS_SECONDS in any case.
    return int(max(PINS_SECONDS, UPMAPS_SECONDS - without_own.upmap_seconds)
               / epoch._replace(upmaps=1).upmap_seconds)


def why_too_many_pins(pins: int, options: Options, osdmap: OsdMap, own_pins: int = 0) -> str:
    """Why a campaign must not keep so many PGs (`pins`) pinned; '': it may. `own_pins`: as in
    pin_limit."""
    limit = pin_limit(options, osdmap, own_pins)
    if pins <= limit:
        return ''
    epoch = epoch_of(osdmap)
    other_upmaps = max(0, epoch.upmaps - own_pins)
    return '%d pins and %d other upmaps would take the mons about %.2g s in each OSDMap epoch ' \
        '(limit %d pins, max_pins)' % (
            pins, other_upmaps, epoch._replace(upmaps=other_upmaps + pins).upmap_seconds, limit)
