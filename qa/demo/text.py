# SPDX-License-Identifier: LGPL-2.1-or-later
"""States and numbers in words, and tables."""

from typing import Any, List, Mapping, Sequence

from qa.cluster.dashboard import USERS, Dashboard


def progress_text(campaign: Mapping[str, Any], misplaced_ratio: float, p99: str) -> str:
    """The state of a campaign in one line, the most important first."""
    if not campaign['total']:
        return ' | '.join([campaign['phase'], p99, f'{misplaced_ratio:.1%} misplaced',
                           *campaign['reasons'][:1]])
    parts = [f'{campaign["phase"]} {campaign["released"]}/{campaign["total"]} PGs, '
             f'{campaign["in_flight"]} in flight',
             f'{bytes_text(campaign["bytes_done"])} of {bytes_text(campaign["bytes_total"])}',
             p99, *campaign['reasons'][:1]]
    return ' | '.join(parts)


def page_text(dashboard: Dashboard) -> str:
    """Address and logins of the page of perfguard."""
    lines = [f'log in at {dashboard.url()}/ and open {dashboard.url()}/perfguard']
    lines += [f'user {user} ({role}), password {dashboard.passwords[user]}'
              for user, role in USERS.items()]
    return '\n'.join(f'  {line}' for line in lines)


def bytes_text(size: float) -> str:
    for unit in ('B', 'KiB', 'MiB'):
        if size < 1024:
            return f'{size:.0f} {unit}'
        size /= 1024
    return f'{size:.1f} GiB'


def columns(rows: Sequence[Sequence[str]]) -> List[str]:
    """Format rows as lines; the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ['  '.join([row[0].ljust(widths[0]),
                       *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
            for row in rows]
