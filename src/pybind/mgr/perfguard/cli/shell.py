# SPDX-License-Identifier: LGPL-2.1-or-later
"""Common parts of all commands: formats, refusals, retries."""
import errno
import functools
import inspect
import time
from typing import Any, Callable, Container, Dict, Mapping, Optional, Tuple, TypeVar

from .. import tables
from ..cluster.types import Json
from ..compat import read_command, write_command
from ..errors import MOST_ERROR_CHARACTERS, PerfguardError, Refused
from ..loop.loop import Loop
from ..status import TOO_EARLY, Published

CommandResult = Tuple[int, str, str]

#: Maximum time for which a command waits until the cluster is reported as ready.
MOST_PATIENCE_SECONDS = 5.0
#: The argument that each command has.
FORMAT = inspect.Parameter('format', inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None,
                           annotation=Optional[str])
#: The text for people of the data of a command.
Plain = Callable[[Any], str]
Decorator = Callable[[Callable[..., Any]], Callable[..., CommandResult]]


class _Argument(inspect.Parameter):
    """A parameter under the name of its argument, which may be a word of Python."""
    @property
    def name(self) -> str:
        return super().name.rstrip('_')


def reads(prefix: str, plain: Optional[Plain] = None, poll: bool = False) -> Decorator:
    """Registers a handler that returns the data of a command, to which --format is added.

    Without `plain`, the handler has the argument `format` and returns a CommandResult.
    """
    return lambda handler: read_command(prefix, poll)(_command(handler, plain))


def writes(prefix: str, plain: Optional[Plain] = None) -> Decorator:
    """The decorator of a command that needs write access; see `reads`."""
    return lambda handler: write_command(prefix)(_command(handler, plain))


def _command(handler: Callable[..., Any],
             plain: Optional[Plain]) -> Callable[..., CommandResult]:
    """The function that Ceph calls for a handler: it checks --format, renders the data with
    `plain`, and turns refusals into a retval and one line. `plain`: as for `reads`."""
    # Words of Python such as "await" have an underscore at their end.
    parameter_names = {name.rstrip('_'): name for name in inspect.signature(handler).parameters}
    signature = inspect.signature(handler)
    signature = signature.replace(parameters=[
        _Argument(name, parameter.kind, default=parameter.default, annotation=parameter.annotation)
        for name, parameter in signature.parameters.items()])
    parameters = signature.parameters

    @functools.wraps(handler)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> CommandResult:
        kwargs = {parameter_names.get(name, name): value for name, value in kwargs.items()}
        format_ = kwargs.pop('format', None)
        if format_ not in (None, *tables.FORMATS):
            return -errno.EINVAL, '', _no_format(str(format_), parameters, kwargs)
        try:
            if plain is None:
                result: CommandResult = handler(self, *args, format=format_, **kwargs)
                return result
            return show(handler(self, *args, **kwargs), format_, plain)
        except PerfguardError as error:
            return -error.errno, '', line(str(error))

    # Ceph reads the arguments from the signature. From Reef on it would read that of the handler,
    # which lacks --format.
    del wrapper.__wrapped__  # type: ignore[attr-defined]
    if plain is not None:
        signature = signature.replace(parameters=[*parameters.values(), FORMAT],
                                      return_annotation=CommandResult)
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    return wrapper


def _no_format(text: str, parameters: Mapping[str, inspect.Parameter],
               given_names: Container[str]) -> str:
    """Why `text` is no format. Ceph takes what is not a number for the argument after an optional
    number."""
    numbers = ['<%s>' % name for name, parameter in parameters.items()
               if parameter.annotation in (int, Optional[int]) and name not in given_names]
    if numbers:
        return '%.40r is neither a number (%s) nor a format (plain, json or json-pretty)' % (
            text, ', '.join(numbers))
    return 'unexpected argument, or unknown format: %.40r (must be plain, json or json-pretty)' \
        % text


def line(text: str) -> str:
    """A refusal as one printable line of at most MOST_ERROR_CHARACTERS: it may quote arguments with
    any characters."""
    printable = ''.join(char if char.isprintable() else char.encode('unicode_escape').decode()
                        for char in text[:MOST_ERROR_CHARACTERS])
    return printable if max(len(printable), len(text)) <= MOST_ERROR_CHARACTERS \
        else printable[:MOST_ERROR_CHARACTERS - 3] + '...'


def spelled(word: str) -> str:
    """The name of a change or an option, which may also be spelled with hyphens."""
    return word.replace('-', '_')


def refuse_empty(**options: Optional[str]) -> None:
    """Raise Refused for an option without a value, such as an empty variable of a shell: without
    the option, the command does more."""
    for name, text in options.items():
        if text == '':
            raise Refused(errno.EINVAL, '--%s is empty' % name.replace('_', '-'))


def show(data: Dict[str, Any], format: Optional[str], plain: Plain) -> CommandResult:
    return 0, tables.render(data, format or 'plain', plain), ''


Answer = TypeVar('Answer')


def patiently(ask: Callable[[bool], Answer], report_seconds: float, wake: Callable[[], None],
              rest_seconds: float = 1.0) -> Answer:
    """The answer of `ask`. While it raises Refused because the cluster is not fit, it is called
    again, for `report_seconds`, but at most MOST_PATIENCE_SECONDS.

    Reports of OSDs are some seconds old, so a cluster that has just become clean must not be
    refused. Other commands of this module wait meanwhile. The argument of `ask`: whether it was
    called before. `wake` lets the loop read new reports.
    """
    deadline = time.monotonic() + min(report_seconds, MOST_PATIENCE_SECONDS)
    first: Optional[Refused] = None
    while True:
        try:
            return ask(first is not None)
        except Refused as refused:
            if not refused.not_fit:
                raise
            # The first refusal names other risks as well, which are not computed again.
            first = first or refused
            if time.monotonic() >= deadline:
                raise first from None
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

    def _order(self, order: Any) -> Json:
        """The answer to an order for the loop."""
        return patiently(lambda refused_before: self.loop.ask(order, refused_before),
                         self.loop.report_seconds(), self.loop.wake)
