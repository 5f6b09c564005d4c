# SPDX-License-Identifier: LGPL-2.1-or-later
"""fio's words for a job and what their values mean, one by one. What a word says of another one
is in job.py."""
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple

from .types import BadJob

KIB, MIB = 1 << 10, 1 << 20

RW = ('read', 'write', 'randread', 'randwrite', 'rw', 'randrw')
#: fio's other names of the same.
_RW_ALSO = {'readwrite': 'rw'}

#: Ceph's own bounds are not far: osd_max_write_size is 90 MiB, osd_max_object_size 128 MiB.
MIN_BS, MAX_BS = 512, 64 * MIB
MAX_OBJECT = 128 * MIB
MAX_OBJECTS = 4096
MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS = 0.1, 3600.0
MAX_RAMP_SECONDS = 600.0
MAX_SIZE = MAX_OBJECT * MAX_OBJECTS
MAX_IO_SIZE = 1 << 50

_SIZE = re.compile(r'(\d{1,18})(?:([kmgt])i?)?b?', re.ASCII | re.IGNORECASE)
_UNITS = {'': 1, 'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40}
_SECONDS = re.compile(r'(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h)?', re.ASCII | re.IGNORECASE)
_SECOND_UNITS = {'ms': 0.001, 's': 1.0, 'm': 60.0, 'h': 3600.0}


def parse_size(word: str, text: str) -> int:
    """Bytes of "4096", "4k", "4M", "1g", "4KiB". k is 1024, as in fio; and so is KiB, whatever
    fio reads there (4000, with its default of kb_base)."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadJob('%s=%s: a size is wanted, such as 4096, 4k, 4m or 1g' % (word, text))
    return int(match.group(1)) * _UNITS[(match.group(2) or '').lower()]


def parse_seconds(word: str, text: str) -> float:
    """Seconds of "10", "2.5", "10s", "500ms", "2m" (minutes), "1h"."""
    match = _SECONDS.fullmatch(text.strip())
    if not match:
        raise BadJob('%s=%s: a time is wanted, such as 10, 10s, 500ms or 2m' % (word, text))
    return float(match.group(1)) * _SECOND_UNITS[(match.group(2) or 's').lower()]


def parse_number(word: str, text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise BadJob('%s=%s: a whole number is wanted' % (word, text))
    return int(digits)


def size_text(size: int) -> str:
    """As fio takes it: 4k, 64m, 4097."""
    for unit in ('t', 'g', 'm', 'k'):
        if size and size % _UNITS[unit] == 0:
            return '%d%s' % (size // _UNITS[unit], unit)
    return str(size)


def _rw(word: str, text: str) -> str:
    name = _RW_ALSO.get(text.strip().lower(), text.strip().lower())
    if name not in RW:
        raise BadJob('%s=%s: one of %s is wanted' % (word, text, ', '.join(RW)))
    return name


def _between(parse: Callable[[str, str], Any], least: float, most: float,
             text_of: Callable[[Any], str]) -> Callable[[str, str], Any]:
    def bounded(word: str, text: str) -> Any:
        value = parse(word, text)
        if not least <= value <= most:
            raise BadJob('%s=%s: it must be from %s to %s'
                         % (word, text, text_of(least), text_of(most)))
        return value
    return bounded


def _seconds_text(seconds: float) -> str:
    return '%g s' % seconds


class Word(NamedTuple):
    parse: Callable[[str, str], Any]
    help: str


#: All words that a job can have.
WORDS: Mapping[str, Word] = {
    'rw': Word(_rw, 'read, write, randread, randwrite, rw (or readwrite), randrw'),
    'bs': Word(_between(parse_size, MIN_BS, MAX_BS, size_text),
               'bytes of one operation, 512 to 64m'),
    'iodepth': Word(_between(parse_number, 1, 1024, str),
                    'operations in flight of each stream, 1 to 1024'),
    'numjobs': Word(_between(parse_number, 1, 64, str),
                    'streams at the same time, each with objects of its own, 1 to 64'),
    'size': Word(_between(parse_size, MIN_BS, MAX_SIZE, size_text),
                 'bytes that each stream works on'),
    'nrfiles': Word(_between(parse_number, 1, MAX_OBJECTS, str),
                    'objects of each stream, 1 to 4096, of size / nrfiles bytes each'),
    'runtime': Word(_between(parse_seconds, MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS,
                             _seconds_text), 'seconds that are measured, 0.1 to 3600'),
    'ramp_time': Word(_between(parse_seconds, 0.0, MAX_RAMP_SECONDS, _seconds_text),
                      'seconds before them that do not count, 0 to 600'),
    'rate_iops': Word(_between(parse_number, 0, 10 ** 6, str),
                      'operations a second of each stream at most; 0: no bound'),
    'rwmixread': Word(_between(parse_number, 0, 100, str), 'per cent of reads in rw and randrw'),
    'io_size': Word(_between(parse_size, 0, MAX_IO_SIZE, size_text),
                    'bytes that each stream transfers at most; 0: no bound'),
}


def values(words: Mapping[str, str]) -> Dict[str, Any]:
    """What the words mean; BadJob for an unknown word or a value out of its bounds."""
    found = {}
    for word, text in words.items():
        if word not in WORDS:
            raise BadJob('%s=%s: there is no such word; known are %s'
                         % (word, text, ', '.join(WORDS)))
        found[word] = WORDS[word].parse(word, text)
    return found
