# SPDX-License-Identifier: LGPL-2.1-or-later
"""Carries out orders and schedules of probes, one run at a time, and keeps the records of runs."""
import errno
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple, Union

from ..cluster.inventory import installed_version
from ..cluster.ports import Cluster, View
from ..cluster.tool_thread import AnyJob, ToolThread
from ..cluster.types import Document, Json, OsdPlace
from ..codec import Malformed, Newer, decode, encode
from ..errors import HealthChecks, PerfguardError, Refused
from ..events import Event
from ..ledger import Row
from ..observation import Observation
from ..options import Options
from ..store import Store
from ..version import VERSION
from ..watch.stop_conditions import NOTHING, Touched
from .expectations import Layout, layouts_of
from .limits import AffectedClients, Loaded
from .osd_bench import BENCH, BENCH_SECONDS, StoreRun
from .orders import (CheckedRun, DroppedSchedule, ImportedRun, NewSchedule, RunOrder,
                     check_run, ignores_clients, stop_reasons)
from .records import (CANCELLED, CLEANING, CLIENT, DONE, FAILED, IMPORTED, PREPARING, Archive,
                      RunHistory, RunRecord, imported_record, setting_of)
from .report import ActiveProbe, Caches, Probed, no_such_probe
from .resources import (RunResources, leftover_check, own_pool, probe_rows,
                        unreadable_journal_check)
from .run import ProbeRun
from .schedules import (SCHEDULE_AGAIN_SECONDS, SCHEDULE_VERBS, Attempts, StoredSettings,
                        due_schedules, health_check, schedule_of, schedule_to_json)
from .types import NAMESPACE, PROBE_PREFIX
from .worker.protocol import NO_FILES, other_version

log = logging.getLogger(__name__)

Run = Union[ProbeRun, StoreRun]

#: Documents in the store: the active run with its resources; schedules and baselines.
JOURNAL = 'probing'
SETTINGS = 'probe-settings'
#: Report periods after a run in which the OSDs still report its operations.
EFFECT_PERIODS = 3.0
#: Seconds for which client operations are read without those of probes, from each turn in which a
#: probe uses a pool of clients.
WITHOUT_PROBES_SECONDS = 15.0
#: Seconds of cleaning up after which a health warning names the obstacle: a sweep takes 20.
LEFT_SECONDS = 60.0


class WaitingProbe(Protocol):
    """An order whose command waits."""
    order: Any
    #: The check of its placement in the tool thread; None: it has not begun.
    job: Optional[AnyJob]


@dataclass(frozen=True)
class RunJournal:
    """The active run."""
    record: RunRecord
    #: None: a bench, which creates nothing.
    site: Optional[RunResources] = None


@dataclass
class ScheduledOrder:
    """The order of a schedule whose placement is being checked, as WaitingProbe."""
    order: RunOrder = RunOrder()
    job: Optional[AnyJob] = None


class Probing:
    """Runs probes, one at a time: from an order of an operator or a schedule until nothing of the
    probe is left on the cluster.

    1. Order. Its check (orders.py) says what the run does and why it may not begin now.
    2. PREPARING. The cephx user and, unless the operator names a pool, a pool are journalled and
       created (resources.py).
    3. RUNNING. A worker process does the I/O. A stop condition, a campaign or "probe cancel" ends
       it (run.py).
    4. CLEANING. Objects, pool and user are removed, and options of the mons are restored. After a
       failover the next mgr continues here.
    5. DONE, FAILED, CANCELLED or ABORTED. The record is kept (records.py), the journal is removed,
       and the run is compared with its baseline.
    """

    def __init__(self, cluster: Cluster, store: Store, archive: Archive,
                 note: Callable[[Event], None], tools: ToolThread,
                 journal_is_stored: Callable[[], bool] = lambda: True,
                 may_write: Callable[[], bool] = lambda: True) -> None:
        """`journal_is_stored`: whether the mons have stored the journal; `may_write`: whether this
        mgr owns the store: another one may have replaced it."""
        self._cluster = cluster
        self._tools = tools
        self._journal_is_stored, self._may_write = journal_is_stored, may_write
        self._store = store
        self._archive = archive
        self._note = note
        self._history = RunHistory()
        self._settings = StoredSettings(partial(store.put, SETTINGS), note, tools)
        #: Why the stored journal, which another version wrote, cannot be read; '': it can.
        self._journal_error = ''
        #: The active run and its record so far, None: there is none; and its order.
        self._run: Optional[Run] = None
        self._order = RunOrder()
        self._record: Optional[RunRecord] = None
        #: When the clean-up of the active run began, or its last turn before that.
        self._cleaning_since = 0.0
        #: When the last run ended.
        self._last_ended = float('-inf')
        self._loaded = Loaded()
        #: Clients that the active run affects.
        self._clients = AffectedClients()
        self._attempts = Attempts()
        self._scheduled = ScheduledOrder()
        #: Epoch and CRUSH version of the following: the place of each OSD, the OSDs of each pool.
        self._placed_for = (-1, -1)
        self._places: Mapping[int, OsdPlace] = {}
        self._layouts: Mapping[str, Layout] = {}
        self._caches = Caches()
        #: When the installed version was last read.
        self._version_read = float('-inf')
        #: Why no probe begins: another version than that of this mgr is installed.
        self._upgrade_remarks: Tuple[str, ...] = ()
        self.probed = Probed()

    @property
    def remarks(self) -> Tuple[str, ...]:
        """For `status`."""
        unreadable = self._settings.unreadable
        return self._upgrade_remarks + ((
            'no scheduled probe begins: the schedules and baselines of probes are unreadable (%s)'
            % unreadable,) if unreadable else ())

    @property
    def busy(self) -> bool:
        return self._run is not None

    @property
    def active_id(self) -> Optional[int]:
        """The probe that is running or cleaning up."""
        return None if self._run is None or self._record is None else self._record.id

    def affects_latency(self, now: float, stats_period: float) -> bool:
        """Whether a probe may affect what the OSDs report now, a run that has just ended included:
        reports are late. A clean-up longer than LEFT_SECONDS only waits for mons, OSDs or an
        operator, perhaps for days: the watch must be able to learn meanwhile. `stats_period`:
        seconds between two reports of an OSD."""
        if self._run is not None and (self._run.state != CLEANING
                                      or now - self._cleaning_since <= LEFT_SECONDS):
            return True
        return now - self._last_ended < EFFECT_PERIODS * stats_period

    def loaded(self, now: float, stats_period: float) -> Touched:
        """The OSDs and pools of which the present reports may contain operations of a probe."""
        return self._loaded.lately(now, EFFECT_PERIODS * stats_period)

    # ---- life

    def load(self, now: float) -> None:
        """Load what an earlier mgr left in the store, when this mgr becomes active."""
        for record in self._archive.load():
            self._history.put(record)
        self._settings.unreadable = self._try_to_load(SETTINGS, self._load_settings)
        # Separately: what is on the cluster must be removed even if the settings are unreadable.
        self._journal_error = self._try_to_load(JOURNAL, lambda: self._load_journal(now))

    def _try_to_load(self, name: str, load: Callable[[], None]) -> str:
        """Call `load`, which reads the document `name`. Returns why it cannot be read; '': it can.
        An unreadable document is left unchanged: another version wrote it, and an mgr of that
        version may become active again."""
        try:
            if self._store.is_newer(name):
                raise Malformed('written by a newer version of perfguard')
            load()
        except Malformed as error:
            self._note(Event('store', 'cannot read the stored probes (%s): %s' % (name, error)))
            return str(error)
        return ''

    def _load_settings(self) -> None:
        """Take over schedules and baselines. Damaged ones are set aside, and the store reports
        them: no version could read them. Raises Newer."""
        try:
            self._settings.load(self._store.get(SETTINGS))
        except Newer:
            raise
        except Malformed as error:
            self._store.set_aside_unreadable(SETTINGS, str(error))

    def _load_journal(self, now: float) -> None:
        """Take over the run of an earlier mgr, which failed, to clean up after it. A bench has
        nothing to clean up: only its record is filed. Raises Malformed."""
        document = self._store.read(JOURNAL)
        if document is None:
            return
        journal: RunJournal = decode(RunJournal, document)
        self._record = record = journal.record
        if journal.site is None:
            # A bench leaves nothing to clean up, but continues without its mgr, on one OSD.
            self._loaded.note(now + BENCH_SECONDS,
                              Touched(frozenset(record.target.osds), frozenset()))
            self._end(now, FAILED, 'the mgr that began the probe failed or stopped')
            return
        taken_over = replace(journal.site, stage=CLEANING)
        self._run = self._probe_run(taken_over, checked=None, now=now)
        self._cleaning_since = now
        if taken_over.abandoned:
            # An operator has given up the clean-up, and the mgr failed before it filed the record.
            self._finish_abandoned(self._run, now)
            return
        self._note(Event('probe', 'cleaning up after probe %d' % record.id,
                         'this mgr became active'))

    def _probe_run(self, resources: RunResources, checked: Optional[CheckedRun],
                   now: float) -> ProbeRun:
        return ProbeRun(self._cluster, self._keep, resources, checked, now, self._tools,
                        self._may_write)

    def close(self) -> None:
        """The module is being stopped."""
        if self._run is not None:
            self._run.close()

    def _keep(self, resources: Optional[RunResources]) -> bool:
        """Journal what the active probe has created, or is about to create (None: nothing, since it
        is a bench). Returns whether the mons have stored it."""
        assert self._record is not None
        if not self._may_write():
            return False
        self._store.put(JOURNAL, encode(RunJournal(self._record, resources)))
        return self._journal_is_stored()

    # ---- orders

    def carry_out(self, waiting: WaitingProbe, observation: Observation, view: View,
                  options: Options, moving: bool) -> Optional[Document]:
        """Carry out an order, in the loop. Returns the answer to its command; None: call it again
        in the next turn, because a job of the order is still running. `moving`: a campaign is
        active. Raises Refused or BadJob."""
        order = waiting.order
        if isinstance(order, RunOrder):
            checked = self._checked(order, observation, view, options, moving)
            if not self._placement_is_checked(waiting, checked, view):
                return None
            if order.dry_run:
                return {**checked.preview, 'dry_run': True}
            return self._begin(checked, observation)
        if isinstance(order, NewSchedule):
            return self._add_schedule(waiting, order, observation, view, options, moving)
        if isinstance(order, ImportedRun):
            return self._import(order.text, observation.osdmap.fsid)
        if isinstance(order, DroppedSchedule):
            return self._drop_schedule(order.key)
        # For any id: that of an unreadable journal is unknown.
        if order.verb == 'probe cancel --force' and self._journal_error:
            return {'id': order.run, 'message': self._abandon_journal()}
        if order.verb == 'probe baseline --rm':
            self._settings.drop_baseline(order.run)
            return {'id': order.run, 'message': 'baseline removed'}
        verbs: Dict[str, Callable[[RunRecord], str]] = {
            'probe cancel': self._cancel, 'probe rm': self._forget,
            'probe cancel --force': lambda record: self._abandon(record, observation.now),
            'probe baseline': self._set_baseline}
        return {'id': order.run, 'message': verbs[order.verb](self._record_of(order.run))}

    def _placement_is_checked(self, waiting: WaitingProbe, checked: CheckedRun, view: View) -> bool:
        """Check outside the loop whether the chosen OSDs lead enough PGs. Returns whether they do,
        or no check is needed; False: call it again in the next turn. Raises BadJob if they do not,
        and Refused if too many jobs wait."""
        placement_check = checked.placement_check(view)
        if placement_check is None:
            return True
        if waiting.job is None:
            waiting.job = self._tools.submit(placement_check)
            if waiting.job is None:
                raise Refused(errno.EAGAIN, 'too many previews are being computed: try again in '
                              'a moment')
        if not waiting.job.done:
            return False
        waiting.job.result()  # raises BadJob
        return True

    def _record_of(self, run: int) -> RunRecord:
        if self._record is not None and self._record.id == run:
            return self._record
        record = self._history.get(run)
        if record is None:
            raise no_such_probe(run)
        return record

    def _checked(self, order: RunOrder, observation: Observation, view: View, options: Options,
                 moving: bool) -> CheckedRun:
        """The check of an order that begins a run. Its result contains why the run may not begin
        now, also that another version than that of this mgr is installed. Raises Refused or BadJob
        if the order is invalid."""
        checked = check_run(order, self._cluster, observation, view, options, moving)
        upgrade_refusals = self._look_for_upgrade(observation.now)
        # A bench of the stores needs no worker, whose files may be of another version.
        if order.store or not upgrade_refusals:
            return checked
        refusals = (*upgrade_refusals, *checked.refusals)
        return replace(checked, refusals=refusals,
                       preview={**checked.preview, 'refusals': list(refusals)})

    def _look_for_upgrade(self, now: float) -> Tuple[str, ...]:
        """Read the installed version. If it is not the version of this mgr, which must be restarted
        then, note for `remarks` and return why no probe begins: a worker is of the installed
        version, and refuses requests of another one. Returns () if it is the same."""
        installed, self._version_read = installed_version(), now
        self._upgrade_remarks = () if installed == VERSION else (
            (other_version(VERSION, installed) if installed else NO_FILES)
            + '; no probe begins until then',)
        return self._upgrade_remarks

    def _begin(self, checked: CheckedRun, observation: Observation) -> Json:
        """Begin a run: give it an id, and journal it; its first turn creates what it needs. Returns
        the answer to the command. Raises Refused."""
        if self._record is not None:
            raise Refused(errno.EBUSY, 'probe %d is active: wait until it has ended, or stop it '
                          'with "probe cancel %d"' % (self._record.id, self._record.id))
        if self._journal_error:
            raise Refused(errno.EBUSY, 'the journal of an earlier probe is unreadable (%s): '
                          'upgrade this mgr, or give up the clean-up of that probe '
                          'with "probe cancel 0 --force"' % self._journal_error)
        if checked.refusals:
            raise Refused(errno.EBUSY, '%s; "preview probe" with the same arguments shows when it '
                          'may begin' % '; '.join(checked.refusals))
        run, now = self._archive.new_id(), observation.now
        self._order, self._clients = checked.order, AffectedClients()
        self._record = RunRecord(
            run, PREPARING, checked.profile, checked.target, now, trigger=checked.order.trigger,
            setting=setting_of(self._cluster.release(),
                               0 if checked.order.store else checked.pg_num,
                               self._cluster.config_entries(),
                               self._cluster.drives(checked.osds_at_work).values(),
                               '' if checked.order.store else self._cluster.mgr_host(),
                               checked.redundancy),
            **_pool_conditions(checked, observation))
        if checked.order.store:
            self._keep(resources=None)  # a bench creates nothing
            self._run = StoreRun(self._cluster, checked.target.osds, checked.repeat, now,
                                 self._may_write)
        else:
            pool_name = own_pool(run) if checked.pool is None else checked.pool.name
            resources = RunResources(run, pool_name, own=checked.pool is None, image=checked.image)
            self._keep(resources)
            self._run = self._probe_run(resources, checked, now)
        self._note(Event('probe', 'probe %d of %s' % (run, checked.target.key),
                         'requested by %s' % checked.order.trigger))
        return {**checked.preview, 'dry_run': False, 'id': run}

    def _import(self, text: str, fsid: str) -> Json:
        """Keep the record of a run of perfguard-probe or fio on client hosts. Raises Refused if it
        is known already, and BadJob if it is invalid. `fsid`: of this cluster."""
        record = imported_record(text, fsid)
        for imported in self._history.all():
            # A run is identified by the instant at which it was created, and its target.
            if imported.trigger == IMPORTED and (imported.created, imported.target) == (
                    record.created, record.target):
                raise Refused(errno.EEXIST, 'already imported as probe %d' % imported.id)
        record = replace(record, id=self._archive.new_id())
        self._file(record, 'probe %d of %s imported' % (record.id, record.target.key),
                   'measured on %s' % record.setting[CLIENT])
        return {'id': record.id, 'message': 'imported as probe %d' % record.id}

    def _file(self, record: RunRecord, subject: str, why: str) -> None:
        """Keep the record of an ended run, and compare it with its baseline."""
        self._history.put(record)
        self._archive.put(record)
        self._note(Event('probe', subject, why))
        if record.state == DONE:
            self._settings.compare_later(record, self._history)

    def _cancel(self, record: RunRecord) -> str:
        """Stop the active run; its clean-up follows. Returns the message for the operator. Raises
        Refused if the run is not active, or is cleaning up already."""
        if self._run is None or record is not self._record:
            raise _not_active(record)
        if self._run.state == CLEANING:
            raise Refused(errno.EBUSY, 'probe %d has ended and is cleaning up (%s): wait, or give '
                          'up the clean-up with "probe cancel %d --force"' % (
                              record.id, self._run.text, record.id))
        self._run.end(CANCELLED, 'by command')
        return 'stopping'

    def _abandon(self, record: RunRecord, now: float) -> str:
        """Give up the clean-up of the active run, which prevents all other probes. Returns the
        message for the operator. Raises Refused if the run is not cleaning up."""
        run = self._run
        if run is None or record is not self._record:
            raise _not_active(record)
        if not isinstance(run, ProbeRun) or run.state != CLEANING:
            raise Refused(errno.EBUSY, 'probe %d is %s ("probe cancel" stops it)'
                          % (record.id, run.state))
        return self._finish_abandoned(run, now)

    def _abandon_journal(self) -> str:
        """Set aside an unreadable journal, and give up the clean-up of its run, of which only the
        prefix of all names is known. Returns the message for the operator."""
        self._journal_error = ''
        self._store.set_aside(JOURNAL)
        text = ('journal set aside; the probe may have left users %s, pools %s, and '
                'objects %s* in namespace %s' % (
                    'client.' + PROBE_PREFIX + '*', PROBE_PREFIX + '*', PROBE_PREFIX, NAMESPACE))
        self._note(Event('probe', 'the clean-up of an earlier probe was abandoned', text))
        return text

    def _finish_abandoned(self, run: ProbeRun, now: float) -> str:
        stays = run.abandon()
        text = 'clean-up abandoned; remaining: %s' % (', '.join(stays) or 'nothing')
        self._finish(run, now, text)
        return text

    def _forget(self, record: RunRecord) -> str:
        """Remove the record of a run. Returns the message for the operator. Raises Refused if the
        run is active or a baseline."""
        if record is self._record:
            raise Refused(errno.EBUSY, 'probe %d is active ("probe cancel" stops it)' % record.id)
        if record.id in self._settings.now.baselines.ids:
            raise Refused(errno.EBUSY, 'probe %d is a baseline (run "probe baseline %d --rm" first)'
                          % (record.id, record.id))
        self._remove(record.id)
        return 'forgotten'

    def _remove(self, run: int) -> None:
        self._history.remove(run)
        self._archive.remove(run)
        self._settings.forget_run(run)

    def _set_baseline(self, record: RunRecord) -> str:
        self._settings.set_baseline(record)
        return 'later probes with the same jobs and OSDs or pool are compared with it'

    def _add_schedule(self, waiting: WaitingProbe, order: NewSchedule, observation: Observation,
                      view: View, options: Options, moving: bool) -> Optional[Document]:
        """Store a schedule whose order is valid. Returns the answer to its command; None: its OSDs
        are still being checked. Raises Refused, BadJob or BadWindow."""
        self._settings.refuse_if_unreadable()
        if order.key in SCHEDULE_VERBS:
            raise Refused(errno.EINVAL, 'invalid schedule name %r: "probe ls" lists schedules, '
                          '"probe schedule <name> --rm" removes one' % order.key)
        schedule = schedule_of(order.key, order.run, order.window)
        # Raises if the order is invalid. Why it cannot begin now (`refusals`) does not matter here.
        checked = check_run(order.run, self._cluster, observation, view, options, moving)
        if not self._placement_is_checked(waiting, checked, view):
            return None
        self._settings.add_schedule(schedule)
        self._attempts.forget(schedule.name)
        return {**schedule_to_json(schedule), 'message': 'scheduled'}

    def _drop_schedule(self, name: str) -> Json:
        self._settings.drop_schedule(name)
        self._attempts.forget(name)
        return {'name': name, 'message': 'dropped'}

    # ---- one turn

    def turn(self, observation: Observation, view: View, options: Options, moving: bool,
             closing: bool = False) -> None:
        """Run one turn: follow the active run, or begin one that is due. `moving`: a campaign is
        active. `closing`: schedules begin no run."""
        if self._settings.comparing and self._may_write():
            self._settings.compare_next(self._history)
        if observation.now - self._version_read >= SCHEDULE_AGAIN_SECONDS:
            self._look_for_upgrade(observation.now)
        if self._run is None and not closing:
            self._start_due(observation, view, options, moving)
        run = self._run
        if run is not None:
            self._follow(run, observation, view, moving, options.campaign_interval)
        self._note_load(run, observation)
        self._drop_outlived(options)
        self._publish(observation)

    def _start_due(self, observation: Observation, view: View, options: Options,
                   moving: bool) -> None:
        """Begin a probe that a schedule makes due: the first one that can begin now. Notes why the
        others before it cannot."""
        settings = self._settings.now
        names = due_schedules(settings.schedules, settings.begun, observation.now,
                              observation.clock_set)
        for name in self._attempts.next_ones(names, observation.now):
            if not self._may_write():
                return
            order = next(schedule.run for schedule in settings.schedules if schedule.name == name)
            # With the placement check of an earlier turn, if that was for this order.
            waiting = self._scheduled if self._scheduled.order == order else ScheduledOrder(order)
            self._scheduled = ScheduledOrder()
            try:
                checked = self._checked(order, observation, view, options, moving)
                if not self._placement_is_checked(waiting, checked, view):
                    # The next turn continues this attempt.
                    self._scheduled = waiting
                    self._attempts.retry_now(name)
                    return
                self._begin(checked, observation)
            except PerfguardError as refused:
                self._note_refusal(name, str(refused))
            except Exception as error:
                # An error here must not stop the loop.
                log.exception('scheduled probe %s', name)
                self._note_refusal(name, 'internal error: %r' % error)
            else:
                self._settings.note_begun(name, observation.now)
                self._attempts.forget(name)
                return

    def _note_refusal(self, name: str, why: str) -> None:
        """Note why a scheduled probe cannot begin; the event is sent once per window."""
        if self._attempts.note_refusal(name, why):
            self._note(Event('refused', 'scheduled probe %s' % name, why))

    def _follow(self, run: Run, observation: Observation, view: View, moving: bool,
                interval: float) -> None:
        """Run one turn of the active run, and file its record once it has cleaned up. `interval`:
        of the loop, in seconds."""
        assert self._record is not None
        try:
            run.turn(observation.now, view, observation.signals,
                     self._stop_reasons(run, observation, view, moving), interval)
        except Exception as error:
            # Any error: the loop must continue, and what was created must be removed.
            log.exception('probe %d', self._record.id)
            run.end(FAILED, 'internal error: %r' % error)
        if run.state != CLEANING:
            self._cleaning_since = observation.now
        if run.finished and self._may_write():
            self._finish(run, observation.now)
        else:
            self._cluster.progress(progress_id(self._record.id), 'perfguard probe %d: %s' % (
                self._record.id, run.text), run.share)

    def _stop_reasons(self, run: Run, observation: Observation, view: View,
                      moving: bool) -> List[str]:
        """Why the run may not continue; empty: it may. Also takes the last reading of the clients
        that the run affects."""
        own_pool, displaced = -1, ''
        if isinstance(run, ProbeRun):
            displaced = run.displaced(view)
            if run.resources.own:
                own_pool = run.resources.pool_id
        texts = stop_reasons(observation, self._order.during_campaign, own_pool)
        if displaced:
            texts.append(displaced)
        loaded = self.loaded(observation.now, observation.stats_period)
        self._clients.take_reading(observation.clients, loaded, observation.slow_osds)
        if not ignores_clients(observation.signals):
            texts += self._clients.over_limit(observation.clients)
        if moving and not self._order.during_campaign:
            texts.append('a campaign began')
        return texts

    def _note_load(self, run: Optional[Run], observation: Observation) -> None:
        """Note the OSDs and pools that probes load now: the active run, and benches of OSDs, also
        those that were not answered in time and still run."""
        loaded = NOTHING
        if isinstance(run, ProbeRun):
            loaded = run.loads(observation)
            if not run.resources.own and run.state != CLEANING:
                # The operations of clients in this pool must not include those of the probe.
                self._cluster.read_without_probes(WITHOUT_PROBES_SECONDS)
        osds = loaded.osds | self._cluster.asked(BENCH)
        self._loaded.note(observation.now, replace(loaded, osds=osds))

    def _finish(self, run: Run, now: float, remark: str = '') -> None:
        """End a run that has nothing left to do. `remark`: added to its message."""
        assert self._record is not None
        self._cluster.progress_done(progress_id(self._record.id))
        self._run = None
        self._end(now, run.outcome or DONE, '; '.join(filter(None, (run.message, remark))), run)

    def _end(self, now: float, state: str, message: str, run: Optional[Run] = None) -> None:
        """File the record of the active run, and remove its journal. `run`: None if it was a bench
        of an earlier mgr, whose results are lost."""
        assert self._record is not None
        record = replace(self._record, state=state, ended=now,
                         messages=(message,) if message else ())
        if run is not None:
            record = replace(record, started=run.started or 0.0, steps=run.steps,
                             results=run.in_order(), conditions=tuple(run.disturbed_by),
                             counted=run.counted())
        self._last_ended = now
        # Not again, if an earlier mgr has filed it and failed before it removed the journal.
        if self._history.get(record.id) is None:
            self._file(record, 'probe %d is %s' % (record.id, state), message)
        self._record = None
        self._store.remove(JOURNAL)

    def _drop_outlived(self, options: Options) -> None:
        """Remove the oldest record beyond probe_history, if there is one."""
        outlived = self._history.outlived(options.probe_history, self._settings.now.baselines.ids)
        # One per turn: a write takes the mon some milliseconds, and a lower limit or a run with
        # many steps may end hundreds of records at once.
        if outlived and self._may_write():
            self._remove(outlived[0])

    def checks(self, now: float) -> HealthChecks:
        """The health checks of probes, as MgrModule.set_health_checks takes them."""
        checks = dict(health_check([regression for regression in self._settings.now.regressions
                                    if not self._is_gone(regression.run)]))
        if isinstance(self._run, ProbeRun) and now - self._cleaning_since > LEFT_SECONDS:
            checks.update(leftover_check(self._run.resources, self._run.text))
        if self._journal_error:
            checks.update(unreadable_journal_check(self._journal_error))
        return checks

    def _is_gone(self, run: int) -> bool:
        """Whether the pool of the operator that a run measured was deleted. An OSDMap without pools
        may be the initial one, so it proves nothing."""
        record = self._history.get(run)
        pool = record.target.pool if record is not None else ''
        return bool(pool and self._layouts) and pool not in self._layouts

    @property
    def held(self) -> List[Row]:
        """What the active run has borrowed from the cluster."""
        if not isinstance(self._run, ProbeRun) or self._record is None:
            return []
        return probe_rows(self._run.resources, self._record.created)

    def stop(self, why: str) -> None:
        """End the active run, unless it is already cleaning up or ending. `why`: its message."""
        if self._run is not None and self._run.state != CLEANING and not self._run.outcome:
            self._run.end(CANCELLED, why)

    def status(self) -> Optional[ActiveProbe]:
        """The active run; None: there is none."""
        if self._run is None or self._record is None:
            return None
        return ActiveProbe(self._record.id, self._run.state, self._record.target.key,
                           round(self._run.share, 3), self._run.text)

    def _publish(self, observation: Observation) -> None:
        """Publish the records and settings for commands, the page and metrics."""
        run, record = self._run, self._record
        if record is not None and run is not None:
            record = replace(record, state=run.state, started=run.started or 0.0,
                             steps=run.steps, results=run.in_order(), messages=(run.text,))
        self._update_places(observation)
        settings = self._settings.now
        self.probed = Probed(
            records=tuple(self._history.all()), running=record,
            schedules=settings.schedules, refused=dict(self._attempts.reasons),
            baselines=settings.baselines, regressions=settings.regressions,
            places=self._places, layouts=self._layouts, caches=self._caches)

    def _update_places(self, observation: Observation) -> None:
        """Compute the places of OSDs and the layouts of pools again if the OSDMap or CRUSH has
        changed: this considers each OSD for each rule."""
        key = (observation.osdmap.epoch, observation.crush_version)
        if key == self._placed_for:
            return
        crush = observation.crush
        self._placed_for = key
        self._places = {
            osd.id: OsdPlace(osd.id, crush.host_of(osd.id) or '', crush.root_of(osd.id),
                             crush.class_of(osd.id))
            for osd in observation.osdmap.osds.values() if osd.is_up_and_in}
        self._layouts = layouts_of(observation)


def _pool_conditions(checked: CheckedRun, observation: Observation) -> Dict[str, Any]:
    """The fields of the record for a probe of a pool: the number of OSDs that it uses, and the
    operations per second of clients of this pool and of others on its OSDs."""
    if checked.pool is None:
        return {}
    clients = observation.clients.pools.get(checked.pool.id)
    return {'osds': len(checked.osds_at_work),
            'beside': round(clients.rate + clients.others_rate, 1) if clients else 0.0}


def _not_active(record: RunRecord) -> Refused:
    return Refused(errno.EINVAL, 'probe %d is not active: it is %s ("probe show %d" has its '
                   'results)' % (record.id, record.state, record.id))


def progress_id(run: int) -> str:
    """The id of a progress event. All mgrs use the same one, so that an mgr takes over the event
    of another."""
    return 'perfguard-probe-%d' % run
