# SPDX-License-Identifier: LGPL-2.1-or-later
"""The second part of a turn: requests of operators."""
import errno
from typing import Callable, Dict, List, Optional, Sequence, Union

from ..cluster.ports import View
from ..cluster.types import Document
from ..errors import Refused, as_refusal
from ..events import Event
from ..holds import to_json as held_to_json
from ..mitigation.types import Revert
from ..observation import Observation
from ..options import Options
from ..probe.plan import RunOrder
from ..rebalance.requests import Request, check, refuse_bad_options, refuse_bad_settings
from ..requests import (CLOSING, PROMISE_SECONDS, SAFE, PendingOrder, Promised, losses,
                        next_request, refuse)
from ..status import Published
from ..why.controller import LoopState
from .jobs import Jobs, LoopContext


class Answering:
    """1. `check`: a promise, in the thread of its command, before it is queued.
    2. `expire`, `revert`, `keep`: the promises that were journalled when their commands returned.
    3. `answer`: the orders whose commands wait.
    4. `shut_down_further`: the next step of a shutdown.
    """

    def __init__(self, context: LoopContext, jobs: Jobs, note: Callable[[Event], None]) -> None:
        self._options = context.options
        self._requests = context.requests
        self._jobs = jobs
        self._note = note

    def check(self, promise: Union[Request, Revert], published: Published) -> None:
        """Raise Refused if the last published state forbids the promise."""
        if isinstance(promise, Request):
            self._check_request(promise, published)
        else:
            self._jobs.mitigating.check(promise)

    def _check_request(self, request: Request, published: Published) -> None:
        seen, pools = published.rebalanced, published.watched.pool_ids or None
        # An abort must be possible while a finished campaign cannot end.
        if self._jobs.closing and request.verb != 'abort':
            raise Refused(errno.EBUSY, CLOSING)
        check(seen.campaign, request, seen.pins, seen.unhealthy, seen.unfit, seen.loose,
              seen.awaiting)
        refuse_bad_options(request, self._jobs.options(), pools)
        if request.verb == 'set' and seen.campaign is not None:
            refuse_bad_settings(seen.campaign, request, self._options(), pools)

    def expire(self, now: float) -> None:
        """Drop promises that no mgr has taken for too long."""
        stale = self._requests.stale(now)
        if not stale or not self._jobs.may_write():
            return
        remarks = []
        for each in stale:
            self._requests.take(each)
            self._requests.drop(each)
            why = 'no mgr has taken it within %d minutes (it may be given again)' % (
                PROMISE_SECONDS / 60)
            each.refused = Refused(errno.ETIMEDOUT, '%s has expired: %s' % (each.promise.text, why))
            each.done.set()
            self._note(Event('refused', each.promise.text + ' has expired', why))
            remarks.append(str(each.refused))
        self._requests.remarks = remarks

    def revert(self) -> None:
        """Mitigations that operators revert."""
        for each in self._requests.promised(Revert.document):
            self._requests.take(each)
            self._jobs.mitigating.revert(each.promise)

    def keep(self, requests: Sequence[Promised], seen: Observation) -> None:
        if requests and not self._jobs.may_write():
            return
        for each in requests:
            self._requests.take(each)
            try:
                each.refused = self._jobs.rebalance.apply_request(each.promise, seen, each.again)
                if each.refused is not None:
                    self._requests.drop(each)
            except Exception as error:
                each.refused = Refused(errno.EIO, 'campaign %s failed: %r (see the log of the mgr, '
                                       'and try again)' % (each.promise.verb, error))
                raise
            finally:
                each.done.set()

    def answer(self, seen: Observation, view: View, options: Options) -> List[PendingOrder]:
        """Answer the orders that do not wait for a job of the tool thread."""
        pending = self._requests.next()
        for each in pending:
            self._answer(each, seen, view, options)
        return [each for each in pending if each.answer is not None or each.refused is not None]

    def _answer(self, pending: PendingOrder, seen: Observation, view: View,
                options: Options) -> None:
        order = pending.order
        jobs: Dict[str, Callable[..., Optional[Document]]] = {
            'rebalance': self._change_crush, 'probe': self._probe, 'advise': self._advise,
            'shutdown': self._shut_down, 'why': self._explain}
        try:
            if order.job != 'why' and not self._jobs.may_write():
                raise Refused(errno.EAGAIN, self._jobs.journal.failure)
            with as_refusal(order.verb):
                pending.answer = jobs[order.job](pending, seen, view, options)
            if pending.answer is None:
                self._requests.keep(pending)
        except Refused as refused:
            pending.refused = refused.anew()
            # Previews are not logged: they change nothing, and users with read access can request
            # many.
            if not (pending.again and refused.not_fit or getattr(order, 'dry_run', False)):
                self._note(Event('refused', order.verb, str(refused)))

    def _change_crush(self, pending: PendingOrder, seen: Observation, view: View,
                      _: Options) -> Optional[Document]:
        return self._jobs.rebalance.carry_out(pending, seen, view)

    def _explain(self, pending: PendingOrder, seen: Observation, _: View,
                 options: Options) -> Optional[Document]:
        rebalance = self._jobs.rebalance
        return self._jobs.explaining.carry_out(pending.order, LoopState(
            seen, options, rebalance.campaign, rebalance.pins, rebalance.release_moves.moves,
            rebalance.shown_reasons(seen), self._jobs.watching.watched))

    def _probe(self, pending: PendingOrder, seen: Observation, view: View,
               options: Options) -> Optional[Document]:
        order, shutdown = pending.order, self._jobs.shutdown
        begins = isinstance(order, RunOrder) and not order.dry_run
        if begins:
            shutdown.refuse()
        answer = self._jobs.probing.carry_out(pending, seen, view, options,
                                              self._jobs.rebalance.active)
        if begins and answer is not None:
            shutdown.reopen()
        return answer

    def _advise(self, pending: PendingOrder, seen: Observation, view: View, _: Options) -> Document:
        return self._jobs.advising.carry_out(pending.order, seen, view,
                                             self._jobs.rebalance.open,
                                             self._jobs.untrimmed_epochs)

    def _shut_down(self, pending: PendingOrder, seen: Observation, _: View,
                   options: Options) -> Document:
        jobs = self._jobs
        if not jobs.shutdown.ordered:
            found = losses(jobs.rebalance.campaign, len(jobs.rebalance.pins),
                           jobs.probing.active_id, jobs.rebalance.awaiting.waits)
            found += jobs.rebalance.left_intermediate(seen.osdmap)
            if not pending.order.sure:
                refuse(found)
            self._note(Event('request', 'shutdown', '; '.join(found)))
            jobs.shutdown.begin(seen.now)
            self.shut_down_further(seen)
        return {**held_to_json(jobs.ledger(seen.osdmap)), 'safe': jobs.shutdown.done,
                'message': jobs.shutdown.remarks[0]}

    def shut_down_further(self, seen: Observation) -> None:
        """The next step of a shutdown, if one is in progress."""
        jobs = self._jobs
        if not jobs.closing:
            return
        jobs.probing.stop('perfguard is shutting down')
        if jobs.may_write():
            jobs.rebalance.withdraw_plans('perfguard is shutting down')
        request = next_request(jobs.rebalance.campaign)
        if request is not None:
            jobs.rebalance.apply(request, seen.now)
        elif not jobs.rebalance.open and not jobs.rebalance.awaiting and not jobs.probing.busy \
                and not jobs.mitigating.held and jobs.may_write():
            jobs.shutdown.finish()
            self._note(Event('shutdown', SAFE))
