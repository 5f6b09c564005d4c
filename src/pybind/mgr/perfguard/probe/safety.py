# SPDX-License-Identifier: LGPL-2.1-or-later
"""When a probe must not begin, and when it has to end at once."""
from typing import List, Optional

from ..cluster.types import OsdMap, Pool, Signals

#: Health checks that no probe may make worse; the stop conditions of a rebalance come on top. Pools
#: matter only where they are the probe's own target: see `closed`.
FULL_CHECKS = {
    'OSD_FULL': 'OSDs are full',
    'OSD_NEARFULL': 'OSDs are nearly full',
    'OSD_BACKFILLFULL': 'OSDs are too full to be backfilled',
}
#: Flags of the OSDMap under which clients wait, or must not write.
STILL_FLAGS = ('full', 'pauserd', 'pausewr', 'pauserec')
#: The same of a pool; eio: whatever clients ask for is an error.
STILL_POOL_FLAGS = ('full', 'full_quota', 'backfillfull', 'nearfull', 'eio')


def trouble(signals: Signals, moving_allowed: bool) -> List[str]:
    """Why no probe may run now, in words, beside the stop conditions that hold for everybody.

    `moving_allowed`: data is moved on purpose, and the operator wants to measure nevertheless.
    """
    counts = signals.counts
    found = ['%s: %s' % (text, signals.health[check]) for check, text in FULL_CHECKS.items()
             if check in signals.health]
    if moving_allowed:
        return found
    for number, text in ((counts.backfilling, 'backfilling'), (counts.recovering, 'recovering'),
                         (counts.backfill_wait, 'waiting for backfill')):
        if number:
            found.append('%d PGs are %s' % (number, text))
    return found


def closed(osdmap: OsdMap, pool: Optional[Pool], writing_in_place: bool) -> List[str]:
    """Why clients cannot do the probe's I/O, in words; `pool`: None for one of the probe's own."""
    found = ['the OSDMap has the flag %s' % flag for flag in STILL_FLAGS if flag in osdmap.flags]
    if pool is None:
        return found
    found += ['pool %s has the flag %s' % (pool.name, flag)
              for flag in STILL_POOL_FLAGS if flag in pool.flags]
    if pool.erasure and writing_in_place and 'ec_overwrites' not in pool.flags:
        found.append('pool %s is erasure coded and does not allow overwrites '
                     '(allow_ec_overwrites), so that only reads can be probed' % pool.name)
    return found


def met(signals: Signals) -> List[str]:
    """What disturbs a measurement without speaking against it, in words."""
    counts = signals.counts
    found = []
    if counts.deep_scrubbing:
        found.append('deep scrub')
    if counts.backfilling or counts.recovering:
        found.append('recovery or backfill')
    return found
