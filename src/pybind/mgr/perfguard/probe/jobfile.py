# SPDX-License-Identifier: LGPL-2.1-or-later
"""Job files in fio's syntax: [sections] of key=value, [global] for those below it, comments."""
import re
from typing import Dict, List, Mapping, Tuple

from .types import BadJob
from .words import WORDS

GLOBAL = 'global'
#: Keys that mean something here.
SUPPORTED: Tuple[str, ...] = tuple(WORDS)
#: Keys that say what is so anyway, and the values they may have ('' stands for the key alone).
#: Jobs run one after the other, for their runtime, each stream reported by itself.
IMPLIED: Mapping[str, Tuple[str, ...]] = {
    'ioengine': ('rados',), 'time_based': ('', '1'), 'stonewall': ('', '1'),
    'wait_for_previous': ('', '1'), 'group_reporting': ('', '0', '1'), 'thread': ('', '0', '1'),
    'direct': ('', '0', '1')}
MAX_NAME = 64
_COMMENT = re.compile('[#;].*')
MAX_LINES = 2000

Section = Tuple[str, Dict[str, str]]


def sections(text: str) -> List[Section]:
    """Name and words of each job of a file; BadJob, with the line, for what is none."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise BadJob('the job file has %d lines: at most %d' % (len(lines), MAX_LINES))
    found: List[Section] = []
    inherited: Dict[str, str] = {}
    words = None
    name = ''
    for number, whole in enumerate(lines, 1):
        line = _COMMENT.sub('', whole).strip()
        if not line:
            continue
        if line[0] == '[':
            name = _name(line, number)
            if name == GLOBAL:
                words = inherited
                continue
            if name in dict(found):
                raise BadJob('line %d of the job file: there are two jobs [%s]' % (number, name))
            words = dict(inherited)
            found.append((name, words))
            continue
        if words is None:
            raise BadJob('line %d of the job file: %s stands before any [section]'
                         % (number, line))
        words.update(_setting(line, name, number))
    if not found:
        raise BadJob('the job file has no job: a [section] other than [global] is wanted')
    return found


def _name(line: str, number: int) -> str:
    name = line[1:-1].strip()
    if not (line.endswith(']') and 0 < len(name) <= MAX_NAME and name.isprintable()):
        raise BadJob('line %d of the job file: %s is no [section]' % (number, line[:80]))
    return name


def _setting(line: str, section: str, number: int) -> Dict[str, str]:
    """The word of a line; nothing, if it is about what is so anyway."""
    key, _, value = (part.strip() for part in line.partition('='))
    where = 'line %d of the job file, [%s]' % (number, section)
    if key in IMPLIED:
        if value.lower() not in IMPLIED[key]:
            raise BadJob('%s: %s=%s: only %s is possible' % (where, key, value, ' or '.join(
                '%s=%s' % (key, each) if each else key for each in IMPLIED[key])))
        return {}
    if key not in WORDS:
        raise BadJob('%s: unknown key %s; known are %s (and %s, which are so anyway)' % (
            where, key[:80], ', '.join(SUPPORTED), ', '.join(IMPLIED)))
    try:
        WORDS[key].parse(key, value)
    except BadJob as error:
        raise BadJob('%s: %s' % (where, error)) from None
    return {key: value}
