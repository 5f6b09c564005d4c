# SPDX-License-Identifier: LGPL-2.1-or-later
"""Turns actions into mon commands and sends them all at once."""
from typing import Any, Dict, List, Protocol, Sequence

from .types import Action, SetAutoscale, SetEntry, SetFlag, SetOption

Command = Dict[str, Any]


class Reply(Protocol):
    @property
    def retval(self) -> Any: ...

    @property
    def error(self) -> str: ...


class Mons(Protocol):
    def run(self, commands: Sequence[Command]) -> Sequence[Reply]: ...


def execute(mons: Mons, actions: Sequence[Action]) -> List[str]:
    """Carry out all actions; returns what failed, one line each.

    Failures need no other handling: what was asked for is read back in the next turn, and
    repeated or given up there.
    """
    commands = [command for action in actions for command in commands_of(action)]
    if not commands:
        return []
    failures: List[str] = []
    for command, reply in zip(commands, mons.run(commands)):
        if reply.retval != 0:
            failures.append('%s: %s' % (describe(command), reply.error or 'no answer'))
    return failures


def commands_of(action: Action) -> List[Command]:
    if isinstance(action, SetFlag):
        return [{'prefix': 'osd set' if action.on else 'osd unset', 'key': action.flag}]
    if isinstance(action, SetOption):
        if action.value is None:
            return [{'prefix': 'config rm', 'who': 'mgr', 'name': action.option}]
        return [{'prefix': 'config set', 'who': 'mgr', 'name': action.option,
                 'value': action.value}]
    if isinstance(action, SetAutoscale):
        return [{'prefix': 'osd pool set', 'pool': action.pool, 'var': 'pg_autoscale_mode',
                 'val': action.mode}]
    return _entry_commands(action)


def _entry_commands(action: SetEntry) -> List[Command]:
    """Removals come first: a vector must not meet the items that it replaces."""
    entry, now, pgid = action.entry, action.now, action.pgid
    commands: List[Command] = []
    if now.items and not entry.items:
        commands.append({'prefix': 'osd rm-pg-upmap-items', 'pgid': pgid})
    if now.vector is not None and entry.vector is None:
        commands.append({'prefix': 'osd rm-pg-upmap', 'pgid': pgid})
    if entry.vector is not None and entry.vector != now.vector:
        commands.append({'prefix': 'osd pg-upmap', 'pgid': pgid, 'id': list(entry.vector)})
    if entry.items and entry.items != now.items:
        commands.append({'prefix': 'osd pg-upmap-items', 'pgid': pgid,
                         'id': [osd for pair in entry.items for osd in pair]})
    return commands


def describe(command: Command) -> str:
    return ' '.join(str(value) for value in command.values())
