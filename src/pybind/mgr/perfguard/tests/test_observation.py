# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a turn knows of the clients."""
import pytest

from perfguard.observation import IDLE_OPS, IDLE_RATE, IDLE_SECONDS, Clients, PoolClients

IDLE = PoolClients('p', 8, 0.0)


@pytest.mark.parametrize('pool, covered, idle', [
    (IDLE, IDLE_SECONDS, True), (IDLE, IDLE_SECONDS - 1.0, False),
    (IDLE._replace(rate=IDLE_RATE), IDLE_SECONDS, False),
    (IDLE._replace(rate=IDLE_RATE / 2, in_progress=IDLE_OPS / 2), IDLE_SECONDS, True),
    # A few that take very long.
    (IDLE._replace(in_progress=IDLE_OPS), IDLE_SECONDS, False)])
def test_a_pool_without_client_operations(pool: PoolClients, covered: float, idle: bool) -> None:
    clients = Clients(pools={1: pool, 2: IDLE}, covered=covered)
    assert clients.idle(pool) == clients.all_idle == idle
