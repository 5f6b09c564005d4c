# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mon commands that change upmap entries."""
from typing import Any, Dict, List

from ..cluster.types import NO_OSD, OsdSet, UpmapEntry

#: A command as the mon takes it: "prefix" and its arguments.
Command = Dict[str, Any]


def entry_commands(pgid: str, present: UpmapEntry, wanted: UpmapEntry) -> List[Command]:
    """The commands that turn one entry of a PG into another, and no more than it takes.

    Removals come first: a new vector with old items on top of it, or the reverse, is a third
    set, and if that one is illegal the mon cancels both.
    """
    commands: List[Command] = []
    if present.items and not wanted.items:
        commands.append({'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid})
    if present.vector is not None and wanted.vector is None:
        commands.append({'prefix': 'osd rm-pg-upmap', 'pgid': pgid})
    if wanted.vector is not None and wanted.vector != present.vector:
        commands.append({'prefix': 'osd pg-upmap', 'pgid': pgid, 'id': list(wanted.vector)})
    if wanted.items and wanted.items != present.items:
        commands.append({'prefix': 'osd pg-upmap-items', 'pgid': pgid,
                         'id': [osd for pair in wanted.items for osd in pair]})
    return commands


def prime_commands(pgid: str, acting: OsdSet) -> List[Command]:
    """The command that keeps a PG served by `acting` when its up set changes; () and sets with a
    hole: none.

    It has to come before that change: a pg_temp that equals the up set goes with the next epoch.
    """
    if not acting or NO_OSD in acting:
        return []
    return [{'prefix': 'osd pg-temp', 'pgid': pgid, 'id': list(acting)}]


def as_line(command: Command) -> str:
    """A command of this file as one types it."""
    words = ['ceph', command['prefix'], command['pgid'], *map(str, command.get('id', ()))]
    return ' '.join(words)
