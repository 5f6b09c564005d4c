# SPDX-License-Identifier: LGPL-2.1-or-later
"""Loop devices that vanish with their last user, whole or with partitions."""
import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from pathlib import Path

_SET_FD, _SET_STATUS64, _GET_FREE = 0x4C00, 0x4C04, 0x4C82
#: struct loop_info64: its size, the offset of lo_flags, and the flags LO_FLAGS_AUTOCLEAR and
#: LO_FLAGS_PARTSCAN, without which a loop device has no partitions.
_INFO_BYTES, _FLAGS_OFFSET, _AUTOCLEAR, _PARTSCAN = 232, 52, 4, 8
_TRIES = 50
#: The system call that adds a partition, which needs no partition table: BLKPG_ADD_PARTITION, and
#: struct blkpg_partition (offset and length in bytes, number, two names).
_BLKPG, _ADD_PARTITION, _PARTITION = 0x1269, 1, 'qqi64s64s4x'
#: Partitions begin and end on multiples of it.
_ALIGNMENT = 1 << 20


class LoopDevice:
    """A file as a block device, until `close` and the end of all that have opened it. `partitions`:
    their number; they have the same size."""

    def __init__(self, file: Path, size: int, partitions: int = 0) -> None:
        self._flags = _AUTOCLEAR | (_PARTSCAN if partitions else 0)
        with open(file, 'ab') as f:
            if f.tell() == 0:
                f.truncate(size)
        for _ in range(_TRIES):
            with open('/dev/loop-control') as control:
                self.path = f'/dev/loop{fcntl.ioctl(control, _GET_FREE)}'
            if self._attach(file):
                each = size // max(1, partitions) // _ALIGNMENT * _ALIGNMENT
                self.partitions = [self._add_partition(number, each)
                                   for number in range(partitions)]
                return
        raise OSError(errno.EBUSY, f'no free loop device for {file}')

    def _attach(self, file: Path) -> bool:
        """False if another process was faster."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        info = bytearray(_INFO_BYTES)
        struct.pack_into('I', info, _FLAGS_OFFSET, self._flags)
        with contextlib.suppress(OSError), open(file, 'r+b') as backing:
            fcntl.ioctl(self._fd, _SET_FD, backing.fileno())
            fcntl.ioctl(self._fd, _SET_STATUS64, bytes(info))
            return True
        os.close(self._fd)
        return False

    def _add_partition(self, number: int, size: int) -> str:
        """Its name."""
        partition = ctypes.create_string_buffer(
            struct.pack(_PARTITION, number * size, size, number + 1, b'', b''))
        fcntl.ioctl(self._fd, _BLKPG, struct.pack(
            'iiiP', _ADD_PARTITION, 0, len(partition), ctypes.addressof(partition)))
        return f'{self.path}p{number + 1}'

    def close(self) -> None:
        os.close(self._fd)
