# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where each operation of a stream goes."""
import random
from typing import NamedTuple

from ..types import RANDOM, Job


class Operation(NamedTuple):
    is_read: bool
    #: Index among the stream's objects.
    number: int
    offset: int


class Offsets:
    """The operations of one stream, one after the other; not for several threads at once.

    Sequential: through an object, then the next, and from the first again. Random: any whole block
    of any object. What is left of an object behind the last whole block is not touched.
    """

    def __init__(self, job: Job, objects: int, seed: int) -> None:
        self._bs = job.bs
        self._blocks = job.object_bytes // job.bs
        self._all = self._blocks * objects
        self._random = random.Random(seed)
        self._is_random = job.rw in RANDOM
        self._read_share = (job.rwmixread / 100 if job.reads and job.writes
                            else 1.0 if job.reads else 0.0)
        self._next = 0

    def next(self) -> Operation:
        number, block = divmod(self._block(), self._blocks)
        return Operation(self._reads(), number, block * self._bs)

    def _block(self) -> int:
        if self._is_random:
            return int(self._random.random() * self._all)
        block = self._next
        self._next = (block + 1) % self._all
        return block

    def _reads(self) -> bool:
        share = self._read_share
        return share == 1.0 or share > 0.0 and self._random.random() < share
