# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the advice is about, and what it says, as plain frozen data."""
import enum
from dataclasses import dataclass, field
from typing import Callable, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from ..cluster.inventory import Inventory


class Severity(enum.Enum):
    #: Clients are slower than they need to be, or will be.
    WARNING = 'warning'
    #: A choice that has a price; it may be the right one.
    INFO = 'info'


@dataclass(frozen=True)
class Facts:
    """All that the rules see."""
    inventory: Inventory
    #: Health check code -> summary, muted checks left out.
    health: Mapping[str, str] = field(default_factory=dict)
    #: OSDMap epochs that are not trimmed; None: not known.
    untrimmed_epochs: Optional[int] = None
    #: A campaign has stopped the balancer.
    campaign: bool = False
    #: What some OSDs show of their own options: OSD -> option -> value.
    shown: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


class Seen(NamedTuple):
    """What a rule found, and the command that changes it."""
    seen: str
    fix: str


@dataclass(frozen=True)
class Rule:
    code: str
    severity: Severity
    #: Why it matters, with a figure where one is known.
    why: str
    source: str
    look: Callable[[Facts], Optional[Seen]]


@dataclass(frozen=True)
class Finding:
    rule: Rule
    seen: str
    fix: str
    muted: bool = False


@dataclass(frozen=True)
class Advice:
    """What commands see."""
    #: Seconds since the epoch; 0: the cluster has not been looked at yet.
    time: float = 0.0
    findings: Tuple[Finding, ...] = ()
    muted: FrozenSet[str] = frozenset()
    #: What could not be read, in words.
    remarks: Tuple[str, ...] = ()


@dataclass(frozen=True)
class AdviseOrder:
    """Look at the cluster now; mute or unmute a code first."""
    verb: str
    code: str = ''
    job: str = 'advise'
