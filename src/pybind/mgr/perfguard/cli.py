# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands: one thin function each."""
import errno
import functools
import inspect
import json
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import tables
from .advise import report as advice
from .advise.types import AdviseOrder
from .compat import read_command, write_command
from .errors import PerfguardError, Refused
from .holds import to_json as held_to_json
from .loop import Loop
from .mitigation.report import listing_json
from .mitigation.types import Revert
from .probe import tables as probe_tables
from .probe.plan import ImportedRun, Named, NewSchedule, RunId, RunOrder
from .probe.tables import runs
from .rebalance.orders import Order
from .rebalance.plans import APPROVE, CHANGES, LS, RM, SAVE, SHOW, PlanOrder
from .rebalance.replacing import CANCEL, DRAINS, REPLACE
from .rebalance.report import followed, plan_json, summary
from .rebalance.requests import Request, assignment
from .requests import Shutdown
from .status import Published, osds_json, rebalance_json
from .watch.report import OsdRow, exported_json, history_json, laggy_json, pool_json
from .why.answer import parsed
from .window import duration_seconds

CommandResult = Tuple[int, str, str]

#: A command waits no longer for the cluster to be reported fit.
MOST_PATIENCE_SECONDS = 5.0
#: Characters of a refusal.
MOST_ERROR = 1000
#: Points of one export: formatting them takes the mgr's interpreter, some 5 us each.
MOST_EXPORTED = 50000


def command(handler: Callable[..., CommandResult]) -> Callable[..., CommandResult]:
    """Check --format and turn refusals into a retval and one line."""

    @functools.wraps(handler)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> CommandResult:
        format_ = kwargs.get('format')
        if format_ not in (None, *tables.FORMATS):
            return (-errno.EINVAL, '', 'unknown format %.40r: must be '
                    'plain, json or json-pretty' % format_)
        try:
            return handler(self, *args, **kwargs)
        except PerfguardError as error:
            return -error.errno, '', _line(str(error))

    # Ceph reads the arguments from the signature and, in older releases, does not unwrap.
    wrapper.__signature__ = inspect.signature(handler)  # type: ignore[attr-defined]
    return wrapper


def _line(text: str) -> str:
    """A refusal as one printable line: it quotes arguments, whatever is in them."""
    line = ''.join(char if char.isprintable() else char.encode('unicode_escape').decode()
                   for char in text[:MOST_ERROR])
    return line if max(len(line), len(text)) <= MOST_ERROR else line[:MOST_ERROR - 3] + '...'


def show(data: Dict[str, Any], format: Optional[str],
         plain: Callable[[Any], str]) -> CommandResult:
    return 0, tables.render(data, format or 'plain', plain), ''


Answer = TypeVar('Answer')


def patiently(ask: Callable[[bool], Answer], seconds: float, wake: Callable[[], None],
              rest_seconds: float = 1.0) -> Answer:
    """The answer of `ask`, asked again for a report period where the cluster is not fit.

    What the OSDs report is a moment old: a cluster that has just become clean must not be refused
    for what it was. But other commands of this module wait meanwhile. The argument of `ask`:
    whether it was asked before.
    """
    deadline = time.monotonic() + min(seconds, MOST_PATIENCE_SECONDS)
    again = False
    while True:
        try:
            return ask(again)
        except Refused as refused:
            if not refused.not_fit or time.monotonic() >= deadline:
                raise
        again = True
        wake()
        time.sleep(rest_seconds)


#: Arguments of a probe that are fio's words.
FIO_WORDS = ('rw', 'bs', 'iodepth', 'numjobs', 'size', 'nrfiles', 'runtime', 'ramp_time',
             'rwmixread', 'rate_iops', 'io_size', 'ioengine')


def _run_order(given: Mapping[str, Any], **switches: Any) -> RunOrder:
    """What the arguments of a command ask for."""
    return RunOrder(
        words={word: given[word] for word in FIO_WORDS if given[word] is not None},
        job_file=given['inbuf'], **{name: given[name] for name in (
            'profile', 'pool', 'osd', 'host', 'device_class', 'store', 'interference', 'replicas',
            'repeat')}, **switches)


# ---- The commands of the probes: one thin function each, as in cli.py

class ProbeCommands:
    """The handlers; cli.Commands inherits them."""
    loop: Loop

    @write_command('perfguard probe run')
    @command
    def probe_run(self, profile: Optional[str] = None, pool: Optional[str] = None,
                  osd: Optional[str] = None, host: Optional[str] = None,
                  device_class: Optional[str] = None, rw: Optional[str] = None,
                  bs: Optional[str] = None, iodepth: Optional[str] = None,
                  numjobs: Optional[str] = None, size: Optional[str] = None,
                  nrfiles: Optional[str] = None, runtime: Optional[str] = None,
                  ramp_time: Optional[str] = None, rwmixread: Optional[str] = None,
                  rate_iops: Optional[str] = None, io_size: Optional[str] = None,
                  ioengine: Optional[str] = None,
                  repeat: Optional[str] = None, replicas: Optional[str] = None,
                  inbuf: Optional[str] = None, store: bool = False, interference: bool = False,
                  dry_run: bool = False, during_campaign: bool = False,
                  yes_i_really_mean_it: bool = False,
                  format: Optional[str] = None) -> CommandResult:
        """Measure: a profile (latency, iops, throughput, quick, curve) or options of fio"""
        given = locals()
        return show(self.loop.ask(_run_order(given, consent=yes_i_really_mean_it,
                                             during_campaign=during_campaign, dry_run=dry_run)),
                    format, probe_tables.started)

    @read_command('perfguard preview probe')
    @command
    def preview_probe(self, profile: Optional[str] = None, pool: Optional[str] = None,
                      osd: Optional[str] = None, host: Optional[str] = None,
                      device_class: Optional[str] = None, rw: Optional[str] = None,
                      bs: Optional[str] = None, iodepth: Optional[str] = None,
                      numjobs: Optional[str] = None, size: Optional[str] = None,
                      nrfiles: Optional[str] = None, runtime: Optional[str] = None,
                      ramp_time: Optional[str] = None, rwmixread: Optional[str] = None,
                      rate_iops: Optional[str] = None, io_size: Optional[str] = None,
                      ioengine: Optional[str] = None,
                      repeat: Optional[str] = None, replicas: Optional[str] = None,
                      inbuf: Optional[str] = None, store: bool = False,
                      interference: bool = False,
                      format: Optional[str] = None) -> CommandResult:
        """Show what a probe would write and how long it would take (needs read access only)"""
        given = locals()
        return show(self.loop.ask(_run_order(given, consent=True, during_campaign=True,
                                             dry_run=True)),
                    format, probe_tables.started)

    @write_command('perfguard probe import')
    @command
    def probe_import(self, inbuf: Optional[str] = None,
                     format: Optional[str] = None) -> CommandResult:
        """Keep results of perfguard-probe (-i <file>), which were measured on a client host"""
        if not inbuf:
            raise Refused(errno.EINVAL, 'no results: give a file with -i <file>')
        return show(self.loop.ask(ImportedRun(inbuf)), format, probe_tables.message)

    @read_command('perfguard probe ls')
    @command
    def probe_ls(self, format: Optional[str] = None) -> CommandResult:
        """List probes, newest last"""
        return show(self.loop.probed().listing(), format, runs)

    @read_command('perfguard probe show')
    @command
    def probe_show(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Show the results of a probe; with --format json in fio's layout"""
        return show(self.loop.probed().details(run), format, probe_tables.details)

    @write_command('perfguard probe cancel')
    @command
    def probe_cancel(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Stop the active probe"""
        return show(self.loop.ask(RunId('probe cancel', run)), format, probe_tables.message)

    @write_command('perfguard probe abandon')
    @command
    def probe_abandon(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Give up the clean-up of a probe, so that others can run; lists what remains and where"""
        return show(self.loop.ask(RunId('probe abandon', run)), format, probe_tables.message)

    @write_command('perfguard probe rm')
    @command
    def probe_rm(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Remove a probe and its results"""
        return show(self.loop.ask(RunId('probe rm', run)), format, probe_tables.message)

    @read_command('perfguard probe compare')
    @command
    def probe_compare(self, before: int, after: int,
                      format: Optional[str] = None) -> CommandResult:
        """Compare two probes: faster, slower, no difference, or cannot tell"""
        return show(self.loop.probed().compared(before, after), format, probe_tables.comparison)

    @read_command('perfguard probe curve')
    @command
    def probe_curve(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Show latency against throughput of a probe with several queue depths, and the knee"""
        return show(self.loop.probed().curve_json(run), format, probe_tables.curve)

    @write_command('perfguard probe baseline set')
    @command
    def probe_baseline_set(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Make a probe the baseline of later probes with the same jobs and OSDs or pool"""
        return show(self.loop.ask(RunId('probe baseline set', run)), format, probe_tables.message)

    @read_command('perfguard probe baseline ls')
    @command
    def probe_baseline_ls(self, format: Optional[str] = None) -> CommandResult:
        """List the baselines of probes"""
        return show(self.loop.probed().baselines_json(), format, probe_tables.baselines)

    @write_command('perfguard probe baseline rm')
    @command
    def probe_baseline_rm(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Remove a baseline; the probe itself is kept"""
        return show(self.loop.ask(RunId('probe baseline rm', run)), format, probe_tables.message)

    @write_command('perfguard probe schedule add')
    @command
    def probe_schedule_add(self, schedule: str, profile: Optional[str] = None,
                           pool: Optional[str] = None, osd: Optional[str] = None,
                           host: Optional[str] = None, device_class: Optional[str] = None,
                           begin_time: Optional[str] = None, end_time: Optional[str] = None,
                           begin_weekday: Optional[str] = None,
                           end_weekday: Optional[str] = None,
                           every_days: Optional[str] = None,
                           repeat: Optional[str] = None, replicas: Optional[str] = None,
                           store: bool = False, during_campaign: bool = False,
                           yes_i_really_mean_it: bool = False,
                           format: Optional[str] = None) -> CommandResult:
        """Run a probe once in each time window (begin_time to end_time, HHMM) on some weekdays"""
        window = {'begin_time': begin_time, 'end_time': end_time, 'begin_weekday': begin_weekday,
                  'end_weekday': end_weekday, 'every_days': every_days}
        run = RunOrder(profile=profile, pool=pool, osd=osd, host=host, device_class=device_class,
                       store=store, repeat=repeat, replicas=replicas,
                       during_campaign=during_campaign, consent=yes_i_really_mean_it,
                       trigger=schedule)
        given = {key: text for key, text in window.items() if text is not None}
        return show(self.loop.ask(NewSchedule(schedule, run, given)), format, probe_tables.message)

    @read_command('perfguard probe schedule ls')
    @command
    def probe_schedule_ls(self, format: Optional[str] = None) -> CommandResult:
        """List scheduled probes and when they are due"""
        return show(self.loop.probed().schedules_json(), format, probe_tables.schedules)

    @write_command('perfguard probe schedule rm')
    @command
    def probe_schedule_rm(self, schedule: str, format: Optional[str] = None) -> CommandResult:
        """Remove a scheduled probe"""
        return show(self.loop.ask(Named('probe schedule rm', schedule)), format,
                    probe_tables.message)


def _words(*texts: Optional[str]) -> Tuple[str, ...]:
    """The words of a list, however it is written: "8,9", "8 9" or in several arguments."""
    return tuple(word for text in texts for word in (text or '').replace(',', ' ').split())


def _expansion(what: Optional[List[str]], osds: Optional[str], hosts: Optional[str],
               **more: Any) -> Order:
    """`what`: osd.<id>, hosts and other buckets, as drain takes them."""
    named = _words(*what or ())
    return Order('expand', _words(osds) + tuple(each for each in named if each.startswith('osd.')),
                 _words(hosts) + tuple(each for each in named if not each.startswith('osd.')),
                 **more)


def _planned(change: str, what: List[str], weight: Optional[str], prior_version: Optional[int],
             inbuf: Optional[str], force: bool) -> Order:
    """The order that a plan is to hold."""
    if change == 'apply':
        return Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version, force=force)
    if change == 'expand':
        return _expansion(what, None, None, weight=weight, force=force)
    if change not in CHANGES:
        raise Refused(errno.EINVAL, 'cannot plan %.40r: must be one of %s'
                      % (change, ', '.join(CHANGES)))
    return Order(change, _words(*what), force=force)


def _map_of(inbuf: Optional[str]) -> bytes:
    if not inbuf:
        raise Refused(errno.EINVAL, 'no CRUSH map: give one with -i <file>')
    return inbuf.encode('utf-8', 'surrogateescape')


def _mappings_of(inbuf: Optional[str]) -> bytes:
    if not inbuf:
        raise Refused(errno.EINVAL, 'no mappings: give a file with -i <file>')
    return inbuf.encode()


def _json_of(exported: Dict[str, Any], format: Optional[str]) -> str:
    """What other tools read: the list alone."""
    return json.dumps(exported['mappings'], indent=None if format == 'json' else 2)


class Commands(ProbeCommands):
    """The handlers; module.Module inherits them, since Ceph calls each with the module as self."""
    loop: Loop

    @read_command('perfguard status')
    @command
    def status(self, format: Optional[str] = None) -> CommandResult:
        """Show the state of the cluster and of perfguard, with reasons"""
        return show(self.loop.status(), format, tables.status)

    @read_command('perfguard events')
    @command
    def events(self, count: int = 20, format: Optional[str] = None) -> CommandResult:
        """List what perfguard detected and did, newest last"""
        if count < 1:
            raise Refused(errno.EINVAL, 'count must be at least 1, not %d' % count)
        return show({'events': list(self.loop.published.events[-count:])}, format, tables.events)

    @read_command('perfguard osds')
    @command
    def osds(self, format: Optional[str] = None) -> CommandResult:
        """Show the latency of each OSD and its slowdown against its peers"""
        published = self._ready()
        return show({'osds': osds_json(published.watched.osds, published.rebalanced.plan)},
                    format, tables.osds)

    @read_command('perfguard pools')
    @command
    def pools(self, format: Optional[str] = None) -> CommandResult:
        """Show the client latency of each pool and its baseline"""
        return show({'pools': [pool_json(row) for row in self._ready().watched.pools]}, format,
                    tables.pools)

    @read_command('perfguard laggy')
    @command
    def laggy(self, format: Optional[str] = None) -> CommandResult:
        """Show laggy PGs and the suspect OSDs"""
        return show(laggy_json(self._ready().watched.laggy), format, tables.laggy)

    @read_command('perfguard held')
    @command
    def held(self, format: Optional[str] = None) -> CommandResult:
        """List every borrowed setting, with the command that restores it by hand"""
        return show(held_to_json(self._ready().held), format, tables.held)

    @read_command('perfguard advise')
    @command
    def advise(self, refresh: bool = False, format: Optional[str] = None) -> CommandResult:
        """List settings and devices that cost performance: what, why, the command, the source"""
        data = self.loop.ask(AdviseOrder('advise')) if refresh \
            else advice.to_json(self.loop.advice())
        return show(data, format, advice.plain)

    @read_command('perfguard advise expect')
    @command
    def advise_expect(self, format: Optional[str] = None) -> CommandResult:
        """Show what each pool is expected to achieve for one client, beside the last probes"""
        return show(self.loop.probed().expected_json(), format, probe_tables.expected)

    @read_command('perfguard advise capacity')
    @command
    def advise_capacity(self, format: Optional[str] = None) -> CommandResult:
        """Show the operations and virtual machines that each pool is expected to serve"""
        return show(self.loop.probed().capacity_json(), format, probe_tables.capacity)

    @write_command('perfguard advise mute')
    @command
    def advise_mute(self, code: str, format: Optional[str] = None) -> CommandResult:
        """Hide the findings of one code"""
        return show(self.loop.ask(AdviseOrder('advise mute', code)), format, advice.plain)

    @write_command('perfguard advise unmute')
    @command
    def advise_unmute(self, code: str, format: Optional[str] = None) -> CommandResult:
        """Show the findings of one code again"""
        return show(self.loop.ask(AdviseOrder('advise unmute', code)), format, advice.plain)

    @read_command('perfguard why')
    @command
    def why(self, what: str, format: Optional[str] = None) -> CommandResult:
        """Explain why a PG does not move, why osd.<id> is slow, or what limits the campaign"""
        return show(self.loop.ask(parsed(what)), format, tables.why)

    @write_command('perfguard shutdown')
    @command
    def shut_down(self, yes_i_really_mean_it: bool = False,
                  format: Optional[str] = None) -> CommandResult:
        """Give back every borrowed setting and report when the module may be disabled"""
        return show(self.loop.ask(Shutdown(yes_i_really_mean_it)), format, tables.shutdown)

    @read_command('perfguard mitigation ls')
    @command
    def mitigation_ls(self, format: Optional[str] = None) -> CommandResult:
        """Show the mitigations in force, or that mode "act" would take, and why"""
        return show(listing_json(self._ready().mitigated.listing), format, tables.mitigation)

    @write_command('perfguard mitigation revert')
    @command
    def mitigation_revert(self, rung: int, format: Optional[str] = None) -> CommandResult:
        """Undo one mitigation; it is not repeated until its cause has cleared"""
        self.loop.request(Revert(rung))
        return show({'id': rung, 'message': 'undoing; see "mitigation ls"'},
                    format, tables.accepted)

    @read_command('perfguard history')
    @command
    def history(self, what: str = 'cluster', week: bool = False, export: bool = False,
                format: Optional[str] = None) -> CommandResult:
        """Show the latency of the cluster, a pool or osd.<id> over the last hour (--week: week)"""
        watched = self._ready().watched
        if export:
            return show(self._exported(watched.osds, what, week), format, tables.exported)
        points = self.loop.history_of(what, week, 0)
        if points is None:
            raise Refused(errno.ENOENT, 'no history of %r: give cluster, a pool, or osd.<id>'
                          % what)
        return show(history_json(what, points), format, tables.watch_history)

    def _exported(self, osds: Sequence[OsdRow], what: str, week: bool) -> Dict[str, Any]:
        """The history of all OSDs, of a host's, or of one."""
        chosen = [row for row in osds if what in ('cluster', row.host, 'osd.%d' % row.osd)]
        if not chosen:
            raise Refused(errno.ENOENT, 'no OSDs to export of %r: cluster, a host, or osd.<id>'
                          % what)
        histories = [(row, self.loop.history_of('osd.%d' % row.osd, week, 0) or [])
                     for row in chosen]
        points = sum(len(each) for _, each in histories)
        if points > MOST_EXPORTED:
            raise Refused(errno.E2BIG, 'the history of %d OSDs has %d points (limit %d): export '
                          'a host or osd.<id>' % (len(chosen), points, MOST_EXPORTED))
        return exported_json(what, histories)

    @read_command('perfguard rebalance status')
    @command
    def rebalance_status(self, format: Optional[str] = None) -> CommandResult:
        """Show the active campaign, or the last one"""
        return show(rebalance_json(self._ready()), format, tables.rebalance_status)

    @read_command('perfguard rebalance watch', poll=True)
    @command
    def rebalance_watch(self, until: Optional[str] = None,
                        format: Optional[str] = None) -> CommandResult:
        """Follow the campaign in one line per --period until it has ended or is in phase <until>"""
        published = self._ready()
        ending = followed(published.rebalanced.status, until)
        if ending is None:
            return show(rebalance_json(published), format, tables.watched)
        return ending.retval, '', _line(ending.text)

    @read_command('perfguard rebalance plan')
    @command
    def rebalance_plan(self, format: Optional[str] = None) -> CommandResult:
        """Preview the movement: PGs, bytes, in and out of each OSD, estimated time"""
        return show(plan_json(self._ready().rebalanced.plan), format, tables.plan)

    @write_command('perfguard rebalance plan save')
    @command
    def rebalance_plan_save(self, plan: str, change: str, what: Optional[List[str]] = None,
                            weight: Optional[str] = None, prior_version: Optional[int] = None,
                            inbuf: Optional[str] = None, force: bool = False,
                            format: Optional[str] = None) -> CommandResult:
        """Save a preview of expand, drain, undrain or apply (-i) by name, for approval"""
        order = _planned(change, what or [], weight, prior_version, inbuf, force)
        return self._order(PlanOrder(SAVE, plan, order), format, tables.saved_plan)

    @read_command('perfguard rebalance plan ls')
    @command
    def rebalance_plan_ls(self, format: Optional[str] = None) -> CommandResult:
        """List saved plans, and what has changed since they were saved"""
        return show(self.loop.ask(PlanOrder(LS)), format, tables.saved_plans)

    @read_command('perfguard rebalance plan show')
    @command
    def rebalance_plan_show(self, plan: str, format: Optional[str] = None) -> CommandResult:
        """Show a saved plan: PGs, bytes, fill and PGs of each OSD, time, borrowed settings"""
        return show(self.loop.ask(PlanOrder(SHOW, plan)), format, tables.saved_plan)

    @write_command('perfguard rebalance plan rm')
    @command
    def rebalance_plan_rm(self, plan: str, format: Optional[str] = None) -> CommandResult:
        """Remove a saved plan; one that is queued is not carried out"""
        return show(self.loop.ask(PlanOrder(RM, plan)), format, tables.accepted)

    @write_command('perfguard rebalance approve')
    @command
    def rebalance_approve(self, plan: str, format: Optional[str] = None) -> CommandResult:
        """Carry out a saved plan, now or after the active campaign, unless the cluster changed"""
        return self._order(PlanOrder(APPROVE, plan), format, tables.approved)

    @read_command('perfguard rebalance ls')
    @command
    def rebalance_ls(self, format: Optional[str] = None) -> CommandResult:
        """List campaigns, newest last"""
        known = self._ready().rebalanced
        campaigns = list(known.history)
        if known.campaign is not None and known.campaign.active:
            campaigns.append(summary(known.campaign))
        return show({'campaigns': campaigns}, format, tables.history)

    @read_command('perfguard rebalance show')
    @command
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

    @write_command('perfguard rebalance prepare')
    @command
    def rebalance_prepare(self, force: bool = False,
                          format: Optional[str] = None) -> CommandResult:
        """Begin a campaign: set norebalance, stop balancer and autoscaler. Then change CRUSH"""
        return self._ask(Request('prepare', force=force),
                         'preparing; change CRUSH as soon as "rebalance '
                         'status" shows PREPARED', format)

    @write_command('perfguard rebalance pin')
    @command
    def rebalance_pin(self, format: Optional[str] = None) -> CommandResult:
        """Pin every remapped PG where its data is"""
        return self._ask(Request('pin'), 'pinning; run "rebalance start" as soon as '
                         '"rebalance status" shows PINNED', format)

    @write_command('perfguard rebalance start')
    @command
    def rebalance_start(self, format: Optional[str] = None) -> CommandResult:
        """Release the pinned PGs in batches"""
        return self._ask(Request('start'),
                         'releasing; "rebalance status" shows the progress', format)

    @write_command('perfguard rebalance pause')
    @command
    def rebalance_pause(self, duration: Optional[str] = None,
                        format: Optional[str] = None) -> CommandResult:
        """Stop all movement, until resume or for a time such as 2h; what was copied is kept"""
        # Not --for: the ceph tool takes that for an abbreviation of --format.
        seconds = 0.0 if duration is None else duration_seconds(duration)
        message = 'pausing; "rebalance resume" continues'
        if seconds:
            message = 'pausing for %s; "rebalance resume" continues earlier' % (
                tables.seconds_text(seconds))
        return self._ask(Request('pause', until=time.time() + seconds if seconds else 0.0),
                         message, format)

    @write_command('perfguard rebalance set')
    @command
    def rebalance_set(self, setting: str, format: Optional[str] = None) -> CommandResult:
        """Set <option>=<value> for this campaign only; "<option>=" returns to the module option"""
        option, value = assignment(setting)
        return self._ask(Request('set', option=option, value=value),
                         '%s is %s for this campaign' % (option, value or 'that of the module'),
                         format)

    @write_command('perfguard rebalance acknowledge')
    @command
    def rebalance_acknowledge(self, code: str, format: Optional[str] = None) -> CommandResult:
        """Ignore a stop condition until the campaign ends"""
        return self._ask(Request('acknowledge', code=code),
                         '%s no longer stops releases of this campaign' % code, format)

    @write_command('perfguard rebalance resume')
    @command
    def rebalance_resume(self, format: Optional[str] = None) -> CommandResult:
        """Continue after a pause or an abort"""
        return self._ask(Request('resume'), 'resuming', format)

    @write_command('perfguard rebalance abort')
    @command
    def rebalance_abort(self, format: Optional[str] = None) -> CommandResult:
        """Pin back what is moving and keep it there until resume, rollback or finish --keep"""
        return self._ask(Request('abort'), 'aborting; pinned PGs stay where they are', format)

    @write_command('perfguard rebalance rollback')
    @command
    def rebalance_rollback(self, dry_run: bool = False,
                           format: Optional[str] = None) -> CommandResult:
        """Restore the CRUSH weights or map from before the campaign without remapping a PG"""
        return self._order(Order('rollback', dry_run=dry_run), format)

    @write_command('perfguard rebalance adopt')
    @command
    def rebalance_adopt(self, dry_run: bool = False, force: bool = False,
                        format: Optional[str] = None) -> CommandResult:
        """Take over an expansion that another tool has pinned with upmaps, and release them"""
        return self._order(Order('adopt', dry_run=dry_run, force=force), format, tables.adoption)

    @write_command('perfguard rebalance finish')
    @command
    def rebalance_finish(self, keep: bool = False, yes_i_really_mean_it: bool = False,
                         format: Optional[str] = None) -> CommandResult:
        """End the campaign; with --keep, remaining pins become ordinary upmaps"""
        return self._ask(Request('finish', keep=keep, sure=yes_i_really_mean_it), 'finishing',
                         format)

    @write_command('perfguard expand')
    @command
    def expand(self, what: Optional[List[str]] = None, osds: Optional[str] = None,
               hosts: Optional[str] = None, weight: Optional[str] = None, dry_run: bool = False,
               force: bool = False, format: Optional[str] = None) -> CommandResult:
        """Weight new OSDs (CRUSH weight 0) without remapping a PG, then fill them"""
        return self._order(_expansion(what, osds, hosts, weight=weight, force=force,
                                      dry_run=dry_run), format)

    @write_command('perfguard drain')
    @command
    def drain(self, what: List[str], dry_run: bool = False, force: bool = False,
              format: Optional[str] = None) -> CommandResult:
        """Empty OSDs, hosts or racks in batches; their CRUSH weights are remembered"""
        return self._order(Order('drain', _words(*what), dry_run=dry_run, force=force), format)

    @read_command('perfguard drain ls')
    @command
    def drain_ls(self, format: Optional[str] = None) -> CommandResult:
        """List drained OSDs and those whose devices are replaced, and what happens next"""
        return show(self.loop.ask(Order(DRAINS, dry_run=True)), format, tables.drains)

    @write_command('perfguard replace')
    @command
    def replace(self, what: List[str], dry_run: bool = False, force: bool = False,
                cancel: bool = False, format: Optional[str] = None) -> CommandResult:
        """Empty OSDs or hosts, and fill them again once new devices serve under the same ids"""
        if cancel:
            return show(self.loop.ask(Order(CANCEL, _words(*what))), format, tables.accepted)
        return self._order(Order(REPLACE, _words(*what), dry_run=dry_run, force=force), format,
                           tables.replacement)

    @write_command('perfguard undrain')
    @command
    def undrain(self, what: List[str], dry_run: bool = False, force: bool = False,
                format: Optional[str] = None) -> CommandResult:
        """Restore the CRUSH weights of drained OSDs, hosts or racks"""
        return self._order(Order('undrain', _words(*what), dry_run=dry_run, force=force), format)

    @write_command('perfguard rebalance apply')
    @command
    def rebalance_apply(self, inbuf: Optional[str] = None, prior_version: Optional[int] = None,
                        dry_run: bool = False, force: bool = False,
                        format: Optional[str] = None) -> CommandResult:
        """Set a new CRUSH map (-i) without remapping a PG, then release in batches"""
        return self._order(Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version,
                                 dry_run=dry_run, force=force), format)

    @write_command('perfguard rebalance rule')
    @command
    def rebalance_rule(self, pool: str, rule: str, dry_run: bool = False, force: bool = False,
                       format: Optional[str] = None) -> CommandResult:
        """Give a pool another CRUSH rule; PGs that cannot be pinned under it move first"""
        return self._order(Order('rule', (pool, rule), dry_run=dry_run, force=force), format)

    @write_command('perfguard rebalance pg_num')
    @command
    def rebalance_pg_num(self, pool: str, pg_num: int, dry_run: bool = False, force: bool = False,
                         format: Optional[str] = None) -> CommandResult:
        """Split or merge the PGs of a pool; the PGs that this moves are released in batches"""
        return self._order(Order('pg_num', (pool, str(pg_num)), dry_run=dry_run, force=force),
                           format)

    @read_command('perfguard rebalance export')
    @command
    def rebalance_export(self, format: Optional[str] = None) -> CommandResult:
        """Print all pg_upmap_items as JSON, as pgremapper does"""
        found = patiently(lambda again: self.loop.ask(Order('export', dry_run=True), again),
                          self.loop.report_seconds(), self.loop.wake)
        left_out = '%s left out: pg_upmap has no pairs' % tables.pgs_are(found['vectors'])
        return 0, _json_of(found, format), left_out if found['vectors'] else ''

    @write_command('perfguard rebalance import')
    @command
    def rebalance_import(self, inbuf: Optional[str] = None, dry_run: bool = False,
                         force: bool = False, format: Optional[str] = None) -> CommandResult:
        """Move PGs in batches to where exported mappings (-i) place them"""
        return self._order(Order('import', mappings=_mappings_of(inbuf), dry_run=dry_run,
                                 force=force), format, tables.importing)

    # Previews for users who may only read: Ceph checks capabilities by the command's prefix, and
    # so cannot tell --dry-run from the command without it.

    @read_command('perfguard preview expand')
    @command
    def preview_expand(self, what: Optional[List[str]] = None, osds: Optional[str] = None,
                       hosts: Optional[str] = None, weight: Optional[str] = None,
                       format: Optional[str] = None) -> CommandResult:
        """Show what expand would do (needs read access only)"""
        return self._order(_expansion(what, osds, hosts, weight=weight, dry_run=True), format)

    @read_command('perfguard preview adopt')
    @command
    def preview_adopt(self, format: Optional[str] = None) -> CommandResult:
        """Show what rebalance adopt would do (needs read access only)"""
        return self._order(Order('adopt', dry_run=True), format, tables.adoption)

    @read_command('perfguard preview drain')
    @command
    def preview_drain(self, what: List[str], format: Optional[str] = None) -> CommandResult:
        """Show what drain would do (needs read access only)"""
        return self._order(Order('drain', _words(*what), dry_run=True), format)

    @read_command('perfguard preview replace')
    @command
    def preview_replace(self, what: List[str], format: Optional[str] = None) -> CommandResult:
        """Show what replace would do first (needs read access only)"""
        return self._order(Order(REPLACE, _words(*what), dry_run=True), format,
                           tables.replacement)

    @read_command('perfguard preview undrain')
    @command
    def preview_undrain(self, what: List[str], format: Optional[str] = None) -> CommandResult:
        """Show what undrain would do (needs read access only)"""
        return self._order(Order('undrain', _words(*what), dry_run=True), format)

    @read_command('perfguard preview apply')
    @command
    def preview_apply(self, inbuf: Optional[str] = None, prior_version: Optional[int] = None,
                      format: Optional[str] = None) -> CommandResult:
        """Show what rebalance apply would do with a CRUSH map (-i) (needs read access only)"""
        return self._order(Order('apply', crush_map=_map_of(inbuf), prior_version=prior_version,
                                 dry_run=True), format)

    @read_command('perfguard preview rule')
    @command
    def preview_rule(self, pool: str, rule: str, format: Optional[str] = None) -> CommandResult:
        """Show what rebalance rule would do (needs read access only)"""
        return self._order(Order('rule', (pool, rule), dry_run=True), format)

    @read_command('perfguard preview import')
    @command
    def preview_import(self, inbuf: Optional[str] = None,
                       format: Optional[str] = None) -> CommandResult:
        """Show what rebalance import would do with mappings (-i) (needs read access only)"""
        return self._order(Order('import', mappings=_mappings_of(inbuf), dry_run=True), format,
                           tables.importing)

    @read_command('perfguard preview pg_num')
    @command
    def preview_pg_num(self, pool: str, pg_num: int,
                       format: Optional[str] = None) -> CommandResult:
        """Show what rebalance pg_num would do (needs read access only)"""
        return self._order(Order('pg_num', (pool, str(pg_num)), dry_run=True), format)

    @read_command('perfguard preview rollback')
    @command
    def preview_rollback(self, format: Optional[str] = None) -> CommandResult:
        """Show what rebalance rollback would do (needs read access only)"""
        return self._order(Order('rollback', dry_run=True), format)

    def _order(self, order: Union[Order, PlanOrder], format: Optional[str],
               plain: Callable[[Any], str] = tables.order) -> CommandResult:
        answer = patiently(lambda again: self.loop.ask(order, again),
                           self.loop.report_seconds(), self.loop.wake)
        return show(answer, format, plain)

    def _ask(self, request: Request, message: str, format: Optional[str]) -> CommandResult:
        patiently(lambda again: self.loop.request(request), self.loop.report_seconds(),
                  self.loop.wake)
        data = {'verb': request.verb, 'message': message}
        return show(data, format, tables.accepted)

    def _ready(self) -> Published:
        published = self.loop.published
        if not published.turned:
            raise Refused(errno.EAGAIN, 'perfguard has just started: try again in a few seconds')
        return published
