# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of the probes: one thin function each."""
import errno
from typing import Any, Mapping, Optional

from ..compat import read_command, write_command
from ..errors import Refused
from ..probe import tables as probe_tables
from ..probe.plan import DroppedSchedule, ImportedRun, NewSchedule, RunId, RunOrder
from .shell import CommandResult, Handlers, command, show

#: Arguments of a probe that are fio's words.
FIO_WORDS = ('rw', 'bs', 'iodepth', 'numjobs', 'size', 'nrfiles', 'runtime', 'ramp_time',
             'rwmixread', 'rate_iops', 'io_size', 'ioengine')


def _run_order(given: Mapping[str, Any], **switches: Any) -> RunOrder:
    """The order for the arguments of a command."""
    return RunOrder(
        words={word: given[word] for word in FIO_WORDS if given[word] is not None},
        job_file=given['inbuf'], **{name: given[name] for name in (
            'profile', 'pool', 'osd', 'host', 'device_class', 'store', 'interference', 'scale',
            'by_host', 'replicas', 'repeat')}, **switches)


class ProbeCommands(Handlers):
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
                  scale: bool = False, by_host: bool = False, dry_run: bool = False,
                  during_campaign: bool = False, yes_i_really_mean_it: bool = False,
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
                      interference: bool = False, scale: bool = False,
                      by_host: bool = False,
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
        return show(self.loop.probed().listing(), format, probe_tables.runs)

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

    @read_command('perfguard probe scale')
    @command
    def probe_scale(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Show how throughput grows with the number of OSDs, of a probe with --scale"""
        return show(self.loop.probed().scale_json(run), format, probe_tables.scale)

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
        return show(self.loop.ask(DroppedSchedule(schedule)), format, probe_tables.message)
