# SPDX-License-Identifier: LGPL-2.1-or-later
"""The advice: input and output of the rules as frozen data, its JSON, and its text for people."""
import enum
import functools
import textwrap
from dataclasses import dataclass, field
from typing import (Callable, ClassVar, Dict, FrozenSet, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

from ..cluster.drive_health import DriveHealth
from ..cluster.inventory import Inventory, OsdFacts, StandbyMgr
from ..cluster.types import ConfigEntry, Json
from ..errors import HealthChecks, warning
from ..text import plural, time_text


#: Age in seconds up to which advice is not renewed by order: an examination takes 0.1 s of the loop
#: on a large cluster, and readers may order it.
ADVICE_FRESH_SECONDS = 10.0


class Severity(enum.Enum):
    #: Clients are slower than necessary, or will be.
    WARNING = 'warning'
    #: A trade-off, which may be intended.
    INFO = 'info'


class SlowAlone(NamedTuple):
    probe: int
    #: Of one operation at a time, and of `depth` at a time, in ms.
    alone_ms: float
    together_ms: float
    depth: int


class UsedCapacity(NamedTuple):
    """How much of what a pool serves its clients use, as far as that is certain."""
    pool: str
    #: Share of the operations that it serves at this p99, in the busiest hour of seven days, from
    #: 0.0. Those of other pools on its OSDs count as well.
    busiest: float
    p99_ms: float
    #: The probe that it is computed from.
    probe: int


@dataclass(frozen=True)
class Measurements:
    """What probes and the watch have measured, and the SMART data of drives."""
    #: OSD -> the newest probe of its store, and the 4 KiB writes per second that it measured.
    store_iops: Mapping[int, Tuple[int, float]] = field(default_factory=dict)
    #: The newest probe of queue depths, if one operation at a time was slower than several.
    slow_alone: Optional[SlowAlone] = None
    #: OSD -> its slowdown against its peers, where that is known.
    slowdowns: Mapping[int, float] = field(default_factory=dict)
    capacities: Tuple[UsedCapacity, ...] = ()
    #: Device, as in "h1:nvme0n1" -> its SMART data; None: not read yet.
    drives: Optional[Mapping[str, DriveHealth]] = None


@dataclass(frozen=True)
class Facts:
    """Input of the rules."""
    inventory: Inventory
    #: Health check code -> summary, muted checks left out.
    health: Mapping[str, str] = field(default_factory=dict)
    #: OSDMap epochs that are not trimmed; None: not known.
    untrimmed_epochs: Optional[int] = None
    #: A campaign has stopped the balancer: it is active, or aborted and keeps PGs pinned.
    campaign: bool = False
    #: Options in force on some OSDs: OSD -> option -> value.
    in_force: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    measured: Measurements = Measurements()

    @functools.cached_property
    def options(self) -> Mapping[Tuple[str, str], Sequence[ConfigEntry]]:
        """The configuration database by section and option; OSDs with mclock have an entry each."""
        entries: Dict[Tuple[str, str], List[ConfigEntry]] = {}
        for entry in self.inventory.config or ():
            entries.setdefault((entry.section, entry.name), []).append(entry)
        return entries

    def main_drives(self) -> List[Tuple[OsdFacts, DriveHealth]]:
        """OSDs with the SMART data of their main drives, as far as there is any."""
        drives = self.measured.drives or {}
        return [(osd, drives[osd.devices[0]]) for osd in self.inventory.osds
                if osd.devices and osd.devices[0] in drives]


class Symptom(NamedTuple):
    """A finding of a rule, and the command that fixes it."""
    text: str
    fix: str


@dataclass(frozen=True)
class Rule:
    code: str
    severity: Severity
    #: Why it matters, with a figure where one is known.
    why: str
    source: str
    look: Callable[[Facts], Optional[Symptom]]


@dataclass(frozen=True)
class Finding:
    rule: Rule
    text: str
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
    addressee: ClassVar[str] = 'advise'


# ---- The data that commands print, and the text for people

#: Columns of a terminal.
WIDTH = 100


def to_json(advice: Advice) -> Json:
    return {'time': advice.time, 'remarks': list(advice.remarks),
            'findings': [_finding(finding) for finding in advice.findings if not finding.muted],
            'muted': sorted(advice.muted)}


def _finding(finding: Finding) -> Json:
    rule = finding.rule
    return {'code': rule.code, 'severity': rule.severity.value, 'seen': finding.text,
            'why': rule.why, 'fix': finding.fix, 'source': rule.source}


def plain(data: Json) -> str:
    """The advice (`to_json`) as text: of each finding what was seen, why it matters, how to fix it,
    and the source; then when the cluster was examined, muted codes, and remarks."""
    lines: List[str] = []
    for finding in data['findings']:
        lines += ['%s (%s)' % (finding['code'], finding['severity']),
                  *_wrapped('seen', finding['seen']), *_wrapped('why', finding['why']),
                  *_wrapped('fix', finding['fix']), *_wrapped('source', finding['source']), '']
    count = len(data['findings'])
    lines.append('%s, as of %s' % (
        'no findings' if not count else plural(count, 'finding'), time_text(data['time']))
        if data['time'] else
        'the cluster has not been examined yet; "perfguard advise --refresh" examines it now')
    if data['muted']:
        lines.append('muted: ' + ', '.join(data['muted']))
    return '\n'.join([*lines, *('- ' + remark for remark in data['remarks'])])


def _wrapped(label: str, text: str) -> List[str]:
    head = '  %-8s' % (label + ':')
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=' ' * len(head),
                         break_long_words=False, break_on_hyphens=False)


# ---- whether each mgr could start this version of the module: a standby, and the active one again

STANDBY_CHECK = 'PERFGUARD_STANDBY_MGR'
WAY_OUT = ('Install the version of the active mgr on these hosts and restart their mgrs. Campaigns '
           'and the watch stop once one of them becomes active.')


def standby_problems(standbys: Sequence[StandbyMgr], version: str) -> List[str]:
    """One line for each standby that could not take over, by name: without the module, unable to
    run it, or with another version than `version`, that of the active mgr."""
    texts: List[str] = []
    for standby in sorted(standbys, key=lambda standby: standby.name):
        if standby.version is None:
            texts.append('mgr.%s does not have the module' % standby.name)
        elif standby.error:
            texts.append('mgr.%s cannot run the module: %s' % (standby.name, standby.error))
        elif standby.version != version:
            texts.append('mgr.%s has version %s (active mgr: %s)' % (
                standby.name, standby.version or 'unknown', version))
    return texts


def active_problems(version: str, installed: str) -> List[str]:
    """One line if the active mgr, which runs `version` ('': not known), could not start it again,
    since another one is `installed` ('': none)."""
    if not version or installed == version:
        return []
    return ['the active mgr runs version %s, and %s' % (
        version, 'version %s is installed' % installed if installed else 'its files are missing')]


def standby_checks(inventory: Inventory) -> HealthChecks:
    """The health check; empty where every mgr could run this version from its next start on."""
    version = inventory.version
    problems = [*active_problems(version, inventory.installed),
                *standby_problems(inventory.standbys, version)]
    return {STANDBY_CHECK: warning('%s cannot start perfguard %s' % (
        plural(len(problems), 'mgr'), version), [*problems, WAY_OUT])} if problems else {}
