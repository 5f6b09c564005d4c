# SPDX-License-Identifier: LGPL-2.1-or-later
"""What probe objects contain: bytes that follow from the seed, the object's name and the offset."""
import random
from zlib import crc32

#: Objects begin at different places of the random bytes, so that one is not taken for another.
SPAN = 1 << 20
STEP = 64


class Payload:
    """The contents of all objects of up to `object_bytes` of a run."""

    def __init__(self, seed: int, object_bytes: int) -> None:
        self.base = random.Random(seed).randbytes(object_bytes + SPAN)

    @staticmethod
    def start(name: str) -> int:
        """Where in `base` the object's content begins."""
        return crc32(name.encode()) % (SPAN // STEP) * STEP

    def slice(self, name: str, offset: int, length: int) -> bytes:
        begin = self.start(name) + offset
        return self.base[begin:begin + length]
