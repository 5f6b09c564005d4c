# SPDX-License-Identifier: LGPL-2.1-or-later
"""Errors that perfguard raises, reasons that it gives, and health checks about itself.

An error that recurs is logged once. A loop that fails in every iteration raises a health check.
"""
import contextlib
import errno
import logging
import traceback
from dataclasses import dataclass
from typing import (Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Set,
                    Tuple, TypedDict)

log = logging.getLogger(__name__)

CHECK = 'PERFGUARD_LOOP_FAILED'
#: Number of consecutive failed turns until a health check is raised: a single turn may fail because
#: a mon or an OSD is gone.
FAILED_TURNS = 3
#: Maximum number of remembered places; after that, tracebacks are logged again.
MOST_PLACES = 200
#: Maximum number of lines that Ceph keeps of the detail of a health check.
DETAIL_LINES = 50

#: Type of an error, and the file and line that raised it: its text may contain numbers that change.
_Place = Tuple[str, str, int]


class PerfguardError(Exception):
    """Base class of the errors that perfguard raises on purpose. The text is for operators; `errno`
    is positive."""
    errno = errno.EIO


class Refused(PerfguardError):
    """A request that cannot be met; nothing was changed.

    `not_fit`: because of the last reports; the next ones may differ.
    """

    def __init__(self, code: int, text: str, not_fit: bool = False) -> None:
        super().__init__(text)
        self.errno = code
        self.not_fit = not_fit

    def anew(self) -> 'Refused':
        """The same without the frames that raised it. They refer to the state of a turn, which only
        the garbage collector would free where they also refer to the order."""
        return Refused(self.errno, str(self), self.not_fit)


@contextlib.contextmanager
def as_refusal(what: str) -> Iterator[None]:
    """Raise Refused with EIO for an unexpected error, whose traceback is logged: an order that
    fails must not fail the turn, and with it all other orders. `what`: the order."""
    try:
        yield
    except PerfguardError:
        raise
    except Exception as error:
        log.exception('%s failed', what)
        raise Refused(errno.EIO, '%s failed: %r' % (what, error)) from None


class InvalidValue(PerfguardError, ValueError):
    """An invalid value from an operator."""
    errno = errno.EINVAL


# ---- Reasons: a code for programs, and a text for people

class Code:
    """Codes of reasons. They are stable, texts are not; the manual explains each.

    Reasons that report a health check have the code of that check instead.
    """
    # No campaign, or one that waits for an operator.
    STARTING = 'STARTING'
    NO_CAMPAIGN = 'NO_CAMPAIGN'
    ENDED = 'ENDED'
    REMAPPED = 'REMAPPED'
    HELD_PINS = 'HELD_PINS'
    REQUESTED = 'REQUESTED'
    AWAITS_CHANGE = 'AWAITS_CHANGE'
    AWAITS_PIN = 'AWAITS_PIN'
    AWAITS_START = 'AWAITS_START'
    PAUSED = 'PAUSED'
    UNPINNABLE = 'UNPINNABLE'
    # Phases that take a while.
    SETTINGS = 'SETTINGS'
    GIVES_WAY = 'GIVES_WAY'
    OUTLOOK = 'OUTLOOK'
    CRUSH_SENT = 'CRUSH_SENT'
    UNPINNED = 'UNPINNED'
    PINS_SENT = 'PINS_SENT'
    PINNED = 'PINNED'
    REPORTS = 'REPORTS'
    NO_GOALS = 'NO_GOALS'
    UNCLEAN = 'UNCLEAN'
    IN_FLIGHT = 'IN_FLIGHT'
    # Stop conditions.
    LAGGY = 'LAGGY'
    LAGGY_LATELY = 'LAGGY_LATELY'
    LEASES = 'LEASES'
    INACTIVE = 'INACTIVE'
    DEGRADED = 'DEGRADED'
    SLOW_OPS = 'SLOW_OPS'
    SLOW_PING = 'SLOW_PING'
    MON_DOWN = 'MON_DOWN'
    MON_DISK = 'MON_DISK'
    SLOW_POOL = 'SLOW_POOL'
    MITIGATION = 'MITIGATION'
    FOREIGN_FLAG = 'FOREIGN_FLAG'
    BALANCER_ON = 'BALANCER_ON'
    HALTED = 'HALTED'
    WINDOW_CLOSED = 'WINDOW_CLOSED'
    UNTRIMMED_MAPS = 'UNTRIMMED_MAPS'
    UNTRIMMED_CEILING = 'UNTRIMMED_CEILING'
    BAD_OPTIONS = 'BAD_OPTIONS'
    CONFIRMING = 'CONFIRMING'
    OSDS_ARRIVING = 'OSDS_ARRIVING'
    # Conditions under which no campaign begins.
    BACKFILL_TOOFULL = 'BACKFILL_TOOFULL'
    PEERING = 'PEERING'
    OSD_DOWN = 'OSD_DOWN'
    OSD_SCRUB_ERRORS = 'OSD_SCRUB_ERRORS'
    PG_DAMAGED = 'PG_DAMAGED'
    PG_NUM_CHANGING = 'PG_NUM_CHANGING'
    OLD_CLIENTS = 'OLD_CLIENTS'
    # How many PGs may be in flight.
    FIRST_PACE = 'FIRST_PACE'
    NO_CLIENTS = 'NO_CLIENTS'
    LATENCY = 'LATENCY'
    LATENCY_OK = 'LATENCY_OK'
    OSD_LATENCY = 'OSD_LATENCY'
    NEW_BASELINE = 'NEW_BASELINE'
    NO_READINGS = 'NO_READINGS'
    NO_BASELINE = 'NO_BASELINE'
    FEW_OPS = 'FEW_OPS'
    CAP_BACKFILLS = 'CAP_BACKFILLS'
    TARGET_FULL = 'TARGET_FULL'
    TARGET_DOWN = 'TARGET_DOWN'
    STALL_SHARE = 'STALL_SHARE'
    BATCH = 'BATCH'
    FAST_PEERING = 'FAST_PEERING'
    PACED = 'PACED'
    CAP_PGS = 'CAP_PGS'
    CAP_BYTES = 'CAP_BYTES'
    PG_LIMIT = 'PG_LIMIT'
    PIN_LIMIT = 'PIN_LIMIT'
    NO_LIMIT = 'NO_LIMIT'
    OTHER = 'OTHER'
    # Why one PG does not move, or one OSD is slow.
    IN_PLACE = 'IN_PLACE'
    KEPT = 'KEPT'
    NEXT = 'NEXT'
    GOES_ALONE = 'GOES_ALONE'
    RELEASE_SENT = 'RELEASE_SENT'
    ARRIVING = 'ARRIVING'
    BACKFILLING = 'BACKFILLING'
    BACKFILL_WAIT = 'BACKFILL_WAIT'
    LOCAL_RESERVATION = 'LOCAL_RESERVATION'
    REMOTE_RESERVATION = 'REMOTE_RESERVATION'
    OWN_FLAG = 'OWN_FLAG'
    MCLOCK = 'MCLOCK'
    SCRUB = 'SCRUB'
    SNAPTRIM = 'SNAPTRIM'
    NO_ANSWER = 'NO_ANSWER'
    NOT_SLOW = 'NOT_SLOW'
    WAITS_FOR_OSD = 'WAITS_FOR_OSD'
    SLOW_AGAIN = 'SLOW_AGAIN'
    # Other reasons.
    EVACUATING = 'EVACUATING'
    EVACUATION_HELD = 'EVACUATION_HELD'
    COMMAND_FAILED = 'COMMAND_FAILED'
    NOT_STORED = 'NOT_STORED'
    PROBE = 'PROBE'
    MISPLACED = 'MISPLACED'
    WATCH_FAILED = 'WATCH_FAILED'
    STALE = 'STALE'
    REMARK = 'REMARK'


@dataclass(frozen=True)
class Reason:
    #: One of Code, or the code of a health check.
    code: str
    text: str
    #: Ids of the pools concerned, where it is only about these.
    pools: FrozenSet[int] = frozenset()
    #: Number of the OSDs or PGs concerned, where the extent matters.
    number: int = 1


def as_json(reasons: Iterable[Reason]) -> List[Dict[str, str]]:
    """An entry of `limits` in `status` and `campaign status`."""
    return [{'code': reason.code, 'text': reason.text} for reason in reasons]


def texts(reasons: Iterable[Reason]) -> List[str]:
    return [reason.text for reason in reasons]


# ---- Errors that recur, and health checks

class HealthWarning(TypedDict):
    """A health check as MgrModule.set_health_checks takes it, by code."""
    severity: str
    summary: str
    count: int
    detail: List[str]


HealthChecks = Mapping[str, HealthWarning]


def warning(summary: str, detail: Sequence[str], count: Optional[int] = None) -> HealthWarning:
    """`count`: None for the number of lines."""
    return {'severity': 'warning', 'summary': summary,
            'count': len(detail) if count is None else count, 'detail': list(detail[:DETAIL_LINES])}


class Tracebacks:
    """The errors that were logged already. For one thread."""

    def __init__(self) -> None:
        self._known: Set[_Place] = set()

    def is_new(self, error: Exception) -> bool:
        """True once for each type and place of an error."""
        place = _place(error)
        if place in self._known:
            return False
        if len(self._known) >= MOST_PLACES:
            self._known.clear()
        self._known.add(place)
        return True


def _place(error: Exception) -> _Place:
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    return (type(error).__name__, last.filename if last else '', last.lineno or 0 if last else 0)


def too_old(withheld: Sequence[str]) -> str:
    """Why this mgr does nothing: a newer perfguard wrote these documents."""
    return ('a newer perfguard wrote the stored state (%s%s): this version sends nothing' % (
        withheld[0], ' and %d more' % (len(withheld) - 1) if len(withheld) > 1 else ''))


def old_check(why: str) -> HealthChecks:
    """The health check while the stored state was written by a newer version."""
    return {CHECK: warning('perfguard does nothing: its state was written by a newer version', [
        why, 'upgrade perfguard on this mgr, or hand over to an mgr that has the newer version: '
        '"ceph mgr fail"'])}


def idle_check(why: str) -> HealthChecks:
    """The health check while this mgr must not act."""
    return {CHECK: warning('perfguard is idle: its journal belongs to another mgr', [
        why, 'perfguard checks every 30 s whether this mgr is the active one, and then continues; '
        '"ceph mgr fail" activates another mgr'])}


#: The effects of failed turns of the loop and of the watch.
LOOP_STOPS = ('the data that perfguard shows is out of date, and perfguard neither releases nor '
              'stops anything')
WATCH_STOPS = ('pools and OSDs are not watched, and the health checks about them are those of the '
               'last successful iteration; a campaign continues')


class FailedTurns:
    """Consecutive failed turns of the loop, or of a part of it."""

    def __init__(self, what: str = 'loop', effect: str = LOOP_STOPS) -> None:
        self._what = what
        self._effect = effect
        self._count = 0
        self._last = ''

    def note(self, error: Exception) -> None:
        self._count += 1
        self._last = '%s: %s' % (type(error).__name__, ' '.join(str(error).split())[:500])

    def clear(self) -> None:
        self._count = 0

    def check(self) -> HealthChecks:
        """The health check, if enough turns have failed."""
        if self._count < FAILED_TURNS:
            return {}
        # Without the count: the mons log each change of a summary.
        return {CHECK: warning('the perfguard %s fails in every iteration' % self._what, [
            'last error (%d iterations failed): %s' % (self._count, self._last),
            '%s; the log of the active mgr has the traceback' % self._effect])}
