# SPDX-License-Identifier: LGPL-2.1-or-later
"""When Python looks for garbage: at the end of a turn."""
import contextlib
import gc
from typing import Iterator

#: Number of turns until the garbage collector examines all objects.
FULL_TURNS = 1000


@contextlib.contextmanager
def collected_at_end() -> Iterator[None]:
    """The garbage collector waits for the end of the block, and then examines only objects created
    in it. It is that of this module, and on Tentacle that of all modules of ceph-mgr.

    A turn creates and drops many objects. Collections in between would take those in use for
    long-lived ones, and so examine every third turn all objects of the module: 0.3 s for a campaign
    with 100,000 PGs, in which no other module of ceph-mgr runs. Objects that become garbage after
    their turn are freed every FULL_TURNS turns: hardly any are created between turns, which could
    make the collector look for them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # The last number counts the collections like this one since all objects were examined.
        gc.collect(2 if gc.get_count()[2] >= FULL_TURNS else 1)
        gc.enable()
