# SPDX-License-Identifier: LGPL-2.1-or-later
"""The errors of this package: each message is one line that can be shown to a user as it is."""

import errno as errno_module


class ClusterError(Exception):
    """The cluster, or the machine it should run on, cannot do what was asked."""


class WaitTimeout(ClusterError):
    """Something that was waited for did not happen in time."""


class CommandError(ClusterError):
    """A command was refused by a daemon.

    ``errno`` is positive (``errno.EINVAL``), ``text`` is the daemon's own explanation.
    """

    def __init__(self, errno: int, text: str, what: str = '') -> None:
        self.errno = errno
        self.text = text
        name = errno_module.errorcode.get(errno, str(errno))
        super().__init__(': '.join(part for part in (what, name, text) if part))
