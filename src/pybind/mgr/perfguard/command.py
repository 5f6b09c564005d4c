# SPDX-License-Identifier: LGPL-2.1-or-later
"""What all command handlers share. Errors become (retval, out, err) here and only here."""
import errno
import functools
import inspect
import time
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar

from . import tables
from .rebalance.requests import Refused

CommandResult = Tuple[int, str, str]


def command(handler: Callable[..., CommandResult]) -> Callable[..., CommandResult]:
    """Check --format and turn refusals into a retval and one line."""

    @functools.wraps(handler)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> CommandResult:
        format_ = kwargs.get('format')
        if format_ not in (None, *tables.FORMATS):
            return (-errno.EINVAL, '', 'unknown format %r: plain, json or json-pretty' % format_)
        try:
            return handler(self, *args, **kwargs)
        except Refused as refused:
            return -refused.errno, '', str(refused)

    # Ceph reads the arguments from the signature and, in older releases, does not unwrap.
    wrapper.__signature__ = inspect.signature(handler)  # type: ignore[attr-defined]
    return wrapper


def show(data: Dict[str, Any], format: Optional[str],
         plain: Callable[[Any], str]) -> CommandResult:
    return 0, tables.render(data, format or 'plain', plain), ''


Answer = TypeVar('Answer')


def patiently(ask: Callable[[], Answer], seconds: float, wake: Callable[[], None],
              rest_seconds: float = 0.3) -> Answer:
    """The answer of `ask`, asked again for a report period where the cluster is not fit.

    What the OSDs report is a moment old: a cluster that has just become clean must not be refused
    for what it was.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except Refused as refused:
            if refused.errno != errno.EPERM or time.monotonic() >= deadline:
                raise
        wake()
        time.sleep(rest_seconds)
