# SPDX-License-Identifier: LGPL-2.1-or-later
"""Numbers, sizes, times and lists as text for people."""
import time
from decimal import ROUND_HALF_UP, Decimal
from typing import Iterable, Optional, Sequence


def plural(number: int, noun: str) -> str:
    """As in "1 pin" or "12 pins"."""
    return '%d %s%s' % (number, noun, '' if number == 1 else 's')


def pgs(number: int) -> str:
    """As in "1 PG" or "12 PGs"."""
    return plural(number, 'PG')


def are(number: int, noun: str) -> str:
    """As in "1 pin is" or "12 pins are"."""
    return plural(number, noun) + (' is' if number == 1 else ' are')


def pgs_are(number: int) -> str:
    """As in "1 PG is" or "12 PGs are"."""
    return are(number, 'PG')


def listed(names: Sequence[str], limit: int = 5, between: str = ', ') -> str:
    """As in "1.2, 1.3 and 7 more"."""
    shown, further = between.join(names[:limit]), len(names) - limit
    return '%s and %d more' % (shown, further) if further > 0 else shown


def osds_text(osds: Iterable[int], limit: int = 5) -> str:
    """As in "osd.1, osd.2" or "osd.1, osd.2 and 7 more", by id."""
    return listed(['osd.%d' % osd for osd in sorted(osds)], limit)


def bytes_text(size: float) -> str:
    for unit in ('B', 'KiB', 'MiB', 'GiB', 'TiB'):
        if abs(size) < 1024 or unit == 'TiB':
            return ('%d %s' if unit == 'B' else '%.1f %s') % (size, unit)
        size /= 1024
    raise AssertionError('not reached')


def seconds_text(seconds: Optional[float]) -> str:
    """A time in the unit that suits it; None: it is not known."""
    if seconds is None:
        return 'not known yet'
    whole = int(_rounded(seconds))
    if whole < 120:
        return '%d s' % whole
    if whole < 7200:
        return '%s min' % _rounded(whole / 60)
    if whole < 48 * 3600:
        return '%s h' % _rounded(whole / 3600, '0.1')
    return '%s days' % _rounded(whole / 86400, '0.1')


def ms_text(milliseconds: float) -> str:
    """"1.23 ms"; at least two digits that are not zero: "0.0042 ms"."""
    digits = next((number for number in range(2, 6) if milliseconds * 10 ** number >= 10), 2)
    return '%.*f ms' % (digits, milliseconds)


def figure(value: float) -> str:
    """The number with two significant digits, or all digits before the decimal point."""
    return '%.0f' % value if value >= 10 else '%.2g' % value


def decimal_number(text: str) -> float:
    """The number that an operator gives. Raises ValueError, also for "1_0" and for digits of other
    scripts, which float() takes."""
    if '_' in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _rounded(value: float, unit: str = '1') -> Decimal:
    """Halves are rounded up, as on the page; Python would round them to even digits."""
    return Decimal(value).quantize(Decimal(unit), ROUND_HALF_UP)


def time_text(stamp: Optional[float]) -> str:
    """Local time of the mgr, with its zone: operators may be in another one."""
    return '' if not stamp else time.strftime('%Y-%m-%d %H:%M:%S %Z', time.localtime(stamp))


def interval_text(seconds: Optional[float], low: Optional[float], high: Optional[float]) -> str:
    """An estimate with its ends, as in "20 min (15 min to 31 min)"."""
    text = seconds_text(seconds)
    ends = [seconds_text(end) for end in (low, high) if end is not None]
    return text if not ends or ends == [text, text] else '%s (%s)' % (text, ' to '.join(ends))


def with_next(text: str, step: str) -> str:
    """`step`: the command that goes on, or ''."""
    return '%s: %s' % (text, step) if step else text
