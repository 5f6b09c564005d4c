# SPDX-License-Identifier: LGPL-2.1-or-later
"""Builds what rigs need, once."""
import fcntl
import sys
from typing import Callable, Tuple

from . import roots
from .bootstrap import bootstrap
from .cache import RECIPE_VERSION, Cache, check_able
from .images import make_images

_STEPS: Tuple[Tuple[str, Callable[[Cache], None]], ...] = (
    ('unpacking systemd-nspawn', roots.install_nspawn),
    ('installing Debian trixie for the hosts', roots.install_host),
    ('installing Debian forky with Ceph for the image', roots.install_image),
    ('making the images', make_images),
    ('bootstrapping a cluster', bootstrap))


def build(cache: Cache) -> None:
    """Carry out the steps that were not done yet. Raises ClusterError."""
    check_able()
    cache.log.mkdir(parents=True, exist_ok=True)
    with open(cache.path / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number, (text, step) in enumerate(_STEPS):
            stamp = cache.path / f'step-{number}'
            if stamp.exists() and stamp.read_text() == RECIPE_VERSION:
                continue
            print(f'cephadm: {text}', file=sys.stderr, flush=True)
            step(cache)
            stamp.write_text(RECIPE_VERSION)
