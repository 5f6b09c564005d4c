# SPDX-License-Identifier: LGPL-2.1-or-later
"""Loop devices that vanish with their last user."""
import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

_SET_FD, _SET_STATUS64, _GET_FREE = 0x4C00, 0x4C04, 0x4C82
#: struct loop_info64: its size, the offset of lo_flags, and the flag LO_FLAGS_AUTOCLEAR.
_INFO_BYTES, _FLAGS_OFFSET, _AUTOCLEAR = 232, 52, 4
_TRIES = 50


class LoopDevice:
    """A file as a block device, until this process and all that have opened it end."""

    def __init__(self, file: Path, size: int) -> None:
        with open(file, 'ab') as f:
            if f.tell() == 0:
                f.truncate(size)
        for _ in range(_TRIES):
            with open('/dev/loop-control') as control:
                self.path = f'/dev/loop{fcntl.ioctl(control, _GET_FREE)}'
            if self._attach(file):
                return
        raise OSError(errno.EBUSY, f'no free loop device for {file}')

    def _attach(self, file: Path) -> bool:
        """False if another process was faster."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        info = bytearray(_INFO_BYTES)
        struct.pack_into('I', info, _FLAGS_OFFSET, _AUTOCLEAR)
        with contextlib.suppress(OSError), open(file, 'r+b') as backing:
            fcntl.ioctl(self._fd, _SET_FD, backing.fileno())
            fcntl.ioctl(self._fd, _SET_STATUS64, bytes(info))
            return True
        os.close(self._fd)
        return False
