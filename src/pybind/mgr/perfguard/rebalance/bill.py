# SPDX-License-Identifier: LGPL-2.1-or-later
"""The bill of a campaign: its costs, summed up turn by turn. Pure, and of bounded size.

Which slow operations movement explains is decided by the time and the place where the OSDs have
counted them. Each OSD counts its operations as their primary, for half a minute to some minutes at
a time (Clients.counted), and such a part belongs to one of four groups:

* still: no PG was in flight.
* moving: the OSD sent, received or led a PG in flight.
* away: PGs were in flight elsewhere.
* unsure: something else may have slowed them as well: OSDs or CRUSH had changed, an OSD hung or was
  slow on its own, PGs were laggy, or degraded by others, or peered without a release.

Of the operations in "moving", as many are expected to be slow as without movement: the share of
slow ones in "still" and in the quiet time before the campaign or, if larger, in "away", which shows
the effect of the load. Movement explains those beyond this share, and not the others.

Writes wait for replicas, and operations on erasure-coded pools for other shards. So if these are
slow in "away", a PG in flight may be the cause or not: those beyond the quiet share are unknown,
and so is the same share in "moving". In "unsure" all beyond the quiet share are unknown. Without
enough operations for a share, movement explains none.

What a failover loses: the operations between the last counts of the former mgr and the first ones
of the next one, and the sums of the last minute. Its time counts for the phase.
"""
from dataclasses import dataclass, field, replace
from typing import AbstractSet, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

from ..cluster.types import LatencyCounts
from ..codec import Time
from ..ledger import Held
from ..observation import Clients
from ..watch.op_counts import OpCounts, OpLevels, Tail, tail_of
from .types import AUTOSCALE, Holds, Phase

_STILL, _MOVING, _AWAY, _UNSURE = 'still', 'moving', 'away', 'unsure'
READ_KIND, WRITE_KIND = KINDS = 'reads', 'writes'
#: Seconds for which operations may wait after a move has ended, or something else.
AFTER_SECONDS = 5.0
#: Minimum number of operations that give a share of slow ones.
LEAST_SHARE_OPS = 1000
#: The key of pg_autoscale_mode for all pools together: there may be hundreds.
AUTOSCALERS = AUTOSCALE.rstrip('/')


class BorrowedSetting(NamedTuple):
    """A setting that the campaign has borrowed at some time; see Holds for its key."""
    put: str
    #: For how long, in all.
    seconds: float = 0.0
    #: It is borrowed now; others have changed it meanwhile, so it was left as it is.
    held: bool = True
    left: bool = False


class SlowOps(NamedTuple):
    """Operations over one latency."""
    total: int = 0
    #: Explained by movement, not explained by it, and unknown.
    movement: int = 0
    others: int = 0
    unknown: int = 0


class BillTurn(NamedTuple):
    """What one turn adds."""
    now: float
    #: When the campaign began.
    started: float
    #: Since the last turn.
    seconds: float
    #: The phase before it.
    phase: Phase
    clients: Clients = Clients()
    #: OSDs that take part in PGs in flight; empty if there are none.
    osds: AbstractSet[int] = frozenset()
    #: When something besides movement last may have slowed operations; OSDs that are slow.
    troubled: float = 0.0
    slow: AbstractSet[int] = frozenset()
    #: Erasure-coded pools have clients.
    erasure: bool = False


@dataclass(frozen=True)
class _Causes:
    """What may have slowed operations, and when last; only known to this mgr."""
    #: When this mgr began to note it; 0: not yet.
    since: float = 0.0
    moving: float = 0.0
    troubled: float = 0.0
    #: By OSD.
    moved: Mapping[int, float] = field(default_factory=dict)
    slow: Mapping[int, float] = field(default_factory=dict)

    def after(self, turn: BillTurn) -> '_Causes':
        return _Causes(since=self.since or turn.now,
                       moving=turn.now if turn.osds else self.moving,
                       troubled=max(self.troubled, turn.troubled),
                       moved=_noted(self.moved, turn.osds, turn.now),
                       slow=_noted(self.slow, turn.slow, turn.now))

    def groups(self, osd: int, begin: float, erasure: bool) -> Tuple[str, str]:
        """The group of the reads, and that of the writes, that an OSD has counted from `begin` to
        now, by what may have slowed them. `erasure`: erasure-coded pools have clients."""
        # Operations may still wait for what ended shortly before they were counted.
        earliest = begin - AFTER_SECONDS
        is_known = self.since <= begin  # not after a failover
        if self.troubled >= earliest or not is_known:
            return _UNSURE, _UNSURE
        group = _STILL
        if self.moving >= earliest:
            group = _MOVING if self.moved.get(osd, 0.0) >= earliest else _AWAY
        # Writes also wait for slow replicas, and so do reads of erasure-coded pools.
        any_slow = any(when >= earliest for when in self.slow.values())
        is_slow = self.slow.get(osd, 0.0) >= earliest
        return (_UNSURE if is_slow or any_slow and erasure else group,
                _UNSURE if any_slow else group)


def _noted(times: Mapping[int, float], osds: AbstractSet[int], now: float) -> Mapping[int, float]:
    return {**times, **dict.fromkeys(osds, now)} if osds else times


@dataclass(frozen=True)
class Bill:
    #: Bytes that the change itself requires to move; None: not known.
    required_bytes: Optional[int] = None
    #: Client latency in quiet time before the campaign.
    quiet: OpLevels = OpLevels()
    #: Seconds by phase.
    phases: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, BorrowedSetting] = field(default_factory=dict)
    #: The last reading that was counted, and the client operations of all of them.
    counted: Time = 0.0
    ops: int = 0
    #: Operations by latency while PGs were in flight.
    moving: OpCounts = OpCounts()
    #: "moving reads" -> these operations.
    tails: Mapping[str, Tail] = field(default_factory=dict)
    #: Reads may have waited for other OSDs than the one that counted them.
    erasure: bool = False
    causes: _Causes = field(default=_Causes(), compare=False)

    @classmethod
    def begun(cls, quiet: Optional[LatencyCounts]) -> 'Bill':
        return cls(quiet=OpLevels() if quiet is None else OpCounts().plus(quiet).levels)

    def after(self, turn: BillTurn) -> 'Bill':
        """The bill after one more turn of the campaign."""
        bill = replace(self, causes=self.causes.after(turn),
                       phases=_added(self.phases, turn.phase.value, turn.seconds))
        clients = turn.clients
        # Nothing was counted since, or not since the campaign began.
        if clients.time == self.counted or clients.time < turn.started:
            return bill
        bill = replace(bill, counted=clients.time, ops=self.ops + _op_count(clients),
                       erasure=self.erasure or turn.erasure)
        for sample in clients.counted:
            end = clients.time - sample.age
            # The first one of each OSD began before the campaign.
            if end - sample.seconds / 2 >= turn.started:
                bill = bill._with(sample, end - sample.seconds)
        return bill

    def borrowing(self, before: Holds, now: Holds, seconds: float) -> 'Bill':
        """The bill with one more turn of borrowed settings. `before`, `now`: the settings before
        and after these `seconds`, which count for those of `before`."""
        earlier, held = _grouped(before.held), _grouped(now.held)
        settings = dict(self.settings)
        for key, setting in {**earlier, **held}.items():
            recorded = settings.get(key, BorrowedSetting(setting.put))
            settings[key] = BorrowedSetting(
                setting.put, round(recorded.seconds + (seconds if key in earlier else 0.0), 3),
                held=key in held, left=key not in held and _is_given_up(key, (now, before)))
        # Without those that the mons did not accept.
        return replace(self, settings={key: setting for key, setting in settings.items()
                                       if key not in now.refused})

    def _with(self, sample: LatencyCounts, begin: float) -> 'Bill':
        """The bill with one more sample of operations of an OSD. `begin`: when the sample began."""
        tails = dict(self.tails)
        read_group, write_group = self.causes.groups(sample.osd, begin, self.erasure)
        for kind, group, counts in ((READ_KIND, read_group, sample.read),
                                    (WRITE_KIND, write_group, sample.write)):
            if any(counts):
                key = _key(group, kind)
                tails[key] = self._tail(group, kind).plus(tail_of(sample.bounds, counts))
        in_flight = self.causes.moving >= begin - AFTER_SECONDS
        return replace(self, tails=tails,
                       moving=self.moving.plus(sample) if in_flight else self.moving)

    # ---- the sums

    @property
    def counted_ratio(self) -> Optional[float]:
        """Share (0 to 1) of the client operations whose latency was counted; None: there were
        none."""
        counted = sum(tail.ops for tail in self.tails.values())
        return min(1.0, counted / self.ops) if self.ops else None

    @property
    def slow_ops(self) -> Tuple[SlowOps, SlowOps]:
        """Over SLOW_MS, and over VERY_SLOW_MS."""
        slow, very_slow = (_together(self._explained(kind, column) for kind in KINDS)
                           for column in ('slow', 'very_slow'))
        return slow, very_slow

    def _tail(self, group: str, kind: str) -> Tail:
        return self.tails.get(_key(group, kind), Tail())

    def _explained(self, kind: str, column: str) -> Tuple[float, float, float]:
        """How many of the slow operations of a kind (READ_KIND or WRITE_KIND) movement explains,
        how many it does not, and how many are unknown, by the rules in the docstring of this
        module. `column`: "slow" or "very_slow" of Tail."""
        still, away, moving, unsure = (self._tail(group, kind)
                                       for group in (_STILL, _AWAY, _MOVING, _UNSURE))
        quiet = (self.quiet.read if kind == READ_KIND else self.quiet.write).tail
        quiet_share, away_share = _share(still.plus(quiet), column), _share(away, column)
        # Then a PG in flight elsewhere may be the cause; otherwise, movement explains no slow
        # operation in "away".
        waits_for_others = kind == WRITE_KIND or self.erasure
        # The share of operations to expect slow without movement, at least and at most.
        most_expected = max((share for share in (quiet_share, away_share) if share is not None),
                            default=None)
        least_expected = quiet_share if waits_for_others else most_expected
        away_others = _slow_up_to(away, column, quiet_share if waits_for_others else 1.0)
        unsure_others = _slow_up_to(unsure, column, quiet_share)
        moving_others = _slow_up_to(moving, column, least_expected)
        not_by_movement = _slow(still, column) + away_others + unsure_others + moving_others
        unknown = (_slow(away, column) - away_others) + (_slow(unsure, column) - unsure_others)
        remaining = _slow(moving, column) - moving_others
        if least_expected is None or most_expected is None:
            return 0.0, not_by_movement, unknown + remaining
        undecided = min(remaining, moving.ops * (most_expected - least_expected))
        return remaining - undecided, not_by_movement, unknown + undecided


def _key(group: str, kind: str) -> str:
    return '%s %s' % (group, kind)


def _slow(tail: Tail, column: str) -> float:
    return tail.slow if column == 'slow' else tail.very_slow


def _share(tail: Tail, column: str) -> Optional[float]:
    return _slow(tail, column) / tail.ops if tail.ops >= LEAST_SHARE_OPS else None


def _slow_up_to(tail: Tail, column: str, share: Optional[float]) -> float:
    """The slow operations up to this share of all operations; `share`: None: not known."""
    return 0.0 if share is None else min(_slow(tail, column), tail.ops * share)


def _together(parts: Iterable[Tuple[float, float, float]]) -> SlowOps:
    movement, others, unknown = (sum(column) for column in zip(*parts))
    total, explained = round(movement + others + unknown), round(movement)
    by_others = min(total - explained, round(others))
    return SlowOps(total, explained, by_others, total - explained - by_others)


def _op_count(clients: Clients) -> int:
    return sum(reads + writes for (_, reads), (_, writes) in [
        (row.read, row.write) for row in clients.rows if row.sane])


def _added(seconds: Mapping[str, float], key: str, further: float) -> Mapping[str, float]:
    return {**seconds, key: round(seconds.get(key, 0.0) + further, 3)} if further > 0.0 \
        else seconds


def _grouped(held: Mapping[str, Held]) -> Dict[str, Held]:
    return {AUTOSCALERS if key.startswith(AUTOSCALE) else key: row for key, row in held.items()}


def _is_given_up(key: str, holds: Iterable[Holds]) -> bool:
    return any(name == key or key == AUTOSCALERS and name.startswith(AUTOSCALE)
               for state in holds for name in state.given_up)
