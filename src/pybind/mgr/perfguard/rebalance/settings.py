# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the options that are text mean to a rebalance, and what is wrong with them."""
from typing import Container, List, Optional

from ..options import Options
from ..watch.pools import BadTarget, latency_targets
from ..window import BadWindow, Window, window


def window_of(options: Options) -> Window:
    """BadWindow if the options describe none."""
    return window(options.begin_time, options.end_time, options.begin_weekday,
                  options.end_weekday)


def problems(options: Options, pools: Optional[Container[str]]) -> List[str]:
    """Why nothing may be begun with these options; `pools`: the names that exist, if known."""
    found: List[str] = []
    try:
        window_of(options)
    except BadWindow as error:
        found.append(str(error))
    try:
        for pool in latency_targets(options.latency_targets):
            if pools is not None and pool not in pools:
                found.append('latency_targets: pool %r does not exist' % pool)
    except BadTarget as error:
        found.append(str(error))
    if options.latency_alarm_factor < options.latency_factor:
        found.append('latency_factor (%g) must not exceed latency_alarm_factor (%g)'
                     % (options.latency_factor, options.latency_alarm_factor))
    return found
