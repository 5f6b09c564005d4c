# SPDX-License-Identifier: LGPL-2.1-or-later
"""A thread for work that would block the loop, such as tools of Ceph on copies of the maps.

The loop submits a job and reads its result in a later turn.
"""
import collections
import logging
import threading
from typing import Any, Callable, Deque, Generic, Optional, Tuple, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar('Result')

#: Number of waiting jobs from which on only jobs that go first are accepted.
MAX_WAITING = 4
#: Maximum time to wait for the running job when the module stops.
CLOSE_SECONDS = 5.0


class ToolJob(Generic[Result]):
    """A task and its result."""

    def __init__(self, task: Callable[[], Result]) -> None:
        self._task = task
        self._ended = threading.Event()
        self._result: Optional[Result] = None
        self._error: Optional[BaseException] = None
        #: The result is no longer needed, so the job does not begin.
        self.cancelled = False

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def succeeded(self) -> bool:
        return self.done and self._error is None

    def run(self) -> None:
        """Do the job in the thread."""
        try:
            if not self.cancelled:
                self._result = self._task()
        except BaseException as error:  # result() raises it in the loop
            self._error = error
        finally:
            self._ended.set()

    def result(self) -> Result:
        """The result of a job that is done; raises the exception of the task."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


#: A job whose result depends on its order.
AnyJob = ToolJob[Any]


class ToolThread:
    """Runs jobs one by one."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called by the thread after each job."""
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: Deque[AnyJob] = collections.deque()
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def submit(self, task: Callable[[], Result], first: bool = False) -> Optional[ToolJob[Result]]:
        """Give a job to the thread. None if the thread is closed, or too many jobs wait
        (MAX_WAITING). `first`: before all waiting jobs, without this limit, as for a change that a
        campaign prepares, or for an active probe."""
        job = ToolJob(task)
        with self._changed:
            waiting = [queued for queued in self._waiting if not queued.cancelled]
            if self._closed or len(waiting) >= MAX_WAITING and not first:
                return None
            self._waiting = collections.deque([job, *waiting] if first else [*waiting, job])
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name='perfguard-tools',
                                                daemon=True)
                self._thread.start()
            self._changed.notify()
        return job

    def close(self) -> None:
        """Begin no further job, and wait for the running one for a limited time."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                log.warning('a tool of Ceph is still running')

    def _run(self) -> None:
        """The thread: do the jobs one after the other until it is closed."""
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._waiting.popleft()
            job.run()
            self._wake()


class Recomputed(Generic[Result]):
    """A result that is computed again whenever its basis changes."""

    def __init__(self, tools: ToolThread) -> None:
        self._tools = tools
        #: The basis, and the job.
        self._job: Optional[Tuple[object, ToolJob[Result]]] = None

    def result(self, basis: object,
               prepare: Callable[[], Callable[[], Result]]) -> Optional[Result]:
        """The result for this basis; None: it is being computed, or the thread is closed. Raises
        what the task raises. A result is handed out once: the next call computes it again.

        `prepare`: reads what the loop's thread alone may read, and returns the task.
        """
        if self._job is None or self._job[0] != basis:
            if self._job is not None:
                self._job[1].cancelled = True
            job = self._tools.submit(prepare(), first=True)
            self._job = None if job is None else (basis, job)
        if self._job is None or not self._job[1].done:
            return None
        # Removed first: its error must not be raised in every later turn.
        done, self._job = self._job[1], None
        return done.result()
