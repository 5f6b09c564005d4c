# SPDX-License-Identifier: LGPL-2.1-or-later
"""Functions in place of others."""
from typing import Any, Callable, List

from perfguard.watch.rounds import Result, Work


def noting(calls: List[Any], answer: Any) -> Callable[..., Any]:
    """A function that notes its arguments."""
    def noted(*given: Any) -> Any:
        calls.append(given)
        return answer
    return noted


def whole(work: Work[Result]) -> Result:
    """Do all steps of a round at once, as a small cluster does."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
