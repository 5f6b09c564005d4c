# SPDX-License-Identifier: LGPL-2.1-or-later
"""Common parts of all commands: formats, refusals, retries."""
import errno
import functools
import inspect
import time
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar

from .. import tables
from ..errors import PerfguardError, Refused
from ..loop.loop import Loop
from ..requests import Origin, ordered
from ..status import TOO_EARLY, Published

CommandResult = Tuple[int, str, str]

#: Maximum time for which a command waits until the cluster is reported as ready.
MOST_PATIENCE_SECONDS = 5.0
#: Maximum length of a refusal.
MOST_ERROR = 1000


def command(handler: Callable[..., CommandResult]) -> Callable[..., CommandResult]:
    """Check --format and turn refusals into a retval and one line."""

    @functools.wraps(handler)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> CommandResult:
        format_ = kwargs.get('format')
        if format_ not in (None, *tables.FORMATS):
            return (-errno.EINVAL, '', 'unknown format %.40r: must be '
                    'plain, json or json-pretty' % format_)
        # The dashboard names its user.
        origin = Origin(getattr(wrapper, 'prefix', ''), time.time(), kwargs.pop('by', ''))
        try:
            with ordered(origin):
                return handler(self, *args, **kwargs)
        except PerfguardError as error:
            return -error.errno, '', line(str(error))

    # Ceph reads the arguments from the signature and, in older releases, does not unwrap.
    wrapper.__signature__ = inspect.signature(handler)  # type: ignore[attr-defined]
    return wrapper


def line(text: str) -> str:
    """A refusal as one printable line: it may quote arguments with any characters."""
    found = ''.join(char if char.isprintable() else char.encode('unicode_escape').decode()
                    for char in text[:MOST_ERROR])
    return found if max(len(found), len(text)) <= MOST_ERROR \
        else found[:MOST_ERROR - 3] + '...'


def show(data: Dict[str, Any], format: Optional[str],
         plain: Callable[[Any], str]) -> CommandResult:
    return 0, tables.render(data, format or 'plain', plain), ''


Answer = TypeVar('Answer')


def patiently(ask: Callable[[bool], Answer], seconds: float, wake: Callable[[], None],
              rest_seconds: float = 1.0) -> Answer:
    """The answer of `ask`, which is called again for one report period while the cluster is not
    ready.

    Reports of OSDs are some seconds old, so a cluster that has just become clean must not be
    refused. Other commands of this module wait meanwhile. The argument of `ask`: whether it was
    called before.
    """
    deadline = time.monotonic() + min(seconds, MOST_PATIENCE_SECONDS)
    again = False
    while True:
        try:
            return ask(again)
        except Refused as refused:
            if not refused.not_fit or time.monotonic() >= deadline:
                raise
        again = True
        wake()
        time.sleep(rest_seconds)


class Handlers:
    """Ceph calls each handler with the module as self."""
    loop: Loop

    def _ready(self) -> Published:
        published = self.loop.published
        if not published.turned:
            raise Refused(errno.EAGAIN, TOO_EARLY)
        return published
