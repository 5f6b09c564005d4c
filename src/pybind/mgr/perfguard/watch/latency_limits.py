# SPDX-License-Identifier: LGPL-2.1-or-later
"""What latency clients may feel: so many baselines of their pool, or what the operator says."""
from typing import Dict, Optional

from ..errors import InvalidValue
from ..options import Options

#: What clients may wait longer than usual whatever the factor, in ms: less is noise there.
HDD_FLOOR_MS = 2.0
FLASH_FLOOR_MS = 0.5


class BadTarget(InvalidValue):
    """latency_targets is not what it should be; the message says why."""


def latency_targets(text: str) -> Dict[str, float]:
    """Pool -> milliseconds, of "rbd=5,cephfs.data=20"; BadTarget if it is nothing of the kind."""
    targets: Dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(','))):
        pool, _, number = part.rpartition('=')
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not pool or not 0.0 < value < float('inf'):
            raise BadTarget('latency_targets: %r is not <pool>=<milliseconds>, '
                            'with milliseconds above 0' % part)
        targets[pool.strip()] = value
    return targets


def named_target(options: Options, pool: str) -> Optional[float]:
    """The operator's target for a pool, in ms; None: there is none, or it cannot be read."""
    try:
        return latency_targets(options.latency_targets).get(pool)
    except BadTarget:
        return None


def target_ms(baseline_ms: Optional[float], named: Optional[float], options: Options,
              disk: bool = False) -> Optional[float]:
    """What is allowed where `baseline_ms` is usual; None: not known yet.

    `disk`: the pool has OSDs of the class hdd.
    """
    if named is not None or baseline_ms is None:
        return named
    floor = options.latency_floor_ms
    if not floor:
        # A disk behind a cache on flash is as fast as flash while that lasts.
        floor = HDD_FLOOR_MS if disk and baseline_ms >= HDD_FLOOR_MS else FLASH_FLOOR_MS
        floor = min(floor, baseline_ms)
    return max(options.latency_factor * baseline_ms, baseline_ms + floor)
