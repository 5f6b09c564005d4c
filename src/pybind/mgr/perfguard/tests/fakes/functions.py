# SPDX-License-Identifier: LGPL-2.1-or-later
"""Functions in place of others."""
from typing import Any, Callable, List


def noting(calls: List[Any], answer: Any) -> Callable[..., Any]:
    """A function that notes its arguments."""
    def noted(*given: Any) -> Any:
        calls.append(given)
        return answer
    return noted
