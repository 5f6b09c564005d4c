# SPDX-License-Identifier: LGPL-2.1-or-later
"""The shell around perfguard: options, wiring, the serve loop. No logic."""
import json
import logging
import threading
import time
from typing import Any, List

from mgr_module import MgrModule, Option

from . import selftest
from .cli import Commands
from .cluster.mgr import MgrCluster
from .compat import CLICommand, module_database, notify_types
from .errors import Tracebacks
from .loop import Loop
from .metrics.endpoint import Endpoint, place_of
from .metrics.page import Build, MetricsPage
from .options import OPTIONS, LiveOptions
from .probe.archive import SCHEMA
from .standby import StandbyModule  # noqa: F401
from .store import Store
from .version import VERSION
from .web.overview import overview

log = logging.getLogger(__name__)


class Module(Commands, MgrModule):
    CLICommand = CLICommand
    MODULE_OPTIONS = [Option(**spec) for spec in OPTIONS]
    NOTIFY_TYPES = notify_types('osd_map')
    #: Of the module database, where the release has one.
    SCHEMA = SCHEMA
    SCHEMA_VERSIONED = [SCHEMA]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = threading.Event()
        self._options = LiveOptions(self.get_module_option, self.get_localized_module_option,
                                    self.get_mgr_id)
        page = MetricsPage(self._build)
        self._metrics = Endpoint(lambda: page.text(self.loop.published, self.loop.probed()),
                                 lambda: place_of(self._options.localized))
        self._cluster = MgrCluster(self, self._stop.is_set)
        self.loop = Loop(self._cluster, Store(self),
                         self._options.read,
                         database=module_database(self), remarks=self._metrics.remarks)

    def serve(self) -> None:
        tracebacks = Tracebacks()
        self.loop.load()
        try:
            while not self._stop.is_set():
                # One bad turn must not end the watch; the next one starts from what is stored.
                for task, failed in ((self._compare_options, None), (self._metrics.tend, None),
                                     (self.loop.turn, self.loop.failed)):
                    try:
                        task()
                    except Exception as error:
                        if tracebacks.is_new(error):
                            log.exception('a loop iteration failed')
                        if failed is not None:
                            failed(error)
                self.loop.wait()
        finally:
            try:
                self._metrics.close()
            finally:
                self.loop.close()

    def _compare_options(self) -> None:
        self._options.compare(self._cluster.config_entries, time.monotonic())

    def self_test(self) -> None:
        """For "ceph mgr self-test module perfguard"; raises where something is wrong."""
        # A page of its own: that of the endpoint belongs to the endpoint's thread.
        page = MetricsPage(self._build)
        published = self.loop.published
        selftest.run(self, published, lambda: page.text(published, self.loop.probed()),
                     time.time())

    def _build(self) -> Build:
        return Build(VERSION, self.version, 'mgr.' + self.get_mgr_id())

    def shutdown(self) -> None:
        self._stop.set()
        self.loop.stop()

    def dashboard_overview(self, since: float, pools: List[str]) -> str:
        """For the dashboard, which asks through MgrModule.remote: JSON of web/overview.py.

        `since`: seconds since the epoch; `pools`: ids, those of none are left out.
        """
        now = time.time()
        # From before a clock was set back.
        since = since if since <= now else 0.0
        ids = [int(pool) for pool in pools if pool.isascii() and pool.isdigit() and len(pool) < 12]
        found = overview(self.loop.published, self.loop.probed(), self.loop.drawn(since, ids),
                         since, now)
        return json.dumps({**found, 'name': self.get_mgr_id(), 'fsid': self._cluster.fsid()})

    def config_notify(self) -> None:
        self._options.notify()
        self.loop.wake()

    def notify(self, notify_type: Any, notify_id: str) -> None:
        self.loop.wake_for_map()
