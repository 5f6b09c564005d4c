# SPDX-License-Identifier: LGPL-2.1-or-later
"""Input and output of the rules, as frozen data."""
import enum
from dataclasses import dataclass, field
from typing import Callable, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from ..cluster.inventory import Inventory


class Severity(enum.Enum):
    #: Clients are slower than necessary, or will be.
    WARNING = 'warning'
    #: A trade-off, which may be intended.
    INFO = 'info'


@dataclass(frozen=True)
class Facts:
    """Input of the rules."""
    inventory: Inventory
    #: Health check code -> summary, muted checks left out.
    health: Mapping[str, str] = field(default_factory=dict)
    #: OSDMap epochs that are not trimmed; None: not known.
    untrimmed_epochs: Optional[int] = None
    #: A campaign has stopped the balancer.
    campaign: bool = False
    #: Options in force on some OSDs: OSD -> option -> value.
    shown: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


class Seen(NamedTuple):
    """A finding of a rule, and the command that fixes it."""
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
    """The advice as commands read it."""
    #: Seconds since the epoch; 0: the cluster has not been examined yet.
    time: float = 0.0
    findings: Tuple[Finding, ...] = ()
    muted: FrozenSet[str] = frozenset()
    #: Texts on what could not be read.
    remarks: Tuple[str, ...] = ()


@dataclass(frozen=True)
class AdviseOrder:
    """An order: mute or unmute a code, then examine the cluster."""
    verb: str
    code: str = ''
    job: str = 'advise'
