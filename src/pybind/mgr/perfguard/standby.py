# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard in an mgr that is not active: an empty page where Prometheus looks for metrics."""
import logging
import threading
from typing import Any

from mgr_module import MgrStandbyModule, Option

from .metrics.endpoint import Endpoint, place_of
from .options import OPTIONS

log = logging.getLogger(__name__)

#: Seconds between two looks at the options: standby modules are not told of changes.
LOOK_SECONDS = 5.0


class StandbyModule(MgrStandbyModule):
    MODULE_OPTIONS = [Option(**spec) for spec in OPTIONS]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = threading.Event()

    def serve(self) -> None:
        endpoint = Endpoint(lambda: b'', lambda: place_of(self.get_localized_module_option))
        try:
            while not self._stop.is_set():
                try:
                    endpoint.tend()
                except Exception:
                    log.exception('could not update the metrics server')
                self._stop.wait(LOOK_SECONDS)
        finally:
            endpoint.close()

    def shutdown(self) -> None:
        self._stop.set()
