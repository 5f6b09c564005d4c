# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much may be moving now.

So far the operator's caps are the limit; a feedback on client latency will lower and raise
`Limit.pgs` between 1 and that cap, with its reason.
"""
from dataclasses import dataclass

from ..options import Options
from .choose import Caps


@dataclass(frozen=True)
class Limit:
    caps: Caps
    reason: str


def limit(options: Options) -> Limit:
    caps = Caps(pgs=options.max_pgs_in_flight, bytes=options.max_bytes_in_flight,
                source=options.max_backfills_source, primary=options.max_backfills_primary,
                target=options.max_backfills_target, host=options.max_backfills_host)
    return Limit(caps, 'up to %d PGs in flight (max_pgs_in_flight)' % caps.pgs)
