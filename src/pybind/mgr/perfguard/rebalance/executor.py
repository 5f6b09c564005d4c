# SPDX-License-Identifier: LGPL-2.1-or-later
"""Turns actions into commands and sends them; those for the mons are sent together."""
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, Mapping, Protocol, Sequence, Set, Tuple

from ..cluster.set_by_others import BALANCER
from ..cluster.types import INPUT, Reply
from ..ledger import config_command, flag_command
from ..upmap.semantics import Command, entry_commands, prime_commands
from .holds import option_name
from .types import Action, SetBalancer, SetCrushMap, SetFlag, SetOption, SetPool, SetWeight


class CommandSender(Protocol):
    def run(self, commands: Sequence[Command]) -> Sequence[Reply]: ...

    def switch_balancer(self, active: bool) -> Reply: ...


@dataclass(frozen=True)
class Outcome:
    #: What failed, one line each.
    failures: Tuple[str, ...] = ()
    #: PGs with an unanswered command, which may have been executed or not.
    unanswered: FrozenSet[str] = frozenset()
    #: Options that the mons did not accept, as Holds.mon names them, with the error.
    refused: Mapping[str, str] = field(default_factory=dict)


def execute(cluster: CommandSender, actions: Sequence[Action]) -> Outcome:
    """Carry out all actions: first those of the balancer, then the commands for the mons together.

    Failures need no further handling: the next turn reads back the result, and repeats the action
    or gives up.
    """
    failures: List[str] = []
    unanswered_pgs: Set[str] = set()
    refused_options: Dict[str, str] = {}
    for action in actions:
        if isinstance(action, SetBalancer):
            # The command of the balancer takes effect at once, an option only after its sleep
            # interval.
            reply = cluster.switch_balancer(action.active)
            failures += _failure({'prefix': 'balancer', 'active': action.active}, reply)
    commands = [command for action in actions for command in commands_of(action)]
    for command, reply in zip(commands, cluster.run(commands) if commands else ()):
        failures += _failure(command, reply)
        if reply.retval is None and 'pgid' in command:
            unanswered_pgs.add(command['pgid'])
        if reply.retval and command['prefix'] == 'config set':
            refused_options[option_name(command['who'], command['name'])] = reply.error
    return Outcome(tuple(failures), frozenset(unanswered_pgs), refused_options)


def _failure(command: Command, reply: Reply) -> List[str]:
    """Text on a command that has failed or is not answered; []: it has succeeded."""
    if reply.retval == 0:
        return []
    return ['%s: %s' % (describe(command), reply.error or 'no answer')]


def commands_of(action: Action) -> List[Command]:
    """The mon commands of an action. For SetBalancer, `execute` calls the balancer as well."""
    if isinstance(action, SetFlag):
        return [flag_command(action.flag, action.on)]
    if isinstance(action, SetBalancer):
        return [config_command('mgr', BALANCER, 'true' if action.active else 'false')]
    if isinstance(action, SetOption):
        return [config_command(action.who, action.name, action.value)]
    if isinstance(action, SetPool):
        return [{'prefix': 'osd pool set', 'pool': action.pool, 'var': action.name,
                 'val': action.value}]
    if isinstance(action, SetWeight):
        return [{'prefix': 'osd crush reweight', 'name': 'osd.%d' % action.osd,
                 'weight': action.weight}]
    if isinstance(action, SetCrushMap):
        return [{'prefix': 'osd setcrushmap', 'prior_version': action.version,
                 INPUT: action.crush_map}]
    # A SetEntry: what differs from the present entry `now`, and the acting set `prime`.
    return entry_commands(action.pgid, action.now, action.entry) + prime_commands(
        action.pgid, action.prime)


def describe(command: Command) -> str:
    return ' '.join(str(value) for key, value in command.items() if key != INPUT)
