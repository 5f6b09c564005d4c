# SPDX-License-Identifier: LGPL-2.1-or-later
"""Turns actions into commands and sends them, those for the mons all at once."""
from typing import Any, Dict, List, Protocol, Sequence

from .holds import BALANCER
from .types import Action, SetAutoscale, SetBalancer, SetEntry, SetFlag

Command = Dict[str, Any]


class Reply(Protocol):
    @property
    def retval(self) -> Any: ...

    @property
    def error(self) -> str: ...


class Cluster(Protocol):
    def run(self, commands: Sequence[Command]) -> Sequence[Reply]: ...

    def switch_balancer(self, active: bool) -> Reply: ...


def execute(cluster: Cluster, actions: Sequence[Action]) -> List[str]:
    """Carry out all actions; returns what failed, one line each.

    Failures need no other handling: what was asked for is read back in the next turn, and
    repeated or given up there.
    """
    failures: List[str] = []
    for action in actions:
        if isinstance(action, SetBalancer):
            # The balancer's own command, so that it takes effect at once and not after its nap.
            reply = cluster.switch_balancer(action.active)
            failures += _failure({'prefix': 'balancer', 'active': action.active}, reply)
    commands = [command for action in actions for command in commands_of(action)]
    if commands:
        for command, reply in zip(commands, cluster.run(commands)):
            failures += _failure(command, reply)
    return failures


def _failure(command: Command, reply: Reply) -> List[str]:
    if reply.retval == 0:
        return []
    return ['%s: %s' % (describe(command), reply.error or 'no answer')]


def commands_of(action: Action) -> List[Command]:
    """The mon commands of an action."""
    if isinstance(action, SetFlag):
        return [{'prefix': 'osd set' if action.on else 'osd unset', 'key': action.flag}]
    if isinstance(action, SetBalancer):
        if action.stored is None:
            return [{'prefix': 'config rm', 'who': 'mgr', 'name': BALANCER}]
        return [{'prefix': 'config set', 'who': 'mgr', 'name': BALANCER, 'value': action.stored}]
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
