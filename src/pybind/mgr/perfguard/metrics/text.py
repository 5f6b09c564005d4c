# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prometheus' text format, version 0.0.4."""
import math
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from .catalogue import CATALOGUE, PREFIX

CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

#: Labels as they stand between the braces, and the value; None: there is none to tell.
Sample = Tuple[str, Optional[float]]
#: By the metric's name without the prefix.
Samples = Mapping[str, Iterable[Sample]]

#: All that ends a label's value or its line; a name with a carriage return is read as it is.
_ESCAPES = str.maketrans({'\\': '\\\\', '"': '\\"', '\n': '\\n'})


def labels(**values: object) -> str:
    """Escaped and ready for the braces; a label without a value is left out."""
    return ','.join('%s="%s"' % (name, str(value).translate(_ESCAPES))
                    for name, value in values.items() if value not in (None, ''))


def joined(*parts: str) -> str:
    return ','.join(filter(None, parts))


def state_set(name: str, states: Iterable[str], current: str) -> List[Sample]:
    return [(labels(**{name: state}), state == current) for state in states]


def seconds(ms: Optional[float]) -> Optional[float]:
    # Without the digits that the division makes up.
    return None if ms is None else round(ms / 1000.0, 9)


def render(samples: Samples) -> bytes:
    """In the order of the catalogue; KeyError for a metric that is not in it."""
    left = dict(samples)
    lines: List[str] = []
    for metric in CATALOGUE:
        found = _values(left.pop(metric.name, ()))
        if found:
            name = PREFIX + metric.name
            lines += ['# HELP %s %s' % (name, metric.help), '# TYPE %s gauge' % name]
            lines += ['%s{%s} %s' % (name, key, value) if key else '%s %s' % (name, value)
                      for key, value in found.items()]
    if left:
        raise KeyError('not in the catalogue: %s' % ', '.join(sorted(left)))
    # What Ceph gave as bytes that are no UTF-8 comes as surrogates.
    return ('\n'.join(lines) + '\n').encode('utf-8', 'replace')


def _values(samples: Iterable[Sample]) -> Dict[str, str]:
    """One value for each set of labels, the first: of two Prometheus would refuse everything."""
    found: Dict[str, str] = {}
    for key, value in samples:
        if value is not None:
            found.setdefault(key, _number(value))
    return found


def _number(value: float) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return 'NaN'
        if math.isinf(value):
            return '+Inf' if value > 0 else '-Inf'
        return repr(value)
    return '%d' % value
