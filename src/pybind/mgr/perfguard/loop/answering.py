# SPDX-License-Identifier: LGPL-2.1-or-later
"""The second part of a turn: requests of operators."""
import errno
from typing import Callable, List, Optional, Sequence, Union

from ..cluster.ports import View
from ..cluster.types import Document
from ..errors import Refused, as_refusal
from ..events import Event
from ..ledger import to_json as held_to_json
from ..mitigation.types import Revert
from ..observation import Observation
from ..options import Options
from ..probe.orders import RunOrder
from ..rebalance.replacing import REPLACE
from ..rebalance.requests import Request, check, refuse_bad_options, refuse_bad_settings
from ..request_queue import PROMISE_SECONDS, AnsweredOrder, PendingOrder, Promised
from ..shutdown import (CLOSING, SAFE, ShutdownOrder, dry_run_text, losses, next_request,
                        refuse_losses)
from ..status import Published
from ..why.controller import LoopState
from .jobs import Jobs, LoopContext


class Answering:
    """1. `check`: a promise, in the thread of its command, before it is queued.
    2. `expire`, `revert_mitigations`, `execute`: the promises that were stored when their commands
       returned.
    3. `answer`: the orders whose commands wait.
    4. `shut_down_further`: the next step of a shutdown.
    5. `wake`: at the end of the turn, the commands whose orders were answered.
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
        """Raise Refused if a request to the campaign cannot be met, by what the last turn has
        published."""
        # None: the pools are not known yet.
        rebalanced, pools = published.rebalanced, published.watched.pool_ids or None
        if request.verb == 'set':
            # The module's own options: the request may replace a setting of the campaign.
            refuse_bad_settings(rebalanced.campaign, request, self._options(), pools)
        # An abort must be possible while a finished campaign cannot end.
        if self._jobs.closing and request.verb != 'abort':
            raise Refused(errno.EBUSY, CLOSING)
        check(rebalanced.campaign, request, rebalanced.pins, rebalanced.unhealthy,
              unfit=rebalanced.unfit, loose=rebalanced.loose, awaiting=rebalanced.awaiting,
              left_rule=rebalanced.left_rule)
        refuse_bad_options(request, self._jobs.options(), pools)

    def expire(self, now: float) -> None:
        """Drop promises that no mgr has taken for too long, and those whose commands have reported
        that they were not stored in time."""
        stale = self._requests.stale(now, self._jobs.rebalance.campaign.phase_since)
        if not stale or not self._jobs.may_write():
            return
        texts = []
        for request in stale:
            self._requests.take(request)
            self._requests.drop(request)
            if request.refused is not None:
                continue
            why = 'no mgr has taken it within %d minutes (it may be given again)' % (
                PROMISE_SECONDS / 60)
            request.refused = Refused(errno.ETIMEDOUT,
                                      '%s has expired: %s' % (request.promise.text, why))
            request.done.set()
            self._note(Event('refused', request.promise.text + ' has expired', why))
            texts.append(str(request.refused))
        self._requests.remarks = texts

    def revert_mitigations(self) -> None:
        """Revert the mitigations whose reverts operators have requested."""
        for request in self._requests.promised(Revert.document):
            self._requests.take(request)
            self._jobs.mitigating.revert(request.promise)

    def execute(self, requests: Sequence[Promised], observation: Observation) -> None:
        """Apply the requests in their order, if this mgr owns the journal, and wake the commands
        that wait for them. An unexpected error refuses the request and fails the turn."""
        if requests and not self._jobs.may_write():
            return
        for request in requests:
            self._requests.take(request)
            try:
                request.refused = self._jobs.rebalance.apply_request(
                    request.promise, observation, refused_before=request.refused_before)
                if request.refused is not None:
                    self._requests.drop(request)
            except Exception as error:
                request.refused = Refused(errno.EIO,
                                          'campaign %s failed: %r (see the log of the mgr, '
                                          'and try again)' % (request.promise.verb, error))
                raise
            finally:
                request.done.set()

    def answer(self, observation: Observation, view: View, options: Options) -> List[PendingOrder]:
        """Answer the orders whose commands still wait, and return those that have an answer or a
        refusal now; the others wait for their jobs until a later turn."""
        pending = self._requests.take_orders()
        for pending_order in pending:
            with pending_order.claim:
                # Done: its command has given up meanwhile, and has said so.
                if not pending_order.done.is_set():
                    self._answer(pending_order, observation, view, options)
        return [order for order in pending
                if order.answer is not None or order.refused is not None]

    def wake(self, answered: Sequence[PendingOrder]) -> None:
        """Wake the commands of these orders. The turn has tried to journal the campaigns that they
        have begun: an answer says if the mons do not have them, as nothing is sent before, and an
        order is refused if another mgr is active now."""
        try:
            beginning = [pending for pending in answered
                         if pending.answer is not None and pending.answer.get('campaign')]
            # After a failure, the mons are not asked again: each question may take ten seconds.
            if beginning and (self._jobs.journal.failure or not self._jobs.journal_is_stored()):
                for pending in beginning:
                    self._doubt(pending)
        finally:
            for pending in answered:
                pending.done.set()

    def _doubt(self, pending: PendingOrder) -> None:
        """Note in an answer, or by a refusal, that the mons do not have what follows from it."""
        failure, answer = self._jobs.journal.failure, pending.answer
        if self._jobs.journal.fenced:
            pending.refused = Refused(errno.EAGAIN, failure)
        elif answer is not None:
            pending.answer = {**answer, 'warnings': [
                '%s; the order takes effect later, and may be lost if another mgr becomes active '
                'before' % failure, *answer.get('warnings', ())]}

    def _answer(self, pending: PendingOrder, observation: Observation, view: View,
                options: Options) -> None:
        """Carry out one order, or refuse it; defer it to the next turn if its result is still being
        computed."""
        order = pending.order
        try:
            # Explanations write nothing.
            if order.addressee != 'why' and not self._jobs.may_write():
                raise Refused(errno.EAGAIN, self._jobs.journal.failure)
            begins = _begins(order)
            if begins:
                self._jobs.shutdown.refuse_closing()
            with as_refusal(order.verb):
                pending.answer = self._carry_out(pending, observation, view, options)
            if pending.answer is None:
                self._requests.defer(pending)
            elif begins:
                self._jobs.shutdown.reopen()
        except Refused as refused:
            pending.refused = refused.anew()
            # Logged already if it was refused before for the same reason. Previews are not logged:
            # they change nothing, and users with read access can request many.
            if not (pending.refused_before and refused.not_fit or getattr(order, 'dry_run', False)):
                self._note(Event('refused', order.verb, str(refused)))

    def _carry_out(self, pending: PendingOrder, observation: Observation, view: View,
                   options: Options) -> Optional[Document]:
        """The answer of the order's addressee; None: not yet. Raises Refused."""
        jobs, order = self._jobs, pending.order
        if order.addressee == 'rebalance':
            return jobs.rebalance.carry_out(pending, observation, view)
        if order.addressee == 'probe':
            return jobs.probing.carry_out(pending, observation, view, options,
                                          moving=jobs.rebalance.active)
        if order.addressee == 'advise':
            return jobs.advising.carry_out(order, observation, view, jobs.rebalance.open,
                                           jobs.untrimmed_epochs)
        if order.addressee == 'why':
            rebalance = jobs.rebalance
            return jobs.explaining.carry_out(order, LoopState(
                observation, options, rebalance.campaign, rebalance.pins,
                rebalance.release_moves.moves, rebalance.shown_reasons(observation),
                jobs.watching.watched))
        assert order.addressee == 'shutdown'
        return self._shut_down(order, observation)

    def _shut_down(self, order: ShutdownOrder, observation: Observation) -> Document:
        """Begin to give everything back, or answer what is still borrowed. A dry run only lists
        what would be lost. Raises Refused if something would be, and the order does not accept
        that."""
        jobs = self._jobs
        if not jobs.shutdown.ordered:
            risks = losses(jobs.rebalance.campaign, len(jobs.rebalance.pins),
                           jobs.probing.active_id)
            # What ends with perfguard, and an intermediate CRUSH rule that would stay.
            risks += [*jobs.rebalance.withdrawn,
                      *jobs.rebalance.left_intermediate(observation.osdmap)]
            if order.dry_run:
                return {**held_to_json(jobs.ledger(observation.osdmap)), 'safe': False,
                        'dry_run': True, 'effects': risks, 'message': dry_run_text(risks)}
            if not order.sure:
                refuse_losses(risks)
            self._note(Event('request', 'shutdown', '; '.join(risks)))
            jobs.shutdown.begin(observation.now)
            self.shut_down_further(observation)
        return {**held_to_json(jobs.ledger(observation.osdmap)), 'safe': jobs.shutdown.done,
                'dry_run': order.dry_run, 'message': jobs.shutdown.remarks[0]}

    def shut_down_further(self, observation: Observation) -> None:
        """Take the next step of a shutdown that was ordered and is not complete: end the probe and
        the campaign, and withdraw what may begin one later (approved plans, which stay saved,
        replacements, the wait for new OSDs); note that it is complete once nothing is borrowed."""
        jobs = self._jobs
        if not jobs.closing:
            return
        jobs.probing.stop('perfguard is shutting down')
        if jobs.may_write():
            jobs.rebalance.withdraw_all('perfguard is shutting down')
        request = next_request(jobs.rebalance.campaign)
        if request is not None:
            jobs.rebalance.apply(request, observation.now)
        elif not jobs.rebalance.open and not jobs.rebalance.awaiting.unfinished \
                and not jobs.probing.busy and not jobs.mitigating.held and jobs.may_write():
            # Nothing is left to end or to give back.
            jobs.shutdown.finish(observation.now)
            self._note(Event('shutdown', SAFE))


def _begins(order: AnsweredOrder) -> bool:
    """Whether an order begins something, so that it is refused during a shutdown, and undoes one
    that is complete: a probe, or a replacement, which fills the new device by a campaign later.
    Campaigns check that when they begin, as one of a saved plan begins without a command."""
    return not getattr(order, 'dry_run', False) and (
        isinstance(order, RunOrder) or order.verb == REPLACE)
