# SPDX-License-Identifier: LGPL-2.1-or-later
"""Words that many texts share."""


def pgs(number: int) -> str:
    """As in "1 PG" or "12 PGs"."""
    return '%d PG%s' % (number, '' if number == 1 else 's')
