# SPDX-License-Identifier: LGPL-2.1-or-later
"""Creates pools and fills them with objects."""

import threading
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .connection import Handle
from .errors import ClusterError

# Enough to keep a few OSDs on two cores busy.
IN_FLIGHT = 64


def create(mon: Callable[..., Any], name: str, pg_num: int, size: int,
           erasure: Optional[Tuple[int, int]], failure_domain: str) -> int:
    """Create a pool with all its PGs at once; returns its id."""
    common = {'pool': name, 'pg_num': pg_num, 'pgp_num': pg_num, 'autoscale_mode': 'off'}
    if erasure is not None:
        profile = f'{name}-profile'
        k, m = erasure
        mon('osd erasure-code-profile set', name=profile,
            profile=[f'k={k}', f'm={m}', f'crush-failure-domain={failure_domain}'])
        mon('osd pool create', pool_type='erasure', erasure_code_profile=profile, **common)
    else:
        rule = f'replicated-{failure_domain}'
        mon('osd crush rule create-replicated', name=rule, root='default', type=failure_domain)
        mon('osd pool create', pool_type='replicated', rule=rule, size=size, **common)
    mon('osd pool application enable', pool=name, app='rados', yes_i_really_mean_it=True)
    for pool in mon('osd dump')['pools']:
        if pool['pool_name'] == name:
            return int(pool['pool'])
    raise ClusterError(f'pool {name} was created but is not in the OSDMap')


def fill(handle: Handle, pool: str, names: Sequence[str], size_bytes: int,
         timeout: float) -> None:
    """Write objects of these names, many at a time."""
    data = (b'perfguard ' * (size_bytes // 10 + 1))[:size_bytes]
    slots = threading.Semaphore(IN_FLIGHT)
    errors: List[int] = []

    def done(completion: Any) -> None:
        ret = completion.get_return_value()
        if ret < 0:
            errors.append(ret)
        slots.release()

    deadline = time.monotonic() + timeout

    def take_slot() -> None:
        if not slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ClusterError(f'{len(names)} objects not written to {pool} in {timeout:g} s')

    with handle.open_ioctx(pool) as ioctx:
        for name in names:
            take_slot()
            ioctx.aio_write_full(name, data, done)
        for _ in range(IN_FLIGHT):
            take_slot()
    if errors:
        raise ClusterError(f'{len(errors)} of {len(names)} writes to {pool} failed: {errors[0]}')
