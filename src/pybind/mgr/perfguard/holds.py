# SPDX-License-Identifier: LGPL-2.1-or-later
"""What perfguard has borrowed from the cluster now, with the command that restores it by hand."""
import shlex
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, Mapping, Optional


@dataclass(frozen=True)
class Row:
    what: str
    #: What was found, and what perfguard has put in its place; found None: not set.
    found: Optional[str]
    put: str
    #: Seconds since the epoch.
    since: float
    #: A command of Ceph's own that puts it back.
    restore: str


def shell(command: Mapping[str, Any]) -> str:
    """A mon command as an operator types it."""
    words = ['--' + key.replace('_', '-') if value is True else shlex.quote(str(value))
             for key, value in command.items() if key != 'prefix']
    return ' '.join(['ceph', command['prefix'], *words])


def to_json(rows: Iterable[Row]) -> Dict[str, Any]:
    return {'held': [asdict(row) for row in rows]}


def same_value(one: Optional[str], other: Optional[str]) -> bool:
    """Whether two values are the same to a daemon: the mons write 0.1 as "0.100000".

    None: not set.
    """
    if one is None or other is None:
        return one is other
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip() == other.strip()
