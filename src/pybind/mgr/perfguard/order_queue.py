# SPDX-License-Identifier: LGPL-2.1-or-later
"""Orders that the loop answers while the command that gave one waits.

What an order will do, and whether it can be done, is not in what the loop publishes: it takes maps,
tools and commands of its own. The command's thread must not send commands, so the loop does it.
"""
import errno
import queue
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from .cluster.tool_thread import Job
from .rebalance.requests import Refused

Json = Dict[str, Any]

#: Seconds that a command waits for the loop's answer.
PATIENCE_SECONDS = 30.0


@dataclass
class Consultation:
    """One order, of whatever kind, and the loop's answer to it."""
    order: Any
    #: It was refused a moment ago, which was noted then.
    again: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    answer: Optional[Json] = None
    refused: Optional[Refused] = None
    #: What is worked out for it outside the loop's thread; None: not begun, or not needed.
    job: Optional[Job[Any]] = None
    #: The version of CRUSH that the job takes for granted.
    crush_version: int = -1


class Desk:
    """Where commands wait and the loop answers."""

    def __init__(self) -> None:
        self._queue: 'queue.Queue[Consultation]' = queue.Queue()
        self._lock = threading.Lock()
        self._closed = False
        #: Orders that wait for their jobs. The loop's thread only.
        self._held: List[Consultation] = []
        #: The last one that was not waited for.
        self._left: Optional[Consultation] = None

    def put(self, order: Any, again: bool = False) -> Consultation:
        consultation = Consultation(order, again)
        self._queue.put(consultation)
        if self._closed:
            self.close()
        return consultation

    def ask(self, order: Any, wake: Callable[[], None], again: bool = False) -> Json:
        """For the command's thread: waits for the loop's answer; raises Refused."""
        consultation = self.put(order, again)
        wake()
        consultation.done.wait(PATIENCE_SECONDS)
        with self._lock:
            if not consultation.done.is_set():
                consultation.refused = Refused(
                    errno.ETIMEDOUT, 'no answer within %d s: see "perfguard status", and try again'
                    % PATIENCE_SECONDS)
                consultation.done.set()
        if consultation.refused is not None:
            raise consultation.refused
        assert consultation.answer is not None
        return consultation.answer

    def take(self) -> List[Consultation]:
        """For the loop: all orders that are still waited for, those first that `hold` was given.

        The jobs of the others are called off, but for the last one: whoever gave the order may
        give it again.
        """
        held, self._held = self._held, []
        while True:
            try:
                held.append(self._queue.get_nowait())
            except queue.Empty:
                break
        for consultation in held:
            if consultation.done.is_set() and consultation.job is not None:
                if self._left is not None and self._left.job is not None:
                    self._left.job.cancelled = True
                self._left = consultation
        return [consultation for consultation in held if not consultation.done.is_set()]

    def hold(self, consultation: Consultation) -> None:
        """For the loop: it cannot be answered in this turn."""
        self._held.append(consultation)

    def worked_out(self, order: Any, crush_version: int) -> Optional[Job[Any]]:
        """For the loop: the job of the same order, whose answer came too late."""
        left = self._left
        if left is None or left.order != order or left.crush_version != crush_version:
            return None
        self._left = None
        return left.job

    def holds(self, verb: str) -> bool:
        """For the loop: an order of this verb that changes something waits for its job."""
        return any(held.order.verb == verb and not held.order.dry_run for held in self._held)

    def close(self) -> None:
        """Let nobody wait for a loop that turns no more, now and from now on."""
        self._closed = True
        self.refuse('perfguard is shutting down')

    def refuse(self, why: str) -> None:
        """Answer all who wait now that they may try again."""
        for consultation in self.take():
            consultation.refused = Refused(errno.EAGAIN, why)
            consultation.done.set()
