# SPDX-License-Identifier: LGPL-2.1-or-later
"""The options of a campaign: whether they are valid, and those that are set for it alone. Pure."""
import errno
import math
from dataclasses import replace
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Tuple

from ..errors import Refused
from ..options import SPECS, Options, why_invalid
from ..text import decimal_number
from ..watch.pools import BadLimit, latency_limits_ms
from ..window import BadWindow, Window, window


def window_of(options: Options) -> Window:
    """Raises BadWindow if the options are invalid."""
    return window(options.begin_time, options.end_time, options.begin_weekday,
                  options.end_weekday)


def problems(options: Options, pools: Optional[Container[str]]) -> List[str]:
    """Why no campaign may begin with these options; each text names the options that are the
    reason. `pools`: the names that exist, if known."""
    texts: List[str] = []
    try:
        window_of(options)
    except BadWindow as error:
        texts.append(str(error))
    try:
        texts += unknown_pools(options, pools)
    except BadLimit as error:
        texts.append(str(error))
    if options.latency_alarm_factor < options.latency_factor:
        texts.append('latency_factor (%g) must not exceed latency_alarm_factor (%g)'
                     % (options.latency_factor, options.latency_alarm_factor))
    return texts


def unknown_pools(options: Options, pools: Optional[Container[str]]) -> List[str]:
    """Texts on limits of pools that do not exist; raises BadLimit."""
    return ['latency_limits_ms: pool %r does not exist' % pool
            for pool in latency_limits_ms(options.latency_limits_ms)
            if pools is not None and pool not in pools]


# ---- options of one campaign only, as in `campaign set latency_factor=2`

#: Options for the speed of a campaign. Those that determine where its PGs end cannot be changed
#: during the campaign, and the rest are not about campaigns.
SETTABLE = ('latency_factor', 'latency_floor_ms', 'latency_limits_ms', 'stall_ratio',
            'max_pins', 'max_pgs_in_flight', 'max_bytes_in_flight', 'max_backfills_source',
            'max_backfills_primary', 'max_backfills_target', 'max_backfills_host',
            'max_backfills_device', 'max_backfills_domain', 'max_transition_ratio', 'fast_peering',
            'begin_time', 'end_time', 'begin_weekday', 'end_weekday')


def assignment(text: str) -> Tuple[str, str]:
    """"latency_factor=2" -> the option and its value; '': the setting is removed, so that the
    module option applies. Raises Refused."""
    name, equals, value = text.partition('=')
    if not equals:
        raise Refused(errno.EINVAL, 'expected <option>=<value>, not %.60r ("<option>=" removes a '
                      'setting)' % text)
    if name not in SETTABLE:
        raise Refused(errno.EINVAL, '%.60r cannot be set for a campaign; must be one of %s' % (
            name, ', '.join(SETTABLE)))
    if value:
        parsed(name, value)
    return name, value


def parsed(name: str, text: str) -> Any:
    """The value of an option; raises Refused."""
    spec = SPECS[name]
    try:
        value = _SETTING_TYPES[spec['type']](text)
    except ValueError:
        raise Refused(errno.EINVAL, '%s must be a %s, not %.60r' % (
            name, {'uint': 'whole number', 'float': 'number'}.get(spec['type'], 'text'),
            text)) from None
    why = why_invalid(name, value, text)
    if why:
        raise Refused(errno.EINVAL, why)
    return value


def _whole(text: str) -> int:
    decimal_number(text)
    return int(text)


def _finite(text: str) -> float:
    value = decimal_number(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_SETTING_TYPES: Dict[str, Callable[[str], Any]] = {'uint': _whole, 'float': _finite, 'str': str}


def overridden(options: Options, settings: Mapping[str, str]) -> Options:
    """The options with a campaign's settings, except those that are invalid in this version."""
    values = {}
    for name, text in settings.items():
        try:
            if name in SETTABLE:
                values[name] = parsed(name, text)
        except Refused:
            continue  # set in a version with other bounds
    return replace(options, **values) if values else options
