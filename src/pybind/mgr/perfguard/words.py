# SPDX-License-Identifier: LGPL-2.1-or-later
"""Words that many texts share."""


def plural(number: int, noun: str) -> str:
    """As in "1 pin" or "12 pins"."""
    return '%d %s%s' % (number, noun, '' if number == 1 else 's')


def pgs(number: int) -> str:
    """As in "1 PG" or "12 PGs"."""
    return plural(number, 'PG')


def pgs_are(number: int) -> str:
    """As in "1 PG is" or "12 PGs are"."""
    return pgs(number) + (' is' if number == 1 else ' are')
