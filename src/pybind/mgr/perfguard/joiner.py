# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that change CRUSH: answered by the loop, while the command that gave one waits.

What an order will do, and whether it can be done, is not in what the loop publishes: it takes the
maps and Ceph's tools. The command's thread must not send commands, so the loop does it.
"""
import base64
import errno
import queue
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional

from .cluster.ports import Cluster
from .rebalance.change import Change
from .rebalance.joining import Join, plan_join
from .rebalance.moves import plan
from .rebalance.orders import DRAINED_WEIGHT, Inventory, Order, change_of, check_map
from .rebalance.requests import Refused
from .rebalance.turn import Observation
from .store import Store
from .upmap.future import NoFuture, Outlook, ToolFailed

Json = Dict[str, Any]

#: Seconds that a command waits for the loop's answer.
PATIENCE_SECONDS = 30.0
#: Documents: CRUSH weights of drained OSDs; the CRUSH map of the campaign under way.
DRAINED = 'drained'
CRUSH_MAP = 'crushmap'
#: Unpinnable PGs that an answer names.
NAMED = 50


@dataclass
class Consultation:
    """One order, and the loop's answer to it."""
    order: Order
    done: threading.Event = field(default_factory=threading.Event)
    answer: Optional[Json] = None
    refused: Optional[Refused] = None


class Desk:
    """Where commands wait and the loop answers."""

    def __init__(self) -> None:
        self._queue: 'queue.Queue[Consultation]' = queue.Queue()
        self._lock = threading.Lock()
        self._closed = False

    def put(self, order: Order) -> Consultation:
        consultation = Consultation(order)
        self._queue.put(consultation)
        if self._closed:
            self.close()
        return consultation

    def ask(self, order: Order, wake: Callable[[], None]) -> Json:
        """For the command's thread: waits for the loop's answer; raises Refused."""
        consultation = self.put(order)
        wake()
        consultation.done.wait(PATIENCE_SECONDS)
        with self._lock:
            if not consultation.done.is_set():
                consultation.refused = Refused(
                    errno.ETIMEDOUT, 'no answer within %d s, it may still be carried out: see '
                    '"perfguard rebalance status"' % PATIENCE_SECONDS)
                consultation.done.set()
        if consultation.refused is not None:
            raise consultation.refused
        assert consultation.answer is not None
        return consultation.answer

    def next(self) -> Optional[Consultation]:
        """For the loop: an order that somebody still waits for."""
        while True:
            try:
                consultation = self._queue.get_nowait()
            except queue.Empty:
                return None
            if not consultation.done.is_set():
                return consultation

    def close(self) -> None:
        """Let nobody wait for a loop that turns no more, now and from now on."""
        self._closed = True
        consultation = self.next()
        while consultation is not None:
            consultation.refused = Refused(errno.EAGAIN, 'perfguard is being stopped')
            consultation.done.set()
            consultation = self.next()


class Joiner:
    """What the loop does for orders and for campaigns with a change of their own."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    def outlook(self, seen: Observation, change: Change) -> Outlook:
        crush_map = None
        if change.crush_map:
            stored = self._store.get(CRUSH_MAP)
            if stored is None:
                return NoFuture('the CRUSH map is not in the store any more')
            crush_map = base64.b64decode(stored)
        return self._cluster.outlook(seen.osdmap, change.weights, crush_map)

    def prepare(self, order: Order, seen: Observation) -> 'Prepared':
        """What an order changes and what that will do; raises Refused."""
        inventory = Inventory(seen.osdmap, seen.crush, self._cluster.osd_space(),
                              self._drained(seen))
        if order.verb != 'apply':
            change = change_of(order, inventory)
            if change is None:
                return Prepared(None)
            return self._previewed(change, seen, None)
        try:
            crush_map = self._cluster.compiled_crush_map(order.crush_map or b'')
            rules = self._cluster.crush_rules(crush_map)
        except ToolFailed as failure:
            raise Refused(errno.EINVAL, 'not a CRUSH map: %s' % failure) from failure
        check_map(rules, inventory)
        return self._previewed(Change(crush_map=True), seen, crush_map)

    def _previewed(self, change: Change, seen: Observation,
                   crush_map: Optional[bytes]) -> 'Prepared':
        outlook = self._cluster.outlook(seen.osdmap, change.weights, crush_map)
        if isinstance(outlook, NoFuture):
            if crush_map is not None:
                raise Refused(errno.EIO, 'the CRUSH map cannot be tried out: %s' % outlook.reason)
            return Prepared(change, ordinary=outlook.reason)
        planned = plan_join(seen.osdmap, outlook, change.drained, seen.signals.pool_bytes)
        return Prepared(change, planned, crush_map=crush_map)

    def keep(self, prepared: 'Prepared', seen: Observation) -> None:
        """Journal what a campaign needs beside its own document."""
        if prepared.crush_map is not None:
            self._store.put(CRUSH_MAP, base64.b64encode(prepared.crush_map).decode())
        if prepared.change is not None and prepared.change.drained:
            weights = seen.crush.weights()
            drained = {**self._drained(seen),
                       **{osd: weights[osd] for osd in prepared.change.drained}}
            self._store.put(DRAINED, {str(osd): weight for osd, weight in drained.items()})

    def ended(self) -> None:
        """The campaign is over."""
        self._store.remove(CRUSH_MAP)

    def _drained(self, seen: Observation) -> Dict[int, float]:
        """CRUSH weights from before, of OSDs that were drained and still are."""
        weights = seen.crush.weights()
        stored = self._store.get(DRAINED) or {}
        return {int(osd): float(weight) for osd, weight in stored.items()
                if 0.0 < weights.get(int(osd), 0.0) <= DRAINED_WEIGHT}


@dataclass(frozen=True)
class Prepared:
    #: None: the operator makes the change.
    change: Optional[Change]
    planned: Join = Join({}, {}, {})
    #: Why the pins cannot come along with the change.
    ordinary: str = ''
    crush_map: Optional[bytes] = None

    def as_json(self, order: Order, campaign: Optional[int]) -> Json:
        preview = plan(self.planned.moves.values(), 1, 1, None)
        change = self.change
        return {
            'verb': order.verb, 'dry_run': order.dry_run, 'campaign': campaign,
            'weights': {} if change is None else {
                'osd.%d' % osd: weight for osd, weight in change.weights.items()},
            'waits_for_change': change is None, 'one_epoch': bool(change) and not self.ordinary,
            'pgs': len(self.planned.pins), 'vectors': self.planned.vectors,
            'shards': preview.shards, 'bytes': preview.bytes,
            'primaries_moving': preview.primaries_moving, 'reason': self.ordinary,
            'unpinnable': [{'pgid': pgid, 'reason': reason} for pgid, reason in
                           sorted(self.planned.unpinnable.items())[:NAMED]],
            'unpinnable_pgs': len(self.planned.unpinnable)}
