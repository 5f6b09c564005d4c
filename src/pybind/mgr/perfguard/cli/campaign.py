# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of campaigns and of saved plans: one thin function each."""
import errno
import json
from typing import List, Optional

from ..cluster.types import Json
from ..errors import Refused, code_of
from ..rebalance import tables
from ..rebalance.orders import Order
from ..rebalance.plans import APPROVE, LS, RM, SAVE, SHOW, PlanOrder
from ..rebalance.report import summary
from ..rebalance.requests import Request
from ..rebalance.risks import accepted as codes_of
from ..rebalance.settings import assignment
from ..rebalance.tables import followed
from ..status import rebalance_json
from ..tables import accepted
from ..text import pgs_are, seconds_text
from ..watch.stop_conditions import ABSENT_TEXT, LASTING
from ..window import duration_seconds
from .changes import PLANNABLE, order_of
from .shell import (CommandResult, Handlers, line, patiently, reads, refuse_empty, show, spelled,
                    writes)


class CampaignCommands(Handlers):
    @reads('perfguard campaign')
    @reads('perfguard campaign status', tables.rebalance_status)
    def campaign_status(self) -> Json:
        """Show the active campaign, or the last one"""
        return rebalance_json(self._ready())

    @reads('perfguard campaign watch', poll=True)
    def campaign_watch(self, until: Optional[str] = None,
                       format: Optional[str] = None) -> CommandResult:
        """Follow the campaign in one line per --period until it has ended or is in phase <until>"""
        published = self._ready()
        # The ceph tool repeats the command until it fails.
        ending = followed(published.rebalanced.status, until)
        if ending is None:
            return show(rebalance_json(published), format, tables.watched)
        return ending.retval, '', line(ending.text)

    @reads('perfguard campaign ls', tables.history)
    def campaign_ls(self) -> Json:
        """List campaigns, newest last"""
        rebalanced = self._ready().rebalanced
        campaigns = list(rebalanced.history)
        if rebalanced.campaign.active:
            campaigns.append(summary(rebalanced.campaign))
        # "campaign show" has the bill: what moved, what it cost clients, and what limited it.
        return {'campaigns': [{key: value for key, value in row.items() if key != 'bill'}
                              for row in campaigns]}

    @reads('perfguard campaign show')
    def campaign_show(self, campaign: int, format: Optional[str] = None) -> CommandResult:
        """Show one campaign"""
        published = self._ready()
        status = rebalance_json(published)
        if status['id'] == campaign:
            return show(status, format, tables.shown)
        for entry in published.rebalanced.history:
            if entry['id'] == campaign:
                return show(entry, format, tables.campaign)
        raise Refused(errno.ENOENT,
                      'campaign %d does not exist (see "campaign ls")' % campaign)

    @writes('perfguard campaign prepare', accepted)
    def campaign_prepare(self, dry_run: bool = False, accept: Optional[List[str]] = None) -> Json:
        """Begin a campaign: set norebalance, stop balancer and autoscaler. Then change CRUSH"""
        return self._ask(Request('prepare', accept=codes_of(accept or ())), 'preparing; change '
                         'CRUSH as soon as "campaign status" shows PREPARED', dry_run)

    @writes('perfguard campaign pin', accepted)
    def campaign_pin(self, dry_run: bool = False, accept: Optional[List[str]] = None) -> Json:
        """Pin every remapped PG where its data is"""
        return self._ask(Request('pin', accept=codes_of(accept or ())), 'pinning; run "campaign '
                         'start" as soon as "campaign status" shows PINNED', dry_run)

    @writes('perfguard campaign start', accepted)
    def campaign_start(self, dry_run: bool = False) -> Json:
        """Release the pinned PGs in batches"""
        return self._ask(Request('start'), 'releasing; "campaign status" shows the progress',
                         dry_run)

    @writes('perfguard campaign pause', accepted)
    def campaign_pause(self, duration: Optional[str] = None, dry_run: bool = False) -> Json:
        """Stop all movement, until resume or for a time such as 2h; what was copied is kept"""
        # Not --for: the ceph tool takes that for an abbreviation of --format.
        seconds = 0.0 if duration is None else duration_seconds(duration)
        message = 'pausing; "campaign resume" continues'
        if seconds:
            message = 'pausing for %s; "campaign resume" ends the pause early' % (
                seconds_text(seconds))
        return self._ask(Request('pause', seconds=seconds), message, dry_run)

    @writes('perfguard campaign set', accepted)
    def campaign_set(self, setting: str, dry_run: bool = False) -> Json:
        """Set <option>=<value> for this campaign only; "<option>=" returns to the module option"""
        name, equals, value = setting.partition('=')
        option, value = assignment(spelled(name) + equals + value)
        return self._ask(Request('set', option=option, value=value),
                         '%s is %s for this campaign' % (option, value) if value else
                         'this campaign uses the module option %s again' % option, dry_run)

    @writes('perfguard campaign accept', accepted)
    def campaign_accept(self, code: str, dry_run: bool = False) -> Json:
        """Ignore a stop condition until it is over"""
        code = code_of(code)
        return self._ask(Request('accept', code=code), '%s stops no releases %s' % (
            code, 'of this campaign any longer' if code in LASTING
            else 'until it has been ' + ABSENT_TEXT), dry_run)

    @writes('perfguard campaign resume', accepted)
    def campaign_resume(self, dry_run: bool = False) -> Json:
        """Continue after a pause or an abort"""
        return self._ask(Request('resume'), 'resuming', dry_run)

    @writes('perfguard campaign abort', accepted)
    def campaign_abort(self, dry_run: bool = False) -> Json:
        """Pin back what is moving and keep it there until resume, rollback or finish --keep"""
        rebalanced = self._ready().rebalanced
        if rebalanced.awaiting and not rebalanced.campaign.active:
            return self._ask(Request('abort'), 'no OSDs are awaited any longer', dry_run)
        return self._ask(Request('abort'), 'aborting; pinned PGs stay where they are' + (
            '; new OSDs are still awaited: once the campaign is aborted, "campaign abort" ends that'
            if rebalanced.awaiting else ''), dry_run)

    @writes('perfguard campaign rollback', tables.order)
    def campaign_rollback(self, dry_run: bool = False, accept: Optional[List[str]] = None) -> Json:
        """Restore the CRUSH weights or map from before the campaign without remapping a PG"""
        return self._order(order_of('rollback', dict(accept=accept, dry_run=dry_run)))

    @writes('perfguard campaign finish', accepted)
    def campaign_finish(self, keep: bool = False, dry_run: bool = False,
                        yes_i_really_mean_it: bool = False) -> Json:
        """End the campaign; with --keep, remaining pins become ordinary upmaps"""
        return self._ask(Request('finish', keep=keep, sure=yes_i_really_mean_it), 'finishing',
                         dry_run)

    @reads('perfguard campaign export')
    def campaign_export(self, format: Optional[str] = None) -> CommandResult:
        """Print all pg_upmap_items as JSON, as pgremapper does"""
        document = self._order(Order('export', dry_run=True))
        left_out_pgs = document['vectors']
        left_out = '%s left out: a pg_upmap entry has no from/to pairs' % pgs_are(left_out_pgs)
        # Other tools expect only the list.
        mappings = json.dumps(document['mappings'], indent=None if format == 'json' else 2)
        return 0, mappings, left_out if left_out_pgs else ''

    @writes('perfguard plan save', tables.saved_plan)
    def plan_save(self, plan: str, change: str, what: Optional[List[str]] = None,
                  weight: Optional[str] = None, prior_version: Optional[int] = None,
                  by: Optional[str] = None, deviation: Optional[str] = None,
                  max_movement: Optional[str] = None, upmaps_max: Optional[int] = None,
                  drain: Optional[List[str]] = None,
                  inbuf: Optional[str] = None, accept: Optional[List[str]] = None) -> Json:
        """Save a preview of expand, drain, undrain, replace, rule, pg_num, balance or crushmap"""
        if spelled(change) not in PLANNABLE:
            raise Refused(errno.EINVAL, 'cannot plan %.40r: must be one of %s'
                          % (change, ', '.join(PLANNABLE)))
        order = order_of(change, dict(
            what=what, weight=weight, prior_version=prior_version, inbuf=inbuf, accept=accept,
            by=by, deviation=deviation, max_movement=max_movement, upmaps_max=upmaps_max,
            drain=drain))
        return self._order(PlanOrder(SAVE, plan, order))

    @reads('perfguard plan ls', tables.saved_plans)
    def plan_ls(self) -> Json:
        """List saved plans, and what has changed since they were saved"""
        return self.loop.ask(PlanOrder(LS))

    @reads('perfguard plan show', tables.saved_plan)
    def plan_show(self, plan: str) -> Json:
        """Show a saved plan: PGs, bytes, fill and PGs of each OSD, time, borrowed settings"""
        return self.loop.ask(PlanOrder(SHOW, plan))

    @writes('perfguard plan rm', accepted)
    def plan_rm(self, plan: str) -> Json:
        """Remove a saved plan; one that is queued is not carried out"""
        return self.loop.ask(PlanOrder(RM, plan))

    @writes('perfguard plan approve', tables.approved)
    def plan_approve(self, plan: str, token: Optional[str] = None, dry_run: bool = False,
                     accept: Optional[List[str]] = None) -> Json:
        """Carry out a saved plan, now or after the active campaign, unless the cluster changed"""
        refuse_empty(token=token)
        return self._order(PlanOrder(APPROVE, plan, token=token or '', previews=dry_run,
                                     accept=codes_of(accept or ())))

    def _ask(self, request: Request, message: str, dry_run: bool) -> Json:
        """Store a request for the loop, and wait for a moment whether the loop refuses it; with
        `dry_run`, wait for its effects. Returns the answer of the command."""
        def give(refused_before: bool) -> Json:
            """`refused_before`: a moment ago, as the cluster was not fit: another refusal is not
            logged."""
            if dry_run:
                effects = self.loop.dry_run(request, refused_before)
                return {'verb': request.verb, 'dry_run': True, 'effects': effects,
                        'message': '\n'.join(effects)}
            self.loop.requests.confirm(self.loop.request(request, refused_before))
            return {'verb': request.verb, 'dry_run': False, 'message': message}

        return patiently(give, self.loop.report_seconds(), self.loop.wake)
