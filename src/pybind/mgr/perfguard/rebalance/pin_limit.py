# SPDX-License-Identifier: LGPL-2.1-or-later
"""How many PGs a campaign may keep pinned at a time. Pure.

The leading mon checks every upmap for each OSDMap epoch. If that takes longer than mon_lease (5 s),
the mons elect another leader again and again.
"""
from ..cluster.types import OsdMap
from ..options import Options
from .fast_peering import epoch_of

#: Seconds that checking all upmaps may take the mons in each epoch; if other upmaps alone take
#: about as long, seconds that the pins may add.
UPMAPS_SECONDS, PINS_SECONDS = 0.3, 0.05


def pin_limit(options: Options, osdmap: OsdMap, own: int = 0) -> int:
    """PGs that a campaign may keep pinned at a time. `own`: how many of the upmaps are its pins."""
    if options.max_pins:
        return options.max_pins
    epoch = epoch_of(osdmap)
    others = epoch._replace(upmaps=max(0, epoch.upmaps - own))
    return int(max(PINS_SECONDS, UPMAPS_SECONDS - others.upmap_seconds)
               / epoch._replace(upmaps=1).upmap_seconds)


def too_many(pins: int, options: Options, osdmap: OsdMap, own: int = 0) -> str:
    """Why a campaign must not keep so many PGs pinned; '' if it may."""
    most = pin_limit(options, osdmap, own)
    if pins <= most:
        return ''
    epoch = epoch_of(osdmap)
    others = max(0, epoch.upmaps - own)
    return '%d pins and %d other upmaps would take the mons about %.2g s in each OSDMap epoch ' \
        '(limit %d pins, max_pins)' % (
            pins, others, epoch._replace(upmaps=others + pins).upmap_seconds, most)
