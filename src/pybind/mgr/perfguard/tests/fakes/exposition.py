# SPDX-License-Identifier: LGPL-2.1-or-later
"""A strict reader of Prometheus' text format, as far as perfguard uses it."""
import re
from typing import Dict, FrozenSet, Set, Tuple

Key = Tuple[str, FrozenSet[Tuple[str, str]]]

_COMMENT = re.compile(r'# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+)')
_SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{(.+)\})? (\S+)')
_LABEL = re.compile(r'([a-z_][a-z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
_ESCAPED = re.compile(r'\\(.)')


def parse(page: bytes) -> Dict[Key, float]:
    """Values by name and labels; ValueError where Prometheus would refuse or misread it."""
    text = page.decode('utf-8')
    if text and not text.endswith('\n'):
        raise ValueError('the last line has no end')
    found: Dict[Key, float] = {}
    seen: Set[Tuple[str, str]] = set()
    family = ''
    for line in text.split('\n')[:-1]:
        comment = _COMMENT.fullmatch(line)
        if comment:
            word, family, _ = comment.groups()
            if (word, family) in seen:
                raise ValueError('told twice: %r' % line)
            seen.add((word, family))
            continue
        name, labels, value = _sample(line)
        if name != family or not {('HELP', name), ('TYPE', name)} <= seen:
            raise ValueError('not below its HELP and TYPE: %r' % line)
        if (name, labels) in found:
            raise ValueError('two values: %r' % line)
        found[name, labels] = value
    return found


def _sample(line: str) -> Tuple[str, FrozenSet[Tuple[str, str]], float]:
    sample = _SAMPLE.fullmatch(line)
    if not sample:
        raise ValueError('no sample: %r' % line)
    name, inner, value = sample.groups()
    labels: Dict[str, str] = {}
    end = 0
    for match in _LABEL.finditer(inner or ''):
        if match.start() != end or match.group(1) in labels:
            break
        labels[match.group(1)] = _ESCAPED.sub(
            lambda each: {'n': '\n'}.get(each.group(1), each.group(1)), match.group(2))
        end = match.end()
    if end != len(inner or '') or (inner or '').endswith(','):
        raise ValueError('bad labels: %r' % line)
    return name, frozenset(labels.items()), float(value)


def key(metric: str, /, **labels: str) -> Key:
    return 'ceph_perfguard_' + metric, frozenset(labels.items())
