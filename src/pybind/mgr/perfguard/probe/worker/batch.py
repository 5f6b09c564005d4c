# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many operations that nobody measures: prefill, looking, removing."""
import errno
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from .errors import Cancelled, Failed

#: Sends one operation; what it is given is the completion's callback.
Send = Callable[[Callable[..., None]], Any]
#: How long a cancellation may be overlooked.
LOOK_SECONDS = 0.05


class Batch:
    """Keeps up to `in_flight` operations under way until a deadline (time.monotonic)."""

    def __init__(self, in_flight: int, deadline: float,
                 cancelled: Callable[[], bool] = lambda: False) -> None:
        self._in_flight = in_flight
        self._deadline = deadline
        self._cancelled = cancelled
        self._changed = threading.Condition()
        self._open = 0
        #: The label of the first operation that failed, and what it returned.
        self.failure: Optional[Tuple[str, int]] = None
        #: By label: what the operation returned.
        self.returned: Dict[str, int] = {}
        #: By label: what else was given to the callback.
        self.values: Dict[str, Any] = {}

    def submit(self, label: str, send: Send) -> None:
        """Wait for a place, and send. Raises Failed (ETIMEDOUT) or Cancelled."""
        self._wait(self._in_flight - 1)
        with self._changed:
            self._open += 1

        def done(completion: Any, *values: Any) -> None:
            self._note(label, completion.get_return_value(), values)

        try:
            send(done)
        except Exception as e:
            # Refused by librados itself; its errors have an errno and no base class of Python's.
            self._note(label, -abs(getattr(e, 'errno', None) or errno.EIO), ())

    def _note(self, label: str, returned: int, values: Any) -> None:
        with self._changed:
            self._open -= 1
            self.returned[label] = returned
            self.values[label] = values
            if returned < 0 and self.failure is None:
                self.failure = label, returned
            self._changed.notify()

    def finish(self) -> None:
        """Wait for all. Raises Failed (ETIMEDOUT) or Cancelled."""
        self._wait(0)

    def _wait(self, open_at_most: int) -> None:
        with self._changed:
            while self._open > open_at_most:
                if self._cancelled():
                    raise Cancelled()
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise Failed(errno.ETIMEDOUT,
                                 'operations without an answer in time: %d' % self._open)
                self._changed.wait(min(left, LOOK_SECONDS))
