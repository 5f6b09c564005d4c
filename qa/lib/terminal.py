# SPDX-License-Identifier: LGPL-2.1-or-later
"""Children as a terminal starts them."""
import signal


def heed_interrupts() -> None:
    """For Popen's preexec_fn: a shell makes what it starts in the background ignore ctrl-C, and
    that is handed down to whatever these tests start, should they be run there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
