# SPDX-License-Identifier: LGPL-2.1-or-later
"""Children as a terminal starts them."""
import signal


def heed_interrupts() -> None:
    """End on ctrl-C, also where a shell has started this in the background, which ignores it and
    hands that down to whatever is started here. In Python with every `finally`, and after an
    exec, for which it is Popen's preexec_fn, as any process does."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
