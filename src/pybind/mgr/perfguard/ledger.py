# SPDX-License-Identifier: LGPL-2.1-or-later
"""Settings that perfguard borrows from the cluster: flags, options, the balancer, primary affinity.

One rule for all of it, except the flags of a probe (ResourceManager), whose commands the loop waits
for. The value that was found and the one to put are journalled before a command is sent. The
command is sent again until the cluster shows its value. A value that is neither of the two, and
every change after the cluster has shown ours, was made outside perfguard: it is left alone, also
when other settings are given back. Values are text; None: not set.
"""
import enum
import shlex
from dataclasses import dataclass, replace
from typing import FrozenSet, NamedTuple, Optional, Tuple

from .cluster.types import Command, Json


class Owner(enum.Enum):
    """The part of perfguard that has borrowed a setting."""
    CAMPAIGN = 'campaign'
    MITIGATION = 'mitigation'
    PROBE = 'probe'
    AWAIT = 'expand --await'


@dataclass(frozen=True)
class Row:
    owner: Owner
    what: str
    #: The value that was found (None: not set), and the value that perfguard has put.
    found: Optional[str]
    put: str
    #: Seconds since the epoch.
    since: float
    #: The Ceph command that restores it.
    restore: str
    #: The name of a flag or option; '' for what only one part can borrow.
    name: str = ''
    #: "campaign finish --keep" leaves it.
    can_stay: bool = False


@dataclass(frozen=True)
class Ledger:
    """Everything that perfguard has borrowed from the cluster.

    Each owner journals its part together with its state, before it sends a command. A setting has
    one owner: a second one would take the value of the first for that of the operator, and put it
    back when the first has long returned the setting.
    """
    rows: Tuple[Row, ...] = ()

    def borrowed_by_others(self, owner: Owner) -> FrozenSet[str]:
        """The flags and options that other parts than this one have borrowed."""
        return frozenset(row.name for row in self.rows if row.owner is not owner)


def shell(command: Command) -> str:
    """A mon command as an operator types it."""
    words = ['--' + key.replace('_', '-') if value is True else shlex.quote(str(value))
             for key, value in command.items() if key != 'prefix']
    return ' '.join(['ceph', str(command['prefix']), *words])


def flag_command(flag: str, on: bool) -> Command:
    return {'prefix': 'osd set' if on else 'osd unset', 'key': flag}


def config_command(who: str, name: str, value: Optional[str]) -> Command:
    """`value`: None removes the option."""
    if value is None:
        return {'prefix': 'config rm', 'who': who, 'name': name}
    return {'prefix': 'config set', 'who': who, 'name': name, 'value': value}


def to_json(ledger: Ledger) -> Json:
    return {'held': [{'what': row.what, 'owner': row.owner.value, 'found': row.found,
                      'put': row.put, 'since': row.since, 'restore': row.restore}
                     for row in ledger.rows]}


def same_value(a: Optional[str], b: Optional[str]) -> bool:
    """Whether two values are the same to a daemon: the mons write 0.1 as "0.100000".

    None: not set.
    """
    if a is None or b is None:
        return a is b
    try:
        return float(a) == float(b)
    except ValueError:
        return a.strip() == b.strip()


@dataclass(frozen=True)
class Held:
    """The journalled record of one borrowed setting."""
    found: Optional[str]
    put: str
    #: The cluster has shown what was put.
    seen: bool = False
    #: It is being given back; until the cluster shows that, its absence is not a change by others.
    returning: bool = False
    #: Values that were put earlier and never seen: they may still arrive.
    earlier: Tuple[str, ...] = ()

    def is_ours(self, value: Optional[str]) -> bool:
        return any(same_value(value, ours) for ours in (self.put, *self.earlier))


class HoldStep(NamedTuple):
    """What to do about one setting now."""
    #: The new record; None: given back, or changed outside perfguard.
    held: Optional[Held]
    #: Send a command: for `put` when it is held, for `found` when it is given back.
    send: bool = False
    #: It was changed outside perfguard.
    theirs: bool = False


CHANGED_BY_OTHERS = HoldStep(None, theirs=True)


def hold(held: Held, value: Optional[str]) -> HoldStep:
    """One step towards the value `held.put`: the record once the cluster shows it, a command to
    send again, or CHANGED_BY_OTHERS. `value`: what the cluster shows."""
    if same_value(value, held.put):
        return HoldStep(Held(held.found, held.put, seen=True))
    # The value that was found is not a change by others until the cluster has shown ours.
    if same_value(value, held.found) and (held.returning or not held.seen):
        return HoldStep(replace(held, seen=False, returning=False), send=True)
    return HoldStep(held, send=True) if held.is_ours(value) else CHANGED_BY_OTHERS


def hold_other(held: Held, value: Optional[str], put: str) -> HoldStep:
    """As `hold`, towards a value `put` that may differ from `held.put`, the one put before: then
    that still counts as ours, since its command may arrive late."""
    if same_value(put, held.put):
        return hold(held, value)
    changed_by_others = held.seen and not held.returning and not same_value(value, held.put)
    if changed_by_others:
        return CHANGED_BY_OTHERS
    earlier = tuple(value_put for value_put in (*held.earlier, held.put)
                    if not same_value(value_put, put))
    return hold(Held(held.found, put, earlier=earlier), value)


def give_back(held: Held, value: Optional[str]) -> HoldStep:
    """One step towards `held.found`, the value from before: a command to send again, HoldStep(None)
    once the cluster shows that value, or CHANGED_BY_OTHERS if it shows one that is neither that
    nor ours. `value`: what the cluster shows."""
    is_restored = same_value(value, held.found)
    if is_restored and (held.seen or same_value(held.found, held.put)):
        return HoldStep(None)
    if held.is_ours(value):
        return HoldStep(replace(held, seen=True, returning=True), send=True)
    if is_restored:
        # Our value was never seen and may still arrive, so the command is sent in any case. In two
        # turns, since a crash may occur between the journal and the first command.
        return HoldStep(replace(held, seen=held.returning, returning=True), send=True)
    return CHANGED_BY_OTHERS
