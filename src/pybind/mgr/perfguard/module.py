# SPDX-License-Identifier: LGPL-2.1-or-later
"""The MgrModule: options, wiring, the serve loop, the self-test. No logic."""
import json
import logging
import threading
import time
from typing import Any, Callable, List, Optional

from mgr_module import MgrModule, MgrStandbyModule

from . import tables
from .cli import Commands
from .clock import Clock
from .cluster.mgr import MgrCluster
from .compat import CLICommand, module_option, notify_types
from .errors import PerfguardError, Tracebacks
from .loop.loop import Loop
from .metrics.endpoint import Endpoint, place_of
from .metrics.page import Build, MetricsPage
from .options import OPTIONS, LiveOptions, version_option
from .status import Published, overview
from .store import Store
from .version import VERSION

log = logging.getLogger(__name__)

#: Interval of reading the options: standby modules are not notified of changes.
STANDBY_LOOK_SECONDS = 5.0


class Module(Commands, MgrModule):
    CLICommand = CLICommand
    MODULE_OPTIONS = [module_option(**spec) for spec in (*OPTIONS, version_option(VERSION))]
    NOTIFY_TYPES = notify_types('osd_map', 'clog')

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = threading.Event()
        self._options = LiveOptions(self.get_module_option, self.get_localized_module_option,
                                    self.get_mgr_id)
        metrics = MetricsPage(self._build)
        self._metrics = Endpoint(lambda: metrics.page(self.loop.published, self.loop.probed()),
                                 lambda: place_of(self._options.localized))
        clock = Clock()
        self._cluster = MgrCluster(self, self._stop.is_set, clock)
        self.loop = Loop(self._cluster, Store(self), self._options.read, clock, self._remarks)

    def serve(self) -> None:
        """The thread of the module on the active mgr: load the state, then run one turn after the
        other until `shutdown`. An error in a part of an iteration is logged, and the next iteration
        follows."""
        tracebacks = Tracebacks()
        self.loop.load()
        try:
            while not self._stop.is_set():
                _attempt(self._note_removed_options, tracebacks)
                _attempt(self._metrics.tend, tracebacks)
                error = _attempt(self.loop.turn, tracebacks)
                if error is not None:
                    self.loop.failed(error)
                self.loop.wait()
        finally:
            try:
                self._metrics.close()
            finally:
                self.loop.close()

    def _remarks(self) -> List[str]:
        return self._metrics.remarks() + self._options.remarks()

    def _note_removed_options(self) -> None:
        """Note options that were removed from the configuration database."""
        self._options.note_removed(self._cluster.config_entries, time.monotonic())

    def self_test(self) -> None:
        """For "ceph mgr self-test module perfguard"; raises an error if something is wrong."""
        # A separate page, because the endpoint's thread uses the other one.
        metrics = MetricsPage(self._build)
        published = self.loop.published
        run_self_test(self, published, lambda: metrics.page(published, self.loop.probed()),
                      self.loop.clock())

    def _build(self) -> Build:
        return Build(VERSION, self.version, 'mgr.' + self.get_mgr_id())

    def shutdown(self) -> None:
        self._stop.set()
        self.loop.stop()

    def dashboard_overview(self, since: float, pools: List[str]) -> str:
        """For the dashboard, which asks through MgrModule.remote: JSON of status.overview.

        `since`: seconds since the epoch; `pools`: ids; unknown ids are ignored.
        """
        now = self.loop.clock()
        # The clock of the mgr that has answered before may be ahead.
        since = since if since <= now else 0.0
        ids = [int(pool) for pool in pools if pool.isascii() and pool.isdigit() and len(pool) < 12]
        document = overview(self.loop.published, self.loop.probed(), self.loop.drawn(since, ids),
                            since, now)
        return json.dumps({**document, 'name': self.get_mgr_id(), 'fsid': self._cluster.fsid()})

    def config_notify(self) -> None:
        self._options.notify()
        self.loop.wake()

    def notify(self, notify_type: Any, notify_id: Any) -> None:
        """`notify_id`: of "clog", the entry."""
        if notify_type == 'clog':
            self._cluster.hear(notify_id)
        else:
            self.loop.wake_for_map()


def _attempt(task: Callable[[], object], tracebacks: Tracebacks) -> Optional[Exception]:
    """Run a part of an iteration. Returns its error, logged unless it is known, or None: a failed
    turn must not end the loop; the next one starts from the stored state."""
    try:
        task()
    except Exception as error:
        if tracebacks.is_new(error):
            log.exception('a loop iteration failed')
        return error
    return None


# ---- "ceph mgr self-test module perfguard": it changes nothing

#: Handlers whose only argument is the format.
READ_HANDLERS = ('status', 'advise', 'held', 'events', 'osds', 'pools', 'laggy', 'mitigation_ls',
                 'history', 'preview', 'campaign_status', 'campaign_ls', 'probe_ls')


class SelfTestFailed(PerfguardError):
    """One line that names what failed."""


def run_self_test(commands: Any, published: Published, metrics: Callable[[], bytes],
                  now: float) -> None:
    """Check that the loop runs, that commands which only read answer in each format, and that the
    metrics are complete. `commands`: the module, with the handlers; `now`: seconds since the epoch.
    Raises SelfTestFailed, or any error of the module."""
    if not published.turned:
        raise SelfTestFailed('the loop has not completed an iteration yet')
    age = now - published.turned
    if age > published.stale_after:
        raise SelfTestFailed('the loop completed its last iteration %d s ago (limit %d s)'
                             % (age, published.stale_after))
    for name in READ_HANDLERS:
        for format_ in tables.FORMATS:
            _check_answer(name, format_, getattr(commands, name)(format=format_))
    if b'ceph_perfguard_info' not in metrics():
        raise SelfTestFailed('the metrics are incomplete')


def _check_answer(name: str, format_: str, answer: Any) -> None:
    """Raise SelfTestFailed unless a command succeeded with output of its format. `answer`: its
    retval, output and error."""
    retval, out, error = answer
    if retval or not out:
        raise SelfTestFailed('%s --format %s: %d %s' % (name, format_, retval, error))
    if format_ != 'plain' and not isinstance(json.loads(out), dict):
        raise SelfTestFailed('%s --format %s: no JSON object' % (name, format_))


# ---- A standby mgr: it serves an empty page to Prometheus

class StandbyModule(MgrStandbyModule):
    MODULE_OPTIONS = [module_option(**spec) for spec in (*OPTIONS, version_option(VERSION))]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = threading.Event()

    def serve(self) -> None:
        """The thread of a standby mgr: answer Prometheus with an empty page."""
        endpoint = Endpoint(lambda: b'', lambda: place_of(self.get_localized_module_option))
        try:
            while not self._stop.is_set():
                try:
                    endpoint.tend()
                except Exception:
                    log.exception('could not update the metrics server')
                self._stop.wait(STANDBY_LOOK_SECONDS)
        finally:
            endpoint.close()

    def shutdown(self) -> None:
        self._stop.set()
