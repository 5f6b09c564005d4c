# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of the probes: one thin function each, as in cli.py."""
from typing import Optional

from .command import CommandResult, command, show
from .compat import read_command, write_command
from .loop import Loop
from .probe import tables
from .probe.orders import Named, NewSchedule, RunId, RunOrder
from .probe.tables import runs


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
                  repeat: Optional[str] = None, replicas: Optional[str] = None,
                  inbuf: Optional[str] = None, store: bool = False, interference: bool = False,
                  dry_run: bool = False, during_campaign: bool = False,
                  yes_i_really_mean_it: bool = False,
                  format: Optional[str] = None) -> CommandResult:
        """Measure with short I/O: a profile (latency, iops, throughput, quick) or fio's words"""
        words = {'rw': rw, 'bs': bs, 'iodepth': iodepth, 'numjobs': numjobs, 'size': size,
                 'nrfiles': nrfiles, 'runtime': runtime, 'ramp_time': ramp_time,
                 'rwmixread': rwmixread, 'rate_iops': rate_iops, 'io_size': io_size}
        order = RunOrder(
            profile=profile, words={key: text for key, text in words.items() if text is not None},
            job_file=inbuf, pool=pool, osd=osd, host=host, device_class=device_class, store=store,
            interference=interference, replicas=replicas, consent=yes_i_really_mean_it,
            repeat=repeat, during_campaign=during_campaign, dry_run=dry_run)
        return show(self.loop.ask(order), format, tables.started)

    @read_command('perfguard probe ls')
    @command
    def probe_ls(self, format: Optional[str] = None) -> CommandResult:
        """List probes, newest last"""
        return show(self.loop.probed().listing(), format, runs)

    @read_command('perfguard probe show')
    @command
    def probe_show(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Show what a probe has found; as JSON in the layout of fio"""
        return show(self.loop.probed().details(run), format, tables.details)

    @write_command('perfguard probe cancel')
    @command
    def probe_cancel(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Stop the probe under way"""
        return show(self.loop.ask(RunId('probe cancel', run)), format, tables.message)

    @write_command('perfguard probe abandon')
    @command
    def probe_abandon(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Give up cleaning up after a probe, so that others may run; says what stays where"""
        return show(self.loop.ask(RunId('probe abandon', run)), format, tables.message)

    @write_command('perfguard probe rm')
    @command
    def probe_rm(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Forget a probe's results"""
        return show(self.loop.ask(RunId('probe rm', run)), format, tables.message)

    @read_command('perfguard probe compare')
    @command
    def probe_compare(self, before: int, after: int,
                      format: Optional[str] = None) -> CommandResult:
        """Is the second probe faster or slower than the first, or is there no difference?"""
        return show(self.loop.probed().compared(before, after), format, tables.comparison)

    @write_command('perfguard probe baseline set')
    @command
    def probe_baseline_set(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Hold later probes of the same jobs and target against this one"""
        return show(self.loop.ask(RunId('probe baseline set', run)), format, tables.message)

    @read_command('perfguard probe baseline ls')
    @command
    def probe_baseline_ls(self, format: Optional[str] = None) -> CommandResult:
        """List what later probes are held against"""
        return show(self.loop.probed().baselines_json(), format, tables.baselines)

    @write_command('perfguard probe baseline rm')
    @command
    def probe_baseline_rm(self, run: int, format: Optional[str] = None) -> CommandResult:
        """Hold probes against this one no more"""
        return show(self.loop.ask(RunId('probe baseline rm', run)), format, tables.message)

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
        """Run a probe once in every window from begin_time to end_time (HHMM) of some weekdays"""
        window = {'begin_time': begin_time, 'end_time': end_time, 'begin_weekday': begin_weekday,
                  'end_weekday': end_weekday, 'every_days': every_days}
        run = RunOrder(profile=profile, pool=pool, osd=osd, host=host, device_class=device_class,
                       store=store, repeat=repeat, replicas=replicas,
                       during_campaign=during_campaign, consent=yes_i_really_mean_it,
                       trigger=schedule)
        given = {key: text for key, text in window.items() if text is not None}
        return show(self.loop.ask(NewSchedule(schedule, run, given)), format, tables.message)

    @read_command('perfguard probe schedule ls')
    @command
    def probe_schedule_ls(self, format: Optional[str] = None) -> CommandResult:
        """List scheduled probes and when they are due"""
        return show(self.loop.probed().schedules_json(), format, tables.schedules)

    @write_command('perfguard probe schedule rm')
    @command
    def probe_schedule_rm(self, schedule: str, format: Optional[str] = None) -> CommandResult:
        """Drop a scheduled probe"""
        return show(self.loop.ask(Named('probe schedule rm', schedule)), format, tables.message)
