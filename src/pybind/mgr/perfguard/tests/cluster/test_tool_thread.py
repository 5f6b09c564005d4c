# SPDX-License-Identifier: LGPL-2.1-or-later
"""Jobs beside the loop run one after the other, not too many, also if one fails."""
import threading
from typing import Iterator, List

import pytest

from perfguard.cluster import tool_thread
from perfguard.cluster.tool_thread import ToolJob, ToolThread

DEADLINE = 30.0


class Busy:
    """A thread whose first job lasts until `go`."""

    def __init__(self) -> None:
        self.go, self.woken = threading.Event(), threading.Semaphore(0)
        self.tools = ToolThread(self.woken.release)
        self.begun: List[int] = []
        begun = threading.Event()

        def task() -> None:
            begun.set()
            assert self.go.wait(DEADLINE)

        assert self.tools.submit(task) is not None
        assert begun.wait(DEADLINE)

    def put(self, number: int, first: bool = False) -> ToolJob[int]:
        def task() -> int:
            self.begun.append(number)
            return number

        job = self.tools.submit(task, first)
        assert job is not None
        return job

    def end(self, jobs: int) -> None:
        self.go.set()
        for _ in range(jobs + 1):
            assert self.woken.acquire(timeout=DEADLINE)


@pytest.fixture()
def busy() -> Iterator[Busy]:
    found = Busy()
    yield found
    found.go.set()
    found.tools.close()


def test_one_after_the_other_and_the_campaign_first(busy: Busy) -> None:
    jobs = [busy.put(1), busy.put(2), busy.put(3, first=True)]
    assert not any(job.done for job in jobs)
    busy.end(3)
    assert busy.begun == [3, 1, 2] and [job.result() for job in jobs] == [1, 2, 3]


def test_few_wait(busy: Busy) -> None:
    jobs = [busy.put(number) for number in range(tool_thread.MAX_WAITING)]
    assert busy.tools.submit(lambda: 0) is None
    busy.put(-1, first=True)
    jobs[0].cancelled = jobs[1].cancelled = True
    busy.put(9)


def test_what_is_not_waited_for_does_not_begin(busy: Busy) -> None:
    first, second = busy.put(1), busy.put(2)
    first.cancelled = True
    busy.end(2)
    assert busy.begun == [2] and second.result() == 2


def test_errors_belong_to_whoever_asked() -> None:
    woken = threading.Semaphore(0)
    tools = ToolThread(woken.release)
    none: List[int] = []
    bad, good = tools.submit(lambda: none[1]), tools.submit(lambda: 1)
    assert bad is not None and good is not None
    for _ in range(2):
        assert woken.acquire(timeout=DEADLINE)
    with pytest.raises(IndexError):
        bad.result()
    assert good.result() == 1
    tools.close()
    assert tools.submit(lambda: 1) is None and tools.submit(lambda: 1, first=True) is None
