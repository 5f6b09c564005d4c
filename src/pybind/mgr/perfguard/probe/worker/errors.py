# SPDX-License-Identifier: LGPL-2.1-or-later
"""What ends a worker before its work is done."""
import errno
import os


class Failed(Exception):
    """`errno` is negative, as in the protocol; the message is one line."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(' '.join(text.split()))
        self.errno = -abs(code)


class Cancelled(Exception):
    """Somebody wants it to end."""


def words(code: int) -> str:
    """An errno of either sign: "Disk quota exceeded (EDQUOT)"."""
    number = abs(code)
    return '%s (%s)' % (os.strerror(number), errno.errorcode.get(number, 'errno %d' % number))
