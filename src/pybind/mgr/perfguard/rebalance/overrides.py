# SPDX-License-Identifier: LGPL-2.1-or-later
"""Options that count for one campaign only: `rebalance set latency_factor=2`. Pure."""
import errno
import math
from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Tuple

from ..errors import Refused
from ..options import OPTIONS, Options

#: What says how fast a campaign may go. Options that say where its PGs end cannot be changed while
#: it goes on, and others are not the campaign's.
SETTABLE = ('latency_factor', 'latency_floor_ms', 'latency_targets', 'stall_share',
            'max_pgs_in_flight', 'max_bytes_in_flight', 'max_backfills_source',
            'max_backfills_primary', 'max_backfills_target', 'max_backfills_host',
            'max_backfills_domain', 'max_transition_ratio', 'fast_peering', 'begin_time',
            'end_time', 'begin_weekday', 'end_weekday')
_SPECS: Dict[str, Mapping[str, Any]] = {spec['name']: spec for spec in OPTIONS}


def assignment(text: str) -> Tuple[str, str]:
    """"latency_factor=2" -> the option and its value; '' for the module option's. Raises Refused.
    """
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
    spec = _SPECS[name]
    try:
        value = _TYPES[spec['type']](text)
    except ValueError:
        raise Refused(errno.EINVAL, '%s must be a %s, not %.60r' % (
            name, {'uint': 'whole number', 'float': 'number'}.get(spec['type'], 'text'),
            text)) from None
    allowed = spec.get('enum_allowed')
    if allowed and value not in allowed:
        raise Refused(errno.EINVAL, '%s must be one of %s, not %.60r' % (
            name, ', '.join(allowed), text))
    if not spec.get('min', value) <= value <= spec.get('max', value):
        raise Refused(errno.EINVAL, '%s must be between %s and %s, not %.60s' % (
            name, spec['min'], spec['max'], text))
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_TYPES: Dict[str, Callable[[str], Any]] = {'uint': int, 'float': _finite, 'str': str}


def overridden(options: Options, settings: Mapping[str, str]) -> Options:
    """The options with a campaign's settings; without those that this version does not take."""
    values = {}
    for name, text in settings.items():
        try:
            if name in SETTABLE:
                values[name] = parsed(name, text)
        except Refused:
            continue  # set under a version with other bounds
    return replace(options, **values) if values else options
