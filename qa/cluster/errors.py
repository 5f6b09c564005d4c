# SPDX-License-Identifier: LGPL-2.1-or-later
"""Errors of this package. Each message is one line for the user."""

import errno as errno_module


class ClusterError(Exception):
    """The cluster, or its machine, cannot do what was requested."""


class WaitTimeout(ClusterError):
    """A condition was not met in time."""


class CommandError(ClusterError):
    """A daemon refused a command.

    ``errno`` is positive (``errno.EINVAL``), ``text`` is the daemon's own explanation.
    """

    def __init__(self, errno: int, text: str, what: str = '') -> None:
        self.errno = errno
        self.text = text
        name = errno_module.errorcode.get(errno, str(errno))
        super().__init__(': '.join(part for part in (what, name, text) if part))
