# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of campaigns: one thin function each."""
import errno
import json
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ..cluster.types import Json
from ..errors import Refused
from ..rebalance import tables
from ..rebalance.following import followed
from ..rebalance.orders import Order, expansion, words
from ..rebalance.plans import APPROVE, CHANGES, LS, RM, SAVE, SHOW, PlanOrder
from ..rebalance.replacing import CANCEL, DRAINS, REPLACE
from ..rebalance.report import plan_json, summary
from ..rebalance.requests import Request
from ..rebalance.settings import assignment
from ..status import rebalance_json
from ..tables import accepted, pgs_are, seconds_text
from ..window import duration_seconds
from .shell import CommandResult, Handlers, line, patiently, reads, show, writes


def _expansion(what: Optional[List[str]], osds: Optional[str], hosts: Optional[str],
               **more: Any) -> Order:
    return expansion(words(*what or ()), words(osds), words(hosts), **more)


def _planned(change: str, what: List[str], weight: Optional[str], prior_version: Optional[int],
             inbuf: Optional[str], force: bool) -> Order:
    """The order of a plan."""
    _refuse_ignored(change, {
        '--weight': weight is not None and change != 'expand',
        '--prior-version': prior_version is not None and change != 'apply',
        '-i': bool(inbuf) and change != 'apply',
        ' '.join(what): bool(what) and change == 'apply'})
    if change == 'apply':
        return Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version, force=force)
    if change == 'expand':
        return _expansion(what, None, None, weight=weight, force=force)
    if change not in CHANGES:
        raise Refused(errno.EINVAL, 'cannot plan %.40r: must be one of %s'
                      % (change, ', '.join(CHANGES)))
    if change == 'rule' and len(what) != 2 or change == 'pg_num' and not 0 < len(what) < 3:
        raise Refused(errno.EINVAL, '%s requires a pool and %s' % (
            change, 'a CRUSH rule' if change == 'rule' else 'at most one number'))
    if change not in ('rule', 'pg_num') and not what:
        raise Refused(errno.EINVAL, '%s requires OSDs, hosts or racks' % change)
    # A pool's name may contain commas.
    names = tuple(what) if change in ('rule', 'pg_num') else words(*what)
    return Order(change, names, force=force)


def _refuse_ignored(change: str, arguments: Mapping[str, bool]) -> None:
    """`arguments`: whether each is given although the change does not use it."""
    for argument, ignored in arguments.items():
        if ignored:
            raise Refused(errno.EINVAL, '%.40s does not apply to %.40s' % (argument, change))


def _pool_and_number(pool: str, pg_num: Optional[int]) -> Tuple[str, ...]:
    return (pool,) if pg_num is None else (pool, str(pg_num))


def _map_of(inbuf: Optional[str]) -> bytes:
    if not inbuf:
        raise Refused(errno.EINVAL, 'no CRUSH map: give one with -i <file>')
    return _bytes_of(inbuf)


def _mappings_of(inbuf: Optional[str]) -> bytes:
    if not inbuf:
        raise Refused(errno.EINVAL, 'no mappings: give a file with -i <file>')
    return _bytes_of(inbuf)


def _bytes_of(inbuf: str) -> bytes:
    try:
        return inbuf.encode('utf-8', 'surrogateescape')
    except UnicodeEncodeError:
        # The JSON of a REST call can contain half of a surrogate pair.
        raise Refused(errno.EINVAL, 'the given text is not valid Unicode')


def _json_of(exported: Dict[str, Any], format: Optional[str]) -> str:
    """For other tools: only the list."""
    return json.dumps(exported['mappings'], indent=None if format == 'json' else 2)


class RebalanceCommands(Handlers):
    @reads('perfguard rebalance status', tables.rebalance_status)
    def rebalance_status(self) -> Json:
        """Show the active campaign, or the last one"""
        return rebalance_json(self._ready())

    @reads('perfguard rebalance watch', poll=True)
    def rebalance_watch(self, until: Optional[str] = None,
                        format: Optional[str] = None) -> CommandResult:
        """Follow the campaign in one line per --period until it has ended or is in phase <until>"""
        published = self._ready()
        ending = followed(published.rebalanced.status, until)
        if ending is None:
            return show(rebalance_json(published), format, tables.watched)
        return ending.retval, '', line(ending.text)

    @reads('perfguard rebalance plan', tables.plan)
    def rebalance_plan(self) -> Json:
        """Preview the movement: PGs, bytes, in and out of each OSD, estimated time"""
        return plan_json(self._ready().rebalanced.plan)

    @writes('perfguard rebalance plan save', tables.saved_plan)
    def rebalance_plan_save(self, plan: str, change: str, what: Optional[List[str]] = None,
                            weight: Optional[str] = None, prior_version: Optional[int] = None,
                            inbuf: Optional[str] = None, force: bool = False) -> Json:
        """Save a preview of expand, drain, undrain, replace, rule, pg_num or apply (-i), by name"""
        order = _planned(change, what or [], weight, prior_version, inbuf, force)
        return self._order(PlanOrder(SAVE, plan, order))

    @reads('perfguard rebalance plan ls', tables.saved_plans)
    def rebalance_plan_ls(self) -> Json:
        """List saved plans, and what has changed since they were saved"""
        return self.loop.ask(PlanOrder(LS))

    @reads('perfguard rebalance plan show', tables.saved_plan)
    def rebalance_plan_show(self, plan: str) -> Json:
        """Show a saved plan: PGs, bytes, fill and PGs of each OSD, time, borrowed settings"""
        return self.loop.ask(PlanOrder(SHOW, plan))

    @writes('perfguard rebalance plan rm', accepted)
    def rebalance_plan_rm(self, plan: str) -> Json:
        """Remove a saved plan; one that is queued is not carried out"""
        return self.loop.ask(PlanOrder(RM, plan))

    @writes('perfguard rebalance approve', tables.approved)
    def rebalance_approve(self, plan: str, token: str = '') -> Json:
        """Carry out a saved plan, now or after the active campaign, unless the cluster changed"""
        return self._order(PlanOrder(APPROVE, plan, token=token))

    @reads('perfguard rebalance ls', tables.history)
    def rebalance_ls(self) -> Json:
        """List campaigns, newest last"""
        known = self._ready().rebalanced
        campaigns = list(known.history)
        if known.campaign is not None and known.campaign.active:
            campaigns.append(summary(known.campaign))
        return {'campaigns': campaigns}

    @reads('perfguard rebalance show')
    def rebalance_show(self, campaign: int,
                       format: Optional[str] = None) -> CommandResult:
        """Show one campaign"""
        published = self._ready()
        status = rebalance_json(published)
        if status['id'] == campaign:
            return show(status, format, tables.rebalance_status)
        for entry in published.rebalanced.history:
            if entry['id'] == campaign:
                return show(entry, format, tables.campaign)
        raise Refused(errno.ENOENT,
                      'campaign %d does not exist (see "rebalance ls")' % campaign)

    @writes('perfguard rebalance prepare', accepted)
    def rebalance_prepare(self, force: bool = False) -> Json:
        """Begin a campaign: set norebalance, stop balancer and autoscaler. Then change CRUSH"""
        return self._ask(Request('prepare', force=force), 'preparing; change CRUSH as '
                         'soon as "rebalance status" shows PREPARED')

    @writes('perfguard rebalance pin', accepted)
    def rebalance_pin(self, force: bool = False) -> Json:
        """Pin every remapped PG where its data is"""
        return self._ask(Request('pin', force=force), 'pinning; run "rebalance start" as soon as '
                         '"rebalance status" shows PINNED')

    @writes('perfguard rebalance start', accepted)
    def rebalance_start(self) -> Json:
        """Release the pinned PGs in batches"""
        return self._ask(Request('start'), 'releasing; "rebalance status" shows the progress')

    @writes('perfguard rebalance pause', accepted)
    def rebalance_pause(self, duration: Optional[str] = None) -> Json:
        """Stop all movement, until resume or for a time such as 2h; what was copied is kept"""
        # Not --for: the ceph tool takes that for an abbreviation of --format.
        seconds = 0.0 if duration is None else duration_seconds(duration)
        message = 'pausing; "rebalance resume" continues'
        if seconds:
            message = 'pausing for %s; "rebalance resume" ends the pause early' % (
                seconds_text(seconds))
        return self._ask(Request('pause', until=time.time() + seconds if seconds else 0.0), message)

    @writes('perfguard rebalance set', accepted)
    def rebalance_set(self, setting: str) -> Json:
        """Set <option>=<value> for this campaign only; "<option>=" returns to the module option"""
        option, value = assignment(setting)
        return self._ask(Request('set', option=option, value=value),
                         '%s is %s for this campaign' % (option, value) if value else
                         'this campaign uses the module option %s again' % option)

    @writes('perfguard rebalance acknowledge', accepted)
    def rebalance_acknowledge(self, code: str) -> Json:
        """Ignore a stop condition until the campaign ends"""
        return self._ask(Request('acknowledge', code=code),
                         '%s no longer stops releases of this campaign' % code)

    @writes('perfguard rebalance resume', accepted)
    def rebalance_resume(self) -> Json:
        """Continue after a pause or an abort"""
        return self._ask(Request('resume'), 'resuming')

    @writes('perfguard rebalance abort', accepted)
    def rebalance_abort(self) -> Json:
        """Pin back what is moving and keep it there until resume, rollback or finish --keep"""
        return self._ask(Request('abort'), 'aborting; pinned PGs stay where they are')

    @writes('perfguard rebalance rollback', tables.order)
    def rebalance_rollback(self, dry_run: bool = False, force: bool = False) -> Json:
        """Restore the CRUSH weights or map from before the campaign without remapping a PG"""
        return self._order(Order('rollback', dry_run=dry_run, force=force))

    @writes('perfguard rebalance adopt', tables.adoption)
    def rebalance_adopt(self, dry_run: bool = False, force: bool = False) -> Json:
        """Take over an expansion that another tool has pinned with upmaps, and release its pins"""
        return self._order(Order('adopt', dry_run=dry_run, force=force))

    @writes('perfguard rebalance finish', accepted)
    def rebalance_finish(self, keep: bool = False, yes_i_really_mean_it: bool = False) -> Json:
        """End the campaign; with --keep, remaining pins become ordinary upmaps"""
        return self._ask(Request('finish', keep=keep, sure=yes_i_really_mean_it), 'finishing')

    @writes('perfguard expand', tables.order)
    def expand(self, what: Optional[List[str]] = None, osds: Optional[str] = None,
               hosts: Optional[str] = None, weight: Optional[str] = None, dry_run: bool = False,
               force: bool = False) -> Json:
        """Give new OSDs (CRUSH weight 0) their weight without remapping a PG, then fill them"""
        return self._order(_expansion(what, osds, hosts, weight=weight, force=force,
                                      dry_run=dry_run))

    @writes('perfguard drain', tables.order)
    def drain(self, what: List[str], dry_run: bool = False, force: bool = False) -> Json:
        """Empty OSDs, hosts or racks in batches; their CRUSH weights are remembered"""
        return self._order(Order('drain', words(*what), dry_run=dry_run, force=force))

    @reads('perfguard drain ls', tables.drains)
    def drain_ls(self) -> Json:
        """List drained OSDs and those whose devices are replaced, and the next step of each"""
        return self.loop.ask(Order(DRAINS, dry_run=True))

    @writes('perfguard replace')
    def replace(self, what: List[str], dry_run: bool = False, force: bool = False,
                cancel: bool = False, format: Optional[str] = None) -> CommandResult:
        """Empty OSDs or hosts, then fill their new devices under the same OSD IDs"""
        if cancel:
            _refuse_ignored('--cancel', {'--dry-run': dry_run})
            return show(self.loop.ask(Order(CANCEL, words(*what))), format, accepted)
        return show(self._order(Order(REPLACE, words(*what), dry_run=dry_run, force=force)),
                    format, tables.replacement)

    @writes('perfguard undrain', tables.order)
    def undrain(self, what: List[str], dry_run: bool = False, force: bool = False) -> Json:
        """Restore the CRUSH weights of drained OSDs, hosts or racks"""
        return self._order(Order('undrain', words(*what), dry_run=dry_run, force=force))

    @writes('perfguard rebalance apply', tables.order)
    def rebalance_apply(self, inbuf: Optional[str] = None, prior_version: Optional[int] = None,
                        dry_run: bool = False, force: bool = False) -> Json:
        """Set a new CRUSH map (-i) without remapping a PG, then release in batches"""
        return self._order(Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version,
                                 dry_run=dry_run, force=force))

    @writes('perfguard rebalance rule', tables.order)
    def rebalance_rule(self, pool: str, rule: str, dry_run: bool = False,
                       force: bool = False) -> Json:
        """Give a pool another CRUSH rule; PGs that cannot be pinned under it move first"""
        return self._order(Order('rule', (pool, rule), dry_run=dry_run, force=force))

    @writes('perfguard rebalance pg_num', tables.order)
    def rebalance_pg_num(self, pool: str, pg_num: Optional[int] = None, dry_run: bool = False,
                         force: bool = False) -> Json:
        """Split or merge PGs of a pool in batches, to <pg_num> or as the autoscaler recommends"""
        return self._order(Order('pg_num', _pool_and_number(pool, pg_num), dry_run=dry_run,
                                 force=force))

    @reads('perfguard rebalance export')
    def rebalance_export(self, format: Optional[str] = None) -> CommandResult:
        """Print all pg_upmap_items as JSON, as pgremapper does"""
        found = patiently(lambda again: self.loop.ask(Order('export', dry_run=True), again),
                          self.loop.report_seconds(), self.loop.wake)
        left_out = '%s left out: a pg_upmap entry has no from/to pairs' % pgs_are(found['vectors'])
        return 0, _json_of(found, format), left_out if found['vectors'] else ''

    @writes('perfguard rebalance import', tables.importing)
    def rebalance_import(self, inbuf: Optional[str] = None, dry_run: bool = False,
                         force: bool = False) -> Json:
        """Move PGs in batches to where exported mappings (-i) place them"""
        return self._order(Order('import', mappings=_mappings_of(inbuf), dry_run=dry_run,
                                 force=force))

    # Previews for users with read access: Ceph checks capabilities by the prefix of a command, so
    # it cannot distinguish --dry-run from the command without it.

    @reads('perfguard preview expand', tables.order)
    def preview_expand(self, what: Optional[List[str]] = None, osds: Optional[str] = None,
                       hosts: Optional[str] = None, weight: Optional[str] = None) -> Json:
        """Show what expand would do (needs read access only)"""
        return self._order(_expansion(what, osds, hosts, weight=weight, dry_run=True))

    @reads('perfguard preview adopt', tables.adoption)
    def preview_adopt(self) -> Json:
        """Show what rebalance adopt would do (needs read access only)"""
        return self._order(Order('adopt', dry_run=True))

    @reads('perfguard preview drain', tables.order)
    def preview_drain(self, what: List[str]) -> Json:
        """Show what drain would do (needs read access only)"""
        return self._order(Order('drain', words(*what), dry_run=True))

    @reads('perfguard preview replace', tables.replacement)
    def preview_replace(self, what: List[str]) -> Json:
        """Show what replace would do first (needs read access only)"""
        return self._order(Order(REPLACE, words(*what), dry_run=True))

    @reads('perfguard preview undrain', tables.order)
    def preview_undrain(self, what: List[str]) -> Json:
        """Show what undrain would do (needs read access only)"""
        return self._order(Order('undrain', words(*what), dry_run=True))

    @reads('perfguard preview apply', tables.order)
    def preview_apply(self, inbuf: Optional[str] = None,
                      prior_version: Optional[int] = None) -> Json:
        """Show what rebalance apply would do with a CRUSH map (-i) (needs read access only)"""
        return self._order(Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version,
                                 dry_run=True))

    @reads('perfguard preview rule', tables.order)
    def preview_rule(self, pool: str, rule: str) -> Json:
        """Show what rebalance rule would do (needs read access only)"""
        return self._order(Order('rule', (pool, rule), dry_run=True))

    @reads('perfguard preview import', tables.importing)
    def preview_import(self, inbuf: Optional[str] = None) -> Json:
        """Show what rebalance import would do with mappings (-i) (needs read access only)"""
        return self._order(Order('import', mappings=_mappings_of(inbuf), dry_run=True))

    @reads('perfguard preview pg_num', tables.order)
    def preview_pg_num(self, pool: str, pg_num: Optional[int] = None) -> Json:
        """Show what rebalance pg_num would do (needs read access only)"""
        return self._order(Order('pg_num', _pool_and_number(pool, pg_num), dry_run=True))

    @reads('perfguard preview rollback', tables.order)
    def preview_rollback(self) -> Json:
        """Show what rebalance rollback would do (needs read access only)"""
        return self._order(Order('rollback', dry_run=True))

    def _order(self, order: Union[Order, PlanOrder]) -> Json:
        return patiently(lambda again: self.loop.ask(order, again),
                         self.loop.report_seconds(), self.loop.wake)

    def _ask(self, request: Request, message: str) -> Json:
        patiently(lambda again: self.loop.requests.confirm(self.loop.request(request, again)),
                  self.loop.report_seconds(), self.loop.wake)
        return {'verb': request.verb, 'message': message}
