# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compiles the native engine, where there is a C compiler. Without it the Python engine works.

    python3 build.py    creates it next to this file; uses CC, CPPFLAGS, CFLAGS and LDFLAGS
"""
import os
import shlex
import shutil
import subprocess
import sys
from typing import List, Optional

CORE = 'core.so'
COMPILE_SECONDS_MAX = 60


def build(folder: str) -> Optional[str]:
    """Compile the core of the native engine into a folder (of an installed worker). Returns None,
    or why that failed."""
    compiler = _compiler()
    if not compiler:
        return 'no C compiler found'
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'core.c')
    target = os.path.join(folder, CORE)
    # A process that has loaded the old file keeps it.
    partial = '%s.%d' % (target, os.getpid())
    command = [*compiler, '-O2', '-Wall', *_flags('CPPFLAGS'), *_flags('CFLAGS'), '-shared',
               '-fPIC', '-pthread', source, '-o', partial, *_flags('LDFLAGS'), '-ldl']
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=COMPILE_SECONDS_MAX)
        if done.returncode:
            return done.stdout
        os.replace(partial, target)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return None


def _compiler() -> List[str]:
    """CC, as set by packagers, or an installed compiler."""
    installed = shutil.which('cc') or shutil.which('gcc')
    return _flags('CC') or ([installed] if installed else [])


def _flags(name: str) -> List[str]:
    return shlex.split(os.environ.get(name, ''))


if __name__ == '__main__':
    sys.exit(build(os.path.dirname(os.path.abspath(__file__))))
