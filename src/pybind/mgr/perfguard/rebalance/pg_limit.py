# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keeps releases within mon_max_pg_per_osd.

Each OSD reports how many PGs it holds (num_pgs of osd_stats), including PGs that move to it and PGs
that it is deleting. The mgr reads these numbers at intervals, and they are some seconds old: PGs
that were released since then are added here.
"""
from collections import Counter
from typing import Iterable, Mapping, Optional, Tuple

from ..errors import Code
from ..observation import Observation
from .draft import Draft
from .types import Flight, Landed

#: Seconds, besides the interval of reports (mgr_stats_period), until a reading counts a PG whose
#: release the OSDMap shows: until the PG has peered and so exists on its target, and the heartbeat
#: (up to 0.9 * osd_heartbeat_interval + 0.5 = 5.9 s) in which an OSD counts its PGs
#: (OSD::heartbeat, OSDService::set_osd_stat) and the tick of the mgr (mgr_tick_period, 2 s).
NUM_PGS_SECONDS = 15.0


def awaits_reading(draft: Draft) -> bool:
    """Whether mon_max_pg_per_osd limits the releases, and it is not known yet how many PGs the OSDs
    hold: the first turn of RELEASING has no reading."""
    return _limits(draft) and draft.observed.held_pgs is None


def receives(draft: Draft) -> Mapping[int, int]:
    """OSD -> PGs that it may receive until it holds as many as mon_max_pg_per_osd allows, less than
    0 if it holds more; PGs in flight to it count against this number. {}: there is no limit, the
    operator has waived it, or it is not known how many PGs the OSDs hold (awaits_reading).

    An OSD that has not reported a number has room for all.
    """
    observation, flights = draft.observed, draft.campaign.flights
    held = observation.held_pgs
    if not _limits(draft) or held is None:
        return {}
    last_counted = _last_counted(observation)
    counted_by_osd = _by_osd(flight.targets for flight in flights.in_flight.values()
                             if _is_counted(flight.confirmed, last_counted))
    uncounted_by_osd = _by_osd(pg.targets for pg in flights.landed
                               if not _is_counted(pg.confirmed, last_counted))
    return {osd: observation.pg_limit - held.by_osd.get(osd, 0) + counted_by_osd[osd]
            - uncounted_by_osd[osd] for osd in observation.osdmap.osds}


def still_uncounted(landed_pgs: Iterable[Landed], observation: Observation) -> Tuple[Landed, ...]:
    """Those of the landed PGs that the present reading, or the next one, may not count."""
    last_counted = _last_counted(observation)
    return tuple(pg for pg in landed_pgs if not _is_counted(pg.confirmed, last_counted))


def landed(flight: Flight) -> Landed:
    """The record of a PG that is no longer in flight since its targets have it."""
    assert flight.confirmed is not None
    return Landed(flight.confirmed, flight.targets)


def _limits(draft: Draft) -> bool:
    return bool(draft.observed.pg_limit) \
        and Code.PG_LIMIT not in draft.campaign.orders.acknowledged


def _last_counted(observation: Observation) -> float:
    """The time until which releases were in the OSDMap whose PGs the reading counts. Without a
    reading: those that the next one will count, in any case."""
    read_at = observation.now if observation.held_pgs is None else observation.held_pgs.time
    return read_at - NUM_PGS_SECONDS - observation.stats_period


def _is_counted(confirmed: Optional[float], last_counted: float) -> bool:
    """`confirmed`: as in Flight."""
    return confirmed is not None and confirmed <= last_counted


def _by_osd(targets: Iterable[Tuple[int, ...]]) -> 'Counter[int]':
    return Counter(osd for osds in targets for osd in osds)
