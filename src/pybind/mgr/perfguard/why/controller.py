# SPDX-License-Identifier: LGPL-2.1-or-later
"""Answers `perfguard why` from the state of the loop and the answers of a PG's OSDs.

The loop does not block on the OSDs: the order waits until they have answered, for at most
WHY_PATIENCE_SECONDS. Only one PG is queried at a time.
"""
import errno
import logging
import re
from dataclasses import dataclass, field, replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple, TypeVar

from ..cluster.ports import Commander
from ..cluster.types import NO_OSD, QUEUE, Json, PgCounts, Placement
from ..errors import Reason, Refused
from ..observation import Observation
from ..options import Options
from ..rebalance.campaign import Campaign
from ..rebalance.draft import Draft
from ..rebalance.moves import Move
from ..rebalance.types import PinRecord
from ..watch.controller import Watched
from ..watch.report import OsdRow
from . import pgs
from .causes import OsdCase, Why, as_json, campaign_causes, gate, osd_causes
from .pgs import PgAnswers, Queue, Reservations

log = logging.getLogger(__name__)

T = TypeVar('T')

#: How long an order waits for the answers of OSDs.
WHY_PATIENCE_SECONDS = 8.0
#: Maximum time that an order waits for the clients of a busy OSD: Pacific has one thread for the
#: commands of all modules. OSDs get the query with their next report and answer with the one after
#: it, within two report periods. They count operations by client for COUNTED_SECONDS, so that the
#: command finds them when it is repeated.
LOADS_SECONDS = 5.0
COUNTED_SECONDS, REPEAT_SECONDS = 120.0, 10.0
#: Codes of a load whose clients are not known yet.
UNKNOWN_LOADS = frozenset({'load'})
#: Options of the primary that slow down its backfills.
SCHEDULER_OPTIONS = (QUEUE, 'osd_mclock_profile')
QUERY = 'why query'
RESERVATIONS = 'why reservations'
_OPTION = 'why option %s'


@dataclass(frozen=True)
class LoopState:
    """The state of the loop in this turn."""
    observation: Observation
    options: Options
    campaign: Campaign
    pins: Mapping[str, PinRecord]
    moves: Mapping[str, Move]
    #: Of the campaign's last turn.
    reasons: Tuple[Reason, ...]
    watched: Watched


@dataclass
class _Inquiry:
    """The questions to the OSDs of one PG, and their answers so far."""
    #: The order that it answers.
    order: Why
    pgid: str
    #: -1: the PG has none, so no OSD is asked.
    primary: int
    #: The OSDs that are asked for their reservations.
    osds: FrozenSet[int]
    #: When to answer the order with what has arrived.
    until: float
    #: As in PgAnswers.
    state: FrozenSet[str] = frozenset()
    reservations: Dict[int, Reservations] = field(default_factory=dict)
    options: Dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return bool(self.state) and not self.osds - set(self.reservations) \
            and len(self.options) == len(SCHEDULER_OPTIONS)

    def lasts(self, now: float) -> bool:
        return now < self.until

    def answers(self) -> PgAnswers:
        silent = set(self.osds) - set(self.reservations)
        if not self.state:
            silent.add(self.primary)
        return PgAnswers(self.state, dict(self.reservations), dict(self.options),
                         tuple(sorted(silent)))


class Explaining:
    """Answers orders in the thread of the loop.

    1. The campaign: answered at once, from its last turn.
    2. An OSD: answered at once, unless the clients of a high load are unknown. Then the OSDs are
       asked for them, and the order waits.
    3. A PG: its OSDs are asked for its state, their reservations and options, and the order waits.
       Without their answers the causes name the OSDs that are silent.
    """

    def __init__(self, cluster: Commander) -> None:
        self._cluster = cluster
        self._inquiry: Optional[_Inquiry] = None
        #: Orders about busy OSDs whose clients are not known yet, and until when they wait.
        self._loads: List[Tuple[Why, float]] = []

    def carry_out(self, order: Why, state: LoopState) -> Optional[Json]:
        """The answer to an order; None: not yet, call again in the next turn. Raises Refused if the
        OSD or PG does not exist.

        Orders are compared by identity: two commands may ask for the same."""
        now = state.observation.now
        if order.osd is not None:
            case = _osd_case(order.osd, state)
            if case.row is not None and UNKNOWN_LOADS & {cause.code for cause in case.row.load}:
                if self._awaits_loads(order, now, state.options.campaign_interval):
                    return None
                case = replace(case, row=_with_repeat_hint(case.row))
            return as_json(order, osd_causes(case))
        if order.pgid is None:
            return as_json(order, campaign_causes(state.campaign, state.reasons))
        place = state.observation.placement(order.pgid)
        if place is None:
            raise Refused(errno.ENOENT, 'PG %s does not exist' % order.pgid)
        answers = self._answers(order, order.pgid, place, now)
        if answers is None:
            return None
        return as_json(order, pgs.causes(_pg_case(order.pgid, place, answers, state)))

    def _awaits_loads(self, order: Why, now: float, interval: float) -> bool:
        """Whether an order about a busy OSD waits for the load of its clients, which OSDs count
        from the first call for this order on: as long as less than LOADS_SECONDS will have passed
        at the next turn, in `interval` seconds."""
        until = next((until for waiting, until in self._loads if waiting is order), None)
        if until is None:
            until = now + LOADS_SECONDS
            self._loads = [(why, end) for why, end in self._loads if end > now] + [(order, until)]
            self._cluster.read_loads(COUNTED_SECONDS)
        return interval < until - now

    def _answers(self, order: Why, pgid: str, place: Placement, now: float) -> Optional[PgAnswers]:
        """What OSDs answer about the PG of an order; None: not yet. One PG at a time is queried, so
        that an order may also wait for another one."""
        inquiry = self._inquiry
        if inquiry is not None and inquiry.order is not order and inquiry.lasts(now):
            return None  # another order is answered first
        if inquiry is None or inquiry.order is not order:
            inquiry = self._inquiry = self._begin(order, pgid, place, now)
        self._collect(inquiry)
        if not inquiry.complete and inquiry.lasts(now):
            return None
        self._inquiry = None
        return inquiry.answers()

    def _begin(self, order: Why, pgid: str, place: Placement, now: float) -> _Inquiry:
        """Ask the primary of a PG for the state of that and for its own options, and the primary
        and the targets for their reservations."""
        primary = place.primary
        if primary < 0:
            return _Inquiry(order, pgid, -1, frozenset(), until=now)  # no OSD can be asked
        targets = {osd for osd in place.up if osd not in place.acting and osd != NO_OSD}
        osds = frozenset({primary, *targets})
        for topic in (QUERY, RESERVATIONS, *(_OPTION % name for name in SCHEDULER_OPTIONS)):
            self._cluster.answers(topic)  # drops late answers to earlier inquiries
        # By the id of the OSD: commands to a PG do not arrive on every release.
        self._cluster.ask(QUERY, [primary], {'prefix': 'query', 'pgid': pgid})
        self._cluster.ask(RESERVATIONS, osds, {'prefix': 'dump_recovery_reservations'})
        for name in SCHEDULER_OPTIONS:
            self._cluster.ask(_OPTION % name, [primary], {'prefix': 'config get', 'var': name})
        return _Inquiry(order, pgid, primary, osds, now + WHY_PATIENCE_SECONDS)

    def _collect(self, inquiry: _Inquiry) -> None:
        """Take in the answers that have arrived; those of other PGs and OSDs are left out."""
        for osd, answer in self._cluster.answers(QUERY).items():
            state = _read(osd, lambda: state_of(inquiry.pgid, answer))
            if state is not None and osd == inquiry.primary:
                inquiry.state = state
        for osd, answer in self._cluster.answers(RESERVATIONS).items():
            queues = _read(osd, lambda: reservations(answer))
            if queues is not None and osd in inquiry.osds:
                inquiry.reservations[osd] = queues
        for name in SCHEDULER_OPTIONS:
            for osd, answer in self._cluster.answers(_OPTION % name).items():
                if osd == inquiry.primary:
                    inquiry.options.update(_read(osd, lambda: option_of(answer, name)) or {})


def _read(osd: int, parse: Callable[[], T]) -> Optional[T]:
    """What `parse` reads in the answer of an OSD; None: it cannot read it, or has returned None."""
    try:
        return parse()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        log.warning('osd.%d: cannot read its answer: %r', osd, error)
        return None


def _with_repeat_hint(row: OsdRow) -> OsdRow:
    """The row, with "repeat the command" in the text of a load whose clients are not known yet."""
    return row._replace(load=tuple(
        cause._replace(text='%s; its clients are being counted: repeat the command in %.0f s'
                       % (cause.text, REPEAT_SECONDS)) if cause.code in UNKNOWN_LOADS else cause
        for cause in row.load))


def _osd_case(osd_id: int, state: LoopState) -> OsdCase:
    """All that is known of an OSD, to find out why it is slow. Raises Refused if it does not
    exist."""
    observation, watched = state.observation, state.watched
    osd = observation.osdmap.osds.get(osd_id)
    if osd is None:
        raise Refused(errno.ENOENT, 'osd.%d does not exist' % osd_id)
    return OsdCase(
        osd, next((row for row in watched.osds if row.osd == osd_id), None),
        next((suspect for suspect in watched.laggy.suspects if suspect.osd == osd_id), None),
        next((text for text, osds in watched.chronic_parts.items() if osd_id in osds), ''),
        observation.osd_counts.get(osd_id, PgCounts()), observation.signals, state.campaign)


def _pg_case(pgid: str, place: Placement, answers: PgAnswers, state: LoopState) -> pgs.PgCase:
    """All that is known of a PG, to find out what it waits for. `place`: where it is."""
    observation, campaign = state.observation, state.campaign
    pin, move = state.pins.get(pgid), state.moves.get(pgid)
    case = pgs.PgCase(
        pgid, place, remapped=pgid in observation.osdmap.pg_temp, osds=observation.osdmap.osds,
        flags=observation.osdmap.flags,
        own_flags=campaign.holds.flags | observation.settings.borrowed_elsewhere, campaign=campaign,
        reasons=state.reasons, pin=pin, move=move, leaves=observation.evacuation.get(pgid, ()),
        answers=answers)
    if pin is None or move is None:
        return case  # there is no release that something could hold back
    draft = Draft.of(campaign, state.pins, state.moves, observation, state.options)
    return replace(case, gate=gate(draft, move))


# ---- The answers of OSDs about a PG

#: Shard of an erasure coded PG, as in "2.1fs0".
_SHARD = re.compile(r's[0-9]+$')


def state_of(pgid: str, query: Json) -> Optional[FrozenSet[str]]:
    """The words of the state of a PG in the answer to "query"; None: it is another PG's.

    Raises KeyError or TypeError for any other document.
    """
    if plain_pgid(query['info']['pgid']) != pgid:
        return None
    return frozenset(str(query['state']).split('+'))


def reservations(dump: Json) -> Reservations:
    """From "dump_recovery_reservations"; raises KeyError or TypeError as above."""
    return Reservations(_queue(dump['local_reservations']), _queue(dump['remote_reservations']))


def _queue(raw: Json) -> Queue:
    """The local or the remote part of "dump_recovery_reservations"."""
    waiting = [plain_pgid(item['item']) for queue in raw['queues'] for item in queue['items']]
    return Queue(int(raw['max_allowed']),
                 tuple(plain_pgid(item['item']) for item in raw['in_progress']), tuple(waiting))


def plain_pgid(text: str) -> str:
    """The id of a PG without the number of a shard."""
    return _SHARD.sub('', text)


def option_of(answer: Json, name: str) -> Dict[str, str]:
    """From "config get"."""
    return {name: str(answer[name])} if name in answer else {}
