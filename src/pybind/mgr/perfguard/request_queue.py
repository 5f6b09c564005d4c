# SPDX-License-Identifier: LGPL-2.1-or-later
"""The requests of operators: one queue, and its journal.

Commands run in threads of their own and must not send commands to the cluster: the loop does that.
Some requests are promises: they are stored before their command returns, and survive a failover.
The others are orders: their commands wait for an answer, which depends on maps, tools of Ceph and
commands to OSDs that only the loop uses.
"""
import contextlib
import errno
import queue
import threading
from concurrent.futures import Future, InvalidStateError, TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any, Callable, List, Mapping, Optional, Protocol, Tuple

from .cluster.tool_thread import AnyJob
from .cluster.types import Json
from .codec import Malformed, decode, encode
from .errors import Refused
from .mitigation.types import Revert
from .rebalance.queued import WaitingOrder
from .rebalance.requests import Request
from .store import Store

#: Seconds that a command waits for the loop's answer.
REQUEST_PATIENCE_SECONDS = 30.0
#: Further seconds that a command waits if the loop carries out its order at that moment.
LAST_PATIENCE_SECONDS = 10.0
#: Seconds for which a command waits until the loop has taken its promise: other commands of this
#: module wait meanwhile.
CONFIRM_SECONDS = 2.0
#: Seconds that a command waits until the mons have stored its promise: without a quorum, a write
#: never returns.
STORE_SECONDS = 10.0
#: Seconds after which a promise that no mgr has taken is not executed anymore: the mgr hung, or the
#: module was disabled, and the operator does not expect it now; or its command has reported that
#: the mons did not store it in time, and they did later.
PROMISE_SECONDS = 600.0
#: Seconds for which an equal order may use a result that was too late for its command: the basis of
#: its checks, such as free space, changes.
RESULT_LATE_SECONDS = 300.0
#: What to do about an order that takes longer, if not only give it again: the basis of a rollback
#: changes with each release, so that a result that is too late does not serve the next command.
_AGAIN = {'rollback': 'try again; while PGs are released, "campaign abort" first, because each try '
          'begins anew otherwise'}
#: Types of promises, by the document of the store that has their notes.
PROMISES: Mapping[str, type] = {Request.document: Request, Revert.document: Revert}


class Promise(Protocol):
    """A request that is in the store before its command returns."""
    @property
    def document(self) -> str: ...

    @property
    def effects(self) -> Tuple[str, ...]:
        """The documents that may have changed once the request is executed."""

    @property
    def text(self) -> str:
        """The name of the request in events."""

    @property
    def only_stops(self) -> bool:
        """Whether the request only stops movement, and so does not expire before the campaign has
        entered another phase."""


class AnsweredOrder(Protocol):
    """An order whose command waits for the answer."""
    @property
    def verb(self) -> str: ...

    @property
    def addressee(self) -> str:
        """The part that answers the order: rebalance, probe, advise, why or shutdown."""


@dataclass
class Promised:
    """A promise in the queue."""
    #: The key of its note in the store, which ends with the time at which it was stored, in ns
    #: since the epoch; '': there is none yet.
    key: str
    promise: Any
    #: Whether the promise was refused a moment ago, which was logged then.
    refused_before: bool = field(default=False, compare=False)
    #: Set once the loop has executed or refused the promise, or its command has given up.
    done: threading.Event = field(default_factory=threading.Event, compare=False)
    #: The refusal; None: it is not refused.
    refused: Optional[Refused] = field(default=None, compare=False)

    def is_stale(self, now: float, phase_since: float) -> bool:
        """Whether the promise is not executed anymore: its command has given up, or it has expired.
        `phase_since`: since when the campaign is in its phase; both in seconds since the epoch. An
        mgr that changes the phase has taken all promises that were stored by then."""
        stored_at = int(self.key.rpartition('/')[2]) / 1e9
        return self.done.is_set() or now - stored_at > PROMISE_SECONDS and not (
            self.promise.only_stops and stored_at >= phase_since)


@dataclass
class PendingOrder(WaitingOrder):
    """One order whose command waits, and the loop's answer to it."""
    done: threading.Event = field(default_factory=threading.Event)
    answer: Optional[Json] = None
    refused: Optional[Refused] = None
    #: Held while the loop carries out the order, and while its command gives up: if the command has
    #: said that there is no answer, the order must not be carried out afterwards.
    claim: Any = field(default_factory=threading.Lock, compare=False)


class Requests:
    """The queue between the threads of commands and that of the loop.

    1. A command leaves a promise (`put`), or an order and waits (`ask`).
    2. The loop reads the promises at the beginning of a turn (`promised`), takes each of them
       (`take`), and removes its note when its effects are stored (`settle`), or at once if it is
       refused (`drop`).
    3. The loop takes the orders that wait (`take_orders`), and answers each, or defers it to the
       next turn if its effects are still being computed (`defer`).
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        #: Promises that were not taken yet; of each document, the oldest first.
        self._promised: List[Promised] = []
        #: Promises that were taken and still have a note in the store.
        self._taken: List[Promised] = []
        self._queue: 'queue.Queue[PendingOrder]' = queue.Queue()
        #: Held while promises are queued and their notes are stored.
        self._putting = threading.Lock()
        self._closed = False
        #: Orders that wait for their jobs. Only for the loop's thread, until `close`.
        self._deferred: List[PendingOrder] = []
        #: The last order whose command did not wait for its job, and when the loop found that, in
        #: seconds since the epoch; None: there is none.
        self._unawaited: Optional[PendingOrder] = None
        self._unawaited_at = 0.0
        self.confirm_seconds, self.store_seconds = CONFIRM_SECONDS, STORE_SECONDS
        #: Texts on promises that have expired, until the next one is executed.
        self.remarks: List[str] = []

    # ---- promises

    def load(self) -> List[str]:
        """Load the notes of promises from the store; returns texts on those that cannot be read,
        also because a newer version wrote them: these are dropped."""
        with self._putting:
            return self._load()

    def _load(self) -> List[str]:
        """As `load`, for a caller that holds `_putting`."""
        lost: List[str] = []
        # Commands may wait for those that were known before.
        promised_before = {promised.key: promised for promised in self._promised}
        self._promised = []
        # The effects of taken promises are not stored, so they are executed again.
        self._taken.clear()
        for document, kind in PROMISES.items():
            for key, raw in self._store.notes(document):
                try:
                    self._promised.append(promised_before.get(key)
                                          or Promised(key, decode(kind, raw)))
                except Malformed as error:
                    lost.append('the request %s (%s)' % (key, error))
                    self._store.drop_note(key)
        return lost

    def put(self, promise: Promise, refused_before: bool = False) -> Promised:
        """For the command's thread: queue a promise, with a note in the store: it must be executed
        even if this mgr fails before. Raises Refused if the mons do not store the note in time;
        this mgr does not execute the promise then, even if they store it later."""
        promised = Promised('', promise, refused_before)
        stored: 'Future[None]' = Future()
        # A mgr that becomes active again may load the notes at the same time.
        if not self._putting.acquire(timeout=self.store_seconds):
            raise _not_stored(promise)
        try:
            threading.Thread(target=self._store_and_queue, args=(promised, stored),
                             name='perfguard-request', daemon=True).start()
        except RuntimeError:  # the limit of threads
            self._putting.release()
            raise
        try:
            stored.result(self.store_seconds)
        except FutureTimeout:
            if stored.cancel():
                raise _not_stored(promise) from None
            stored.result()  # it was stored, or failed, at that moment
        return promised

    def _store_and_queue(self, promised: Promised, stored: 'Future[None]') -> None:
        """In a thread of its own, which a write without a quorum blocks for ever: store the note of
        a promise, queue the promise, and release `_putting`. `stored`: done after that, or
        cancelled by a command that has given up."""
        promise = promised.promise
        try:
            promised.key = self._store.note(promise.document, encode(promise), self._clock())
            is_awaited = stored.set_running_or_notify_cancel()
            if not is_awaited:
                # Its command has given up: `stale` has the note removed.
                promised.refused = _not_stored(promise)
                promised.done.set()
            self._promised.append(promised)
            if is_awaited:
                stored.set_result(None)
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):  # its command has given up
                stored.set_exception(error)
        finally:
            self._putting.release()

    def promised(self, document: str) -> List[Promised]:
        """Promises with a note in this document that the loop has not taken yet, oldest first."""
        return [promised for promised in list(self._promised)
                if promised.promise.document == document and not promised.done.is_set()]

    def confirm(self, promised: Promised) -> None:
        """For the command's thread: wait up to `confirm_seconds` for the loop, which checks the
        cluster again. Raises Refused if it refuses the promise after all. Returns if it executes
        it, or has not taken it yet and will execute it later."""
        promised.done.wait(self.confirm_seconds)
        if promised.refused is not None:
            raise promised.refused.anew()

    def stale(self, now: float, phase_since: float) -> List[Promised]:
        """Promises that have not been taken, and are not executed anymore. `phase_since`: as for
        `Promised.is_stale`."""
        return [promised for promised in list(self._promised)
                if promised.is_stale(now, phase_since)]

    def take(self, promised: Promised) -> None:
        """Take a promise: it is executed in this turn, or refused after all."""
        self._promised.remove(promised)
        self._taken.append(promised)
        self.remarks = []

    def drop(self, promised: Promised) -> None:
        """Remove the note of a promise that was refused: no later mgr may execute it, even if this
        turn fails."""
        self._taken.remove(promised)
        self._store.drop_note(promised.key)

    def settle(self, is_stored: Callable[[str], bool]) -> None:
        """Remove the notes of the promises that were taken and whose effects the mons have stored.

        `is_stored`: whether the mons have the last version of a document.
        """
        taken, self._taken = self._taken, []
        for promised in taken:
            if all(map(is_stored, promised.promise.effects)):
                self._store.drop_note(promised.key)
            else:
                self._taken.append(promised)

    # ---- orders whose commands wait

    def submit(self, order: AnsweredOrder, refused_before: bool = False) -> PendingOrder:
        """For the command's thread: queue an order."""
        pending = PendingOrder(order, refused_before)
        self._queue.put(pending)
        if self._closed:
            self.close()
        return pending

    def ask(self, order: AnsweredOrder, wake: Callable[[], None],
            refused_before: bool = False) -> Json:
        """For the command's thread: give an order to the loop, and wait for its answer. Raises
        Refused, also if there is none in time.

        `refused_before`: the order was refused a moment ago because the cluster was not fit.
        """
        pending = self.submit(order, refused_before)
        wake()
        if not pending.done.wait(REQUEST_PATIENCE_SECONDS):
            _give_up(pending)
        if pending.refused is not None:
            raise pending.refused.anew()
        assert pending.answer is not None
        return pending.answer

    def take_orders(self) -> List[PendingOrder]:
        """For the loop, and after its last turn for any thread (`submit`): take all orders whose
        commands still wait, deferred ones first.

        Of the orders whose commands have given up, the jobs of all but the last are cancelled: the
        last order may be given again, and then finds its job (`job_left_behind`).
        """
        pending, self._deferred = self._deferred, []
        with contextlib.suppress(queue.Empty):
            while True:
                pending.append(self._queue.get_nowait())
        for pending_order in pending:
            if pending_order.done.is_set() and pending_order.job is not None:
                if self._unawaited is not None and self._unawaited.job is not None:
                    self._unawaited.job.cancelled = True
                self._unawaited, self._unawaited_at = pending_order, self._clock()
        return [order for order in pending if not order.done.is_set()]

    def defer(self, pending: PendingOrder) -> None:
        """For the loop: put an order back, to be answered in a later turn."""
        self._deferred.append(pending)

    def job_left_behind(self, order: object, crush_version: int,
                        phase_since: float) -> Optional[AnyJob]:
        """For the loop: the job of the last order whose command has given up, for an equal order on
        the same basis (CRUSH version, phase of the campaign); it may still run. None: that order is
        another one, or too old. A job is returned once."""
        given_up = self._unawaited
        if given_up is None or self._clock() - self._unawaited_at > RESULT_LATE_SECONDS \
                or (given_up.order, given_up.crush_version, given_up.phase_since) \
                != (order, crush_version, phase_since):
            return None
        self._unawaited = None
        return given_up.job

    @property
    def waiting(self) -> bool:
        """Whether an order waits for a later turn."""
        return bool(self._deferred)

    def waits_for(self, verb: str) -> bool:
        """For the loop: whether an order of this verb that changes something waits for its job."""
        return any(pending_order.order.verb == verb and not pending_order.order.dry_run
                   for pending_order in self._deferred)

    def close(self) -> None:
        """Fail all pending and later orders at shutdown."""
        self._closed = True
        self.refuse('perfguard is shutting down')

    def refuse(self, why: str) -> None:
        """Refuse all pending orders such that their commands may try again."""
        for pending in self.take_orders():
            pending.refused = Refused(errno.EAGAIN, why)
            pending.done.set()


def _not_stored(promise: Promise) -> Refused:
    return Refused(errno.ETIMEDOUT, '%s: the mons have not stored the request within %d s, so this '
                   'mgr does not carry it out: try again when they have a quorum ("ceph '
                   'quorum_status"). If they store it later, and another mgr becomes active%s, '
                   'that one carries it out'
                   % (promise.text, STORE_SECONDS, '' if promise.only_stops else
                      ' within %d minutes' % (PROMISE_SECONDS / 60)))


def _give_up(pending: PendingOrder) -> None:
    """For the command's thread, which has waited too long: refuse the order, unless the loop has
    answered it at that moment. Raises Refused if the loop is still carrying it out."""
    if not pending.claim.acquire(timeout=LAST_PATIENCE_SECONDS):
        raise Refused(errno.ETIMEDOUT, 'no answer within %d s, but the order is being carried out: '
                      'see "perfguard status"' % REQUEST_PATIENCE_SECONDS)
    try:
        # An answered order is executed, even if the rest of the turn takes long.
        if pending.answer is None and pending.refused is None:
            pending.refused = Refused(
                errno.ETIMEDOUT, 'no answer within %d s: see "perfguard status", and %s' % (
                    REQUEST_PATIENCE_SECONDS, _AGAIN.get(pending.order.verb, 'try again')))
            pending.done.set()
    finally:
        pending.claim.release()
