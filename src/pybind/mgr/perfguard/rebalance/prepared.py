# SPDX-License-Identifier: LGPL-2.1-or-later
"""What an order will do, as it was worked out: shown to the operator, refused, or carried out."""
import errno
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ..cluster.ports import Future
from ..cluster.types import Space, pool_of
from ..errors import Code, Refused
from ..observation import Observation
from ..options import Options
from ..tables import pgs
from ..watch.stop_conditions import Touched
from .goals import Balanced, preview_balance
from .join_plan import Join
from .joining import MAX_BURST_PINS
from .moves import Move, path_osds, plan
from .orders import Order
from .preview import Effects
from .types import Change

Json = Dict[str, Any]

#: Unpinnable PGs that an answer names.
NAMED = 50


@dataclass(frozen=True)
class Prepared:
    #: None: the operator makes the change.
    change: Optional[Change]
    planned: Join = Join({}, {}, {})
    #: Why the pins cannot come along with the change.
    ordinary: str = ''
    crush_map: Optional[bytes] = None
    #: OSDs of CRUSH weight 0 that `expand` without names does not take, with the reason.
    left_out: Tuple[Tuple[int, str], ...] = ()
    #: Where CRUSH will place the PGs; what is moved with target=balanced. None: not known, or the
    #: end state is another.
    outlook: Optional[Future] = None
    balanced: Optional[Balanced] = None
    #: As rule_json: another rule for a pool.
    rule: Optional[Json] = None
    #: As pg_num_json: another pg_num for a pool.
    pg_num: Optional[Json] = None
    #: As pgs_made, for that.
    pgs_made: Mapping[int, int] = field(default_factory=dict)
    #: What that does to OSDs; None: not known.
    effects: Optional[Effects] = None
    #: What it was worked out for; None: a rollback.
    order: Optional[Order] = None

    @property
    def moves(self) -> Sequence[Move]:
        """All that the campaign will move."""
        return tuple(self.planned.moves.values()) if self.balanced is None else self.balanced.moves

    def balanced_as(self, options: Options, seen: Observation,
                    space: Mapping[int, Space]) -> 'Prepared':
        """With what target=balanced, if that is the target, moves beside CRUSH."""
        if self.outlook is None or options.target != 'balanced':
            return self
        return replace(self, balanced=preview_balance(
            self.planned, self.outlook, seen, options.max_extra_movement, space))

    @property
    def moves_first(self) -> bool:
        """The PGs move before the pool is changed."""
        return bool((self.rule or self.pg_num or {}).get('moves_first'))

    @property
    def touched(self) -> Optional[Touched]:
        """What the change concerns; None: that is not known."""
        if self.change is None or self.ordinary:
            return None
        moves = self.planned.moves.values()
        osds = {osd for move in moves for osd in path_osds(move)}
        return Touched(osds | set(self.change.weights), {
            pool_of(pgid) for pgid in (*self.planned.pins, *self.planned.unpinnable)})

    @property
    def bursts(self) -> int:
        """Into how many bursts the change and its pins are divided, about."""
        pins = len(self.planned.pins)
        if self.moves_first:
            pins = (self.rule or {}).get('pins', 0)
        return max(1, -(-pins // MAX_BURST_PINS))

    def refuse_unfit(self, order: Order, seen: Observation, options: Options) -> None:
        """Raise Refused for a change that would do harm, unless it is forced."""
        self.refuse_unpinnable(order, options)
        self.refuse_storm(order)
        if self.effects is not None and not order.force:
            self.effects.refuse_crowded()
            self.effects.refuse_overfull(seen.osdmap.nearfull_ratio)

    @property
    def accepted(self) -> Tuple[str, ...]:
        """Stop conditions that --force has overridden."""
        crowded = self.effects is not None and self.effects.crowded
        return (Code.PG_LIMIT,) if crowded else ()

    def refuse_storm(self, order: Order) -> None:
        """Raise Refused for a change that cannot be divided, with too many pins."""
        whole = self.crush_map is not None or self.rule is not None
        if whole and self.bursts > 1 and not order.force:
            pins = self.rule['pins'] if self.rule and self.rule['pins'] else len(self.planned.pins)
            raise Refused(errno.EFBIG, 'the change requires %d pins, but the mons accept at most '
                          '%d in the same epoch: apply the change in several steps, or override '
                          'with --force, after which the PGs that are pinned an '
                          'epoch later peer twice'
                          % (pins, MAX_BURST_PINS))

    def refuse_unpinnable(self, order: Order, options: Options) -> None:
        """Raise Refused for a change most of which would move at once, outside the caps."""
        number, pins = len(self.planned.unpinnable), len(self.planned.pins)
        most = max(options.max_backfills_target, options.max_unpinnable_ratio * (number + pins))
        if number > most and not order.force:
            pgid, reason = min(self.planned.unpinnable.items())
            raise Refused(errno.EPERM, '%s of %d that the change remaps cannot be pinned (limit %g '
                          '%%, max_unpinnable_ratio), such as PG %s: %s (with --force they stay in '
                          'place until "rebalance start")' % (
                              pgs(number), number + pins, 100 * options.max_unpinnable_ratio,
                              pgid, reason))

    def as_json(self, order: Order, campaign: Optional[int]) -> Json:
        preview = plan(self.planned.moves.values(), 1, 1, None)
        change = self.change
        return {
            'verb': order.verb, 'dry_run': order.dry_run, 'campaign': campaign,
            'weights': {} if change is None else {
                'osd.%d' % osd: weight for osd, weight in change.weights.items()},
            'rule': self.rule, 'pg_num': self.pg_num, 'waits_for_change': change is None,
            'one_epoch': bool(change) and not self.ordinary,
            'bursts': self.bursts,
            'pgs': len(self.planned.pins), 'vectors': self.planned.vectors,
            'pins_removed': len(self.planned.removed),
            'left_out': [{'osd': osd, 'reason': why} for osd, why in self.left_out[:NAMED]],
            'shards': preview.shards, 'bytes': preview.bytes,
            'primaries_moving': preview.primaries_moving, 'reason': self.ordinary,
            'balanced': self.balanced and self.balanced.as_json(),
            **(self.effects.as_json() if self.effects is not None else {}),
            'unpinnable': [{'pgid': pgid, 'reason': reason} for pgid, reason in
                           sorted(self.planned.unpinnable.items())[:NAMED]],
            'unpinnable_pgs': len(self.planned.unpinnable)}
