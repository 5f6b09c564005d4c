# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands of the probes: one thin function each."""
import errno
import functools
from inspect import Parameter, Signature
from typing import Any, Callable, Mapping, Optional

from ..cluster.types import Json
from ..errors import Refused
from ..probe import tables as probe_tables
from ..probe.orders import (DroppedSchedule, ImportedRun, NewSchedule, RunId, RunOrder,
                            words_of_order)
from ..tables import accepted
from .shell import Handlers, reads, refuse_empty, writes

#: Arguments of a probe that are fio's words.
FIO_WORDS = ('rw', 'bs', 'iodepth', 'numjobs', 'size', 'nrfiles', 'runtime', 'ramp_time',
             'rwmixread', 'rate_iops', 'io_size', 'ioengine')
#: Those that select OSDs.
_SELECTIONS = ('osd', 'host', 'device_class')
#: Its other arguments that are texts, before and after these; its switches; and those switches
#: that a preview lacks, since it does nothing.
_TARGETS = ('profile', 'pool', *_SELECTIONS)
_JOB_WORDS = ('repeat', 'replicas')
_SWITCHES = ('store', 'interference', 'scale', 'by_host')
_RUN_SWITCHES = ('dry_run', 'during_campaign', 'hold_scrub', 'yes_i_really_mean_it')

Handler = Callable[[Any, Mapping[str, Any]], Json]


def _takes(*switches: str) -> Callable[[Handler], Callable[..., Json]]:
    """A decorator for a handler that takes the arguments of a probe as one mapping: it makes the
    command, whose signature shows Ceph each of these arguments. `switches`: those that only this
    command takes."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(name, kind, default=None, annotation=Optional[str])
                  for name in (*_TARGETS, *FIO_WORDS, *_JOB_WORDS, 'inbuf')]
    parameters += [Parameter(name, kind, default=False, annotation=bool)
                   for name in (*_SWITCHES, *switches)]

    def decorated(handler: Handler) -> Callable[..., Json]:
        @functools.wraps(handler)
        def command(self: Any, **arguments: Any) -> Json:
            return handler(self, {**{parameter.name: parameter.default for parameter in parameters},
                                  **arguments})

        setattr(command, '__signature__', Signature([Parameter('self', kind), *parameters]))
        return command

    return decorated


def _run_order(arguments: Mapping[str, Any], **switches: Any) -> RunOrder:
    """The order for the arguments of a command; `switches`: further fields of the order. Raises
    Refused."""
    refuse_empty(**{name: arguments[name] for name in _SELECTIONS})
    return RunOrder(
        words={word: arguments[word] for word in FIO_WORDS if arguments[word] is not None},
        job_file=arguments['inbuf'],
        **{name: arguments[name] for name in (*_TARGETS, *_JOB_WORDS, *_SWITCHES)},
        **switches)


class ProbeCommands(Handlers):
    @writes('perfguard probe run', probe_tables.started)
    @_takes(*_RUN_SWITCHES)
    def probe_run(self, arguments: Mapping[str, Any]) -> Json:
        """Measure: a profile (latency, iops, throughput, quick, curve) or options of fio"""
        return self.loop.ask(_run_order(arguments, consent=arguments['yes_i_really_mean_it'],
                                        during_campaign=arguments['during_campaign'],
                                        hold_scrub=arguments['hold_scrub'],
                                        dry_run=arguments['dry_run']))

    @reads('perfguard preview probe', probe_tables.started)
    @_takes()
    def preview_probe(self, arguments: Mapping[str, Any]) -> Json:
        """Show what a probe would write and how long it would take (needs read access only)"""
        return self.loop.ask(_run_order(arguments, consent=True, during_campaign=True,
                                        dry_run=True))

    @writes('perfguard probe import', accepted)
    def probe_import(self, inbuf: Optional[str] = None) -> Json:
        """Import JSON of perfguard-probe, or of fio with ioengine rados or rbd (-i <file>)"""
        if not inbuf:
            raise Refused(errno.EINVAL, 'no results: give a file with -i <file>')
        return self.loop.ask(ImportedRun(inbuf))

    @reads('perfguard probe baseline ls')
    @reads('perfguard probe ls', probe_tables.probes)
    def probe_ls(self) -> Json:
        """List probes, newest last; then baselines, and scheduled probes"""
        return self.loop.probed().everything()

    @reads('perfguard probe show', probe_tables.details)
    def probe_show(self, run: Optional[int] = None) -> Json:
        """Show the results of a probe, by default the last; with --format json in fio's layout"""
        return self.loop.probed().details(run)

    @writes('perfguard probe cancel', accepted)
    def probe_cancel(self, run: int, force: bool = False) -> Json:
        """Stop the active probe; with --force, give up its clean-up and list what remains"""
        return self.loop.ask(RunId('probe cancel --force' if force else 'probe cancel', run))

    @writes('perfguard probe rm', accepted)
    def probe_rm(self, run: int) -> Json:
        """Remove a probe and its results"""
        return self.loop.ask(RunId('probe rm', run))

    @reads('perfguard probe compare', probe_tables.comparison)
    def probe_compare(self, before: int, after: int) -> Json:
        """Compare two probes: faster, slower, no difference, or cannot tell"""
        return self.loop.probed().compared(before, after)

    @writes('perfguard probe baseline', accepted)
    def probe_baseline(self, run: int, rm: bool = False) -> Json:
        """Compare later probes with the same jobs and OSDs or pool with this one; --rm ends that"""
        return self.loop.ask(RunId('probe baseline --rm' if rm else 'probe baseline', run))

    @writes('perfguard probe schedule', accepted)
    def probe_schedule(self, schedule: str, profile: Optional[str] = None,
                       pool: Optional[str] = None, osd: Optional[str] = None,
                       host: Optional[str] = None, device_class: Optional[str] = None,
                       begin_time: Optional[str] = None, end_time: Optional[str] = None,
                       begin_weekday: Optional[str] = None, end_weekday: Optional[str] = None,
                       every_days: Optional[str] = None, repeat: Optional[str] = None,
                       replicas: Optional[str] = None, store: bool = False,
                       during_campaign: bool = False, hold_scrub: bool = False,
                       rm: bool = False, yes_i_really_mean_it: bool = False) -> Json:
        """Run a probe once in each time window (HHMM) on some weekdays; --rm removes a schedule"""
        refuse_empty(osd=osd, host=host, device_class=device_class)
        window = {'begin_time': begin_time, 'end_time': end_time, 'begin_weekday': begin_weekday,
                  'end_weekday': end_weekday, 'every_days': every_days}
        run = RunOrder(profile=profile, pool=pool, osd=osd, host=host, device_class=device_class,
                       store=store, repeat=repeat, replicas=replicas,
                       during_campaign=during_campaign, hold_scrub=hold_scrub,
                       consent=yes_i_really_mean_it, trigger=schedule)
        given_window = {key: text for key, text in window.items() if text is not None}
        if not rm:
            return self.loop.ask(NewSchedule(schedule, run, given_window))
        if given_window or words_of_order(run):
            raise Refused(errno.EINVAL, '--rm takes the name of a schedule and nothing else')
        return self.loop.ask(DroppedSchedule(schedule))
