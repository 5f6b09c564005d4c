# SPDX-License-Identifier: LGPL-2.1-or-later
"""The text format of Prometheus, version 0.0.4."""
import math
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from .catalogue import CATALOGUE, PREFIX

CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

#: Labels in the format between braces, and the value; None: no value.
Sample = Tuple[str, Optional[float]]
#: Samples by the name of the metric without the prefix.
Samples = Mapping[str, Iterable[Sample]]

#: Characters that end the value of a label or its line; a carriage return does not.
_ESCAPES = str.maketrans({'\\': '\\\\', '"': '\\"', '\n': '\\n'})


def labels(**values: object) -> str:
    """Labels in the format between braces; labels without a value are left out."""
    return ','.join('%s="%s"' % (name, str(value).translate(_ESCAPES))
                    for name, value in values.items() if value not in (None, ''))


def joined(*parts: str) -> str:
    return ','.join(filter(None, parts))


def state_set(name: str, states: Iterable[str], current: str) -> List[Sample]:
    return [(labels(**{name: state}), state == current) for state in states]


def seconds(ms: Optional[float]) -> Optional[float]:
    # Without digits that the division adds.
    return None if ms is None else round(ms / 1000.0, 9)


def render(samples: Samples) -> bytes:
    """The samples in the order of the catalogue; raises KeyError for unknown metrics."""
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
    # Ceph passes bytes that are not UTF-8 as surrogates.
    return ('\n'.join(lines) + '\n').encode('utf-8', 'replace')


def _values(samples: Iterable[Sample]) -> Dict[str, str]:
    """The first value of each set of labels: Prometheus refuses a page with duplicates."""
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
