# SPDX-License-Identifier: LGPL-2.1-or-later
"""Numbers in words, and tables."""

from typing import List, Sequence


def bytes_text(size: float) -> str:
    for unit in ('B', 'KiB', 'MiB'):
        if size < 1024:
            return f'{size:.0f} {unit}'
        size /= 1024
    return f'{size:.1f} GiB'


def columns(rows: Sequence[Sequence[str]]) -> List[str]:
    """Rows as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ['  '.join([row[0].ljust(widths[0]),
                       *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
            for row in rows]
