# SPDX-License-Identifier: LGPL-2.1-or-later
"""Errors that perfguard raises, reasons that it gives, and health checks about itself.

An error that recurs is logged once. A loop that fails in every iteration raises a health check.
"""
import contextlib
import errno
import logging
import traceback
from dataclasses import dataclass
from typing import (FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Set,
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
#: Maximum length of a refusal that a command prints.
MOST_ERROR_CHARACTERS = 1000

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
        """The refusal without the frames that raised it. They refer to the state of a turn, which
        only the garbage collector would free where they also refer to the order."""
        return Refused(self.errno, str(self), self.not_fit)


@contextlib.contextmanager
def as_refusal(subject: str) -> Iterator[None]:
    """Raise Refused for each error: an order that fails must not fail the turn, and with it all
    other orders. An unexpected error is EIO, and its traceback is logged. `subject`: the order."""
    try:
        yield
    except Refused:
        raise
    except PerfguardError as error:
        raise Refused(error.errno, str(error)) from error
    except Exception as error:
        log.exception('%s failed', subject)
        raise Refused(errno.EIO, '%s failed: %r' % (subject, error)) from None


class InvalidValue(PerfguardError, ValueError):
    """An invalid value from an operator."""
    errno = errno.EINVAL


# ---- Reasons: a code for programs, and a text for people

class Code:
    """Codes of reasons. They are stable, texts are not. The manual's table is made of the comments.

    Reasons that report a health check have the code of that check instead.
    """
    # No campaign, or one that waits for an operator.
    #: the module has just started
    STARTING = 'STARTING'
    #: no campaign is active, and none is known
    NO_CAMPAIGN = 'NO_CAMPAIGN'
    #: no campaign is active; this is how the last one ended
    ENDED = 'ENDED'
    #: PGs are remapped and not pinned
    REMAPPED = 'REMAPPED'
    #: an aborted campaign keeps PGs pinned until the operator decides
    HELD_PINS = 'HELD_PINS'
    #: a request is executed in the next loop iteration
    REQUESTED = 'REQUESTED'
    #: ``expand --await`` waits for OSDs
    AWAITS_OSDS = 'AWAITS_OSDS'
    #: the campaign waits for the operator's CRUSH change
    AWAITS_CHANGE = 'AWAITS_CHANGE'
    #: the campaign waits for ``campaign pin``
    AWAITS_PIN = 'AWAITS_PIN'
    #: the campaign waits for ``campaign start``
    AWAITS_START = 'AWAITS_START'
    #: the campaign waits for ``campaign resume``
    PAUSED = 'PAUSED'
    #: too many PGs cannot be pinned (``max_unpinnable_ratio``)
    UNPINNABLE = 'UNPINNABLE'
    # Phases that take a while.
    #: flags, balancer, autoscaler or pins are not in force (or given back) yet
    SETTINGS = 'SETTINGS'
    #: ``norebalance`` is cleared for a moment so that undersized PGs recover, or stays set because
    #: too many unpinned PGs would move
    GIVES_WAY = 'GIVES_WAY'
    #: the campaign needs ``norebalance``, but others have cleared it
    FLAG_CLEARED = 'FLAG_CLEARED'
    #: perfguard computes where CRUSH will place the PGs
    OUTLOOK = 'OUTLOOK'
    #: the OSDMap does not show the CRUSH change yet
    CRUSH_SENT = 'CRUSH_SENT'
    #: PGs are still to be pinned
    UNPINNED = 'UNPINNED'
    #: the OSDMap does not show all pins yet
    PINS_SENT = 'PINS_SENT'
    #: all PGs are pinned
    PINNED = 'PINNED'
    #: the PGs have not reported since the last change
    REPORTS = 'REPORTS'
    #: the targets of the pinned PGs are not computed yet; PGs may be peering, or CRUSH, weights or
    #: pools are changing
    NO_GOALS = 'NO_GOALS'
    #: nothing is left to release; PGs are not clean yet
    UNCLEAN = 'UNCLEAN'
    #: the campaign ends when the PGs in flight have arrived
    IN_FLIGHT = 'IN_FLIGHT'
    # Stop conditions.
    #: PGs are laggy
    LAGGY = 'LAGGY'
    #: PGs were laggy within the last three reports
    LAGGY_LATELY = 'LAGGY_LATELY'
    #: PGs wait for read leases to expire
    LEASES = 'LEASES'
    #: PGs are inactive and not peering
    INACTIVE = 'INACTIVE'
    #: PGs are degraded
    DEGRADED = 'DEGRADED'
    #: a target was created again on the drive that is being replaced
    SAME_DRIVE = 'SAME_DRIVE'
    #: operations are slow
    SLOW_OPS = 'SLOW_OPS'
    #: heartbeats are slow
    SLOW_PING = 'SLOW_PING'
    #: mons are out of quorum
    MON_DOWN = 'MON_DOWN'
    #: an upgrade of Ceph by the orchestrator restarts OSDs
    UPGRADE = 'UPGRADE'
    #: mons have little disk space left, or a large store
    MON_DISK = 'MON_DISK'
    #: a pool is much slower than its baseline
    SLOW_POOL = 'SLOW_POOL'
    #: a mitigation is in force, or mode ``act`` would take it
    MITIGATION = 'MITIGATION'
    #: a flag that perfguard did not set stops all backfill
    FOREIGN_FLAG = 'FOREIGN_FLAG'
    #: the balancer was switched on and would change the pins
    BALANCER_ON = 'BALANCER_ON'
    #: movement is halted: latency is above its limit with one PG in flight
    HALTED = 'HALTED'
    #: outside the time window
    WINDOW_CLOSED = 'WINDOW_CLOSED'
    #: the mons keep many OSDMaps (``max_untrimmed_osdmaps``)
    UNTRIMMED_MAPS = 'UNTRIMMED_MAPS'
    #: the mons keep too many OSDMaps (``untrimmed_ceiling``)
    UNTRIMMED_CEILING = 'UNTRIMMED_CEILING'
    #: module options are invalid
    BAD_OPTIONS = 'BAD_OPTIONS'
    #: a stop condition has cleared; one more report confirms it
    CONFIRMING = 'CONFIRMING'
    #: others have changed what the campaign would change, once its PGs have moved
    OVERTAKEN = 'OVERTAKEN'
    #: ``auto_expand`` waits: CRUSH or the OSDs changed within ``auto_expand_settle``
    OSDS_ARRIVING = 'OSDS_ARRIVING'
    # Conditions under which no campaign begins.
    #: PGs are peering
    PEERING = 'PEERING'
    #: OSDs are down but in
    OSD_DOWN = 'OSD_DOWN'
    #: scrubs have found errors
    OSD_SCRUB_ERRORS = 'OSD_SCRUB_ERRORS'
    #: PGs are damaged
    PG_DAMAGED = 'PG_DAMAGED'
    #: a pool splits or merges PGs
    PG_NUM_CHANGING = 'PG_NUM_CHANGING'
    #: ``require_min_compat_client`` is below luminous
    OLD_CLIENTS = 'OLD_CLIENTS'
    # Risks of a change, which begins only if they are accepted.
    #: the autoscaler may undo a change of pg_num
    AUTOSCALER = 'AUTOSCALER'
    #: the built-in balancer would undo a balance
    BALANCER_UNDOES = 'BALANCER_UNDOES'
    #: some mappings cannot be imported
    LEFT_OUT = 'LEFT_OUT'
    #: the effects of the change are unknown
    NO_PREVIEW = 'NO_PREVIEW'
    #: upmaps of pools that the balancer does not cover
    NOT_BALANCED = 'NOT_BALANCED'
    #: too many pins for one OSDMap epoch
    ONE_EPOCH = 'ONE_EPOCH'
    #: CRUSH would find too few OSDs
    TOO_FEW_OSDS = 'TOO_FEW_OSDS'
    #: the intermediate rule has a smaller failure domain
    WEAKER_RULE = 'WEAKER_RULE'
    # How many PGs may be in flight.
    #: the campaign has just begun to release
    FIRST_PACE = 'FIRST_PACE'
    #: clients are idle: the limit is ``max_pgs_in_flight``
    NO_CLIENTS = 'NO_CLIENTS'
    #: client latency is above its limit: fewer PGs may be in flight
    LATENCY = 'LATENCY'
    #: client latency is within its limit
    LATENCY_OK = 'LATENCY_OK'
    #: reads of a single OSD are above their limit: no release touches it
    OSD_LATENCY = 'OSD_LATENCY'
    #: latency stayed high while nothing moved: movement is not the cause
    NEW_BASELINE = 'NEW_BASELINE'
    #: client operations were not counted for long enough
    NO_READINGS = 'NO_READINGS'
    #: a pool has no baseline yet
    NO_BASELINE = 'NO_BASELINE'
    #: too few client operations to judge latency
    FEW_OPS = 'FEW_OPS'
    #: an OSD, host or domain of each PG is at its limit (``max_backfills_*``)
    CAP_BACKFILLS = 'CAP_BACKFILLS'
    #: targets are, or would be, nearly full
    TARGET_FULL = 'TARGET_FULL'
    #: targets are too full for backfill
    BACKFILL_TOOFULL = 'BACKFILL_TOOFULL'
    #: PGs wait for targets that are down
    TARGET_DOWN = 'TARGET_DOWN'
    #: releases are spread out (``stall_ratio``)
    STALL_RATIO = 'STALL_RATIO'
    #: a release waits a few seconds for others, to share their OSDMap epochs
    BATCH = 'BATCH'
    #: an accepted stop condition holds
    ACCEPTED = 'ACCEPTED'
    #: the mons' ``paxos_propose_interval``, and what an OSDMap epoch costs
    FAST_PEERING = 'FAST_PEERING'
    #: options of the OSDs slow the copying (``pace_copying``)
    PACED = 'PACED'
    #: ``max_pgs_in_flight`` PGs are in flight
    CAP_PGS = 'CAP_PGS'
    #: a release would exceed ``max_bytes_in_flight``
    CAP_BYTES = 'CAP_BYTES'
    #: OSDs hold, or would hold, too many PGs (``mon_max_pg_per_osd``)
    PG_LIMIT = 'PG_LIMIT'
    #: as many PGs are pinned as the mons should check (``max_pins``)
    PIN_LIMIT = 'PIN_LIMIT'
    #: nothing limits the releases
    NO_LIMIT = 'NO_LIMIT'
    #: further reasons that limited the campaign
    OTHER = 'OTHER'
    # Why one PG does not move, or one OSD is slow.
    #: the PG is where CRUSH and its upmaps place it
    IN_PLACE = 'IN_PLACE'
    #: an upmap that the balance requires keeps the PG in place
    KEPT = 'KEPT'
    #: nothing prevents the release of the PG: other PGs are released first
    NEXT = 'NEXT'
    #: the target of the PG is unknown, so it is released alone
    GOES_ALONE = 'GOES_ALONE'
    #: the OSDMap does not show the release of the PG yet
    RELEASE_SENT = 'RELEASE_SENT'
    #: the backfill of the PG has not begun, or has just ended
    ARRIVING = 'ARRIVING'
    #: the PG is moving, or the OSD backfills PGs
    BACKFILLING = 'BACKFILLING'
    #: the PG waits for a backfill reservation
    BACKFILL_WAIT = 'BACKFILL_WAIT'
    #: the PG waits for the backfill reservation of its primary
    LOCAL_RESERVATION = 'LOCAL_RESERVATION'
    #: the PG waits for the backfill reservation of a target
    REMOTE_RESERVATION = 'REMOTE_RESERVATION'
    #: a flag that perfguard has set stops the PG
    OWN_FLAG = 'OWN_FLAG'
    #: the mclock profile of the primary leaves little to backfill
    MCLOCK = 'MCLOCK'
    #: the PG is being scrubbed, or the OSD deep-scrubs PGs
    SCRUB = 'SCRUB'
    #: the OSD removes deleted snapshots from PGs
    SNAPTRIM = 'SNAPTRIM'
    #: OSDs have not answered, or not reported
    NO_ANSWER = 'NO_ANSWER'
    #: the OSD is not slower than its peers
    NOT_SLOW = 'NOT_SLOW'
    #: the OSD is slow because it waits for a slow replica of its PGs
    WAITS_FOR_OSD = 'WAITS_FOR_OSD'
    #: the OSD is chronically slow
    SLOW_AGAIN = 'SLOW_AGAIN'
    # Other reasons.
    #: degraded PGs wait although clients have room
    RECOVERY_WAITS = 'RECOVERY_WAITS'
    #: PGs leave OSDs to be emptied; perfguard does not set ``norebalance`` meanwhile
    EVACUATING = 'EVACUATING'
    #: ``norebalance`` keeps PGs on OSDs to be emptied
    EVACUATION_HELD = 'EVACUATION_HELD'
    #: a command of the last loop iteration failed, or the mons refused an option that the campaign
    #: continues without
    COMMAND_FAILED = 'COMMAND_FAILED'
    #: the mons do not store the journal, so perfguard sends no command
    NOT_STORED = 'NOT_STORED'
    #: a probe is active
    PROBE = 'PROBE'
    #: objects are misplaced; names the campaign that moves them
    MISPLACED = 'MISPLACED'
    #: the watch could not process readings, or judge OSDs
    WATCH_FAILED = 'WATCH_FAILED'
    #: the loop has completed no iteration for a while: the data is old
    STALE = 'STALE'
    #: anything else, such as metrics that cannot be served
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


def code_of(word: str) -> str:
    """The code of a reason, a risk or a finding, which may also be spelled with hyphens."""
    return word.replace('-', '_').upper()


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
    """A health check of severity "warning". `count`: as Ceph counts it for the check; None: the
    number of lines of `detail`, of which at most DETAIL_LINES are kept."""
    return {'severity': 'warning', 'summary': summary,
            'count': len(detail) if count is None else count, 'detail': list(detail[:DETAIL_LINES])}


class Tracebacks:
    """The errors that were logged already. For one thread."""

    def __init__(self) -> None:
        self._known: Set[_Place] = set()

    def is_new(self, error: Exception) -> bool:
        """Whether no error of this type, raised in this place, was logged before; it counts as
        logged from now on. Once MOST_PLACES are known, all are forgotten."""
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
    """Why this mgr does nothing: a newer perfguard wrote these documents, of which there is at
    least one."""
    return ('a newer perfguard wrote the stored state (%s%s): this version sends nothing' % (
        withheld[0], ' and %d more' % (len(withheld) - 1) if len(withheld) > 1 else ''))


def old_check(why: str) -> HealthChecks:
    """The health check while the stored state was written by a newer version. `why`: of
    `too_old`."""
    return {CHECK: warning('perfguard does nothing: its state was written by a newer version', [
        why, 'upgrade perfguard on this mgr, or hand over to an mgr that has the newer version: '
        '"ceph mgr fail"'])}


def idle_check(why: str) -> HealthChecks:
    """The health check while this mgr must not act, because another one has become active. `why`:
    the text of the journal on that."""
    return {CHECK: warning('perfguard is idle: its journal belongs to another mgr', [
        why, 'perfguard checks every 30 s whether this mgr is the active one, and then continues; '
        '"ceph mgr fail" activates another mgr'])}


#: The effects of failed turns of the loop and of the watch, and of failed rounds of judging OSDs.
LOOP_STOPS = ('the data that perfguard shows is out of date, and perfguard neither releases nor '
              'stops anything')
WATCH_STOPS = ('pools and OSDs are not watched, and the health checks about them are those of the '
               'last successful iteration; a campaign continues')
ROUNDS_STOP = ('slow OSDs are not found, and the health checks about them are those of the last '
               'round that succeeded; pools and PGs are watched, and a campaign continues')


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
        """The health check; {} until FAILED_TURNS consecutive turns have failed."""
        if self._count < FAILED_TURNS:
            return {}
        # Without the count: the mons log each change of a summary.
        return {CHECK: warning('the perfguard %s fails in every iteration' % self._what, [
            'last error (%d iterations failed): %s' % (self._count, self._last),
            '%s; the log of the active mgr has the traceback' % self._effect])}
