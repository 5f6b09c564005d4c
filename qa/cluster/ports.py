# SPDX-License-Identifier: LGPL-2.1-or-later
"""Blocks of free TCP ports on the loopback address, one block for each cluster.

A block is claimed by binding an abstract unix socket with its number. The daemons of the cluster
inherit the socket, so the claim lasts exactly as long as any of them. It outlives the process that
started a persistent cluster, works across users, and needs no cleanup.
"""

import socket
from typing import List

from .errors import ClusterError

# Below the range of ports of outgoing connections in Linux (32768 and up), so that no client can
# occupy a port between the check and the bind of the daemon.
FIRST_PORT = 10000
LAST_PORT = 31999
BLOCK_PORTS = 500

# Four messengers (public, cluster, heartbeat front and back), each with msgr v1 and v2.
PORTS_PER_OSD = 8


class PortBlock:
    """A claimed range of ports. The daemons must inherit the descriptors."""

    def __init__(self, first: int, last: int, claims: List[socket.socket]) -> None:
        self.first = first
        self.last = last
        self._claims = claims

    def fds(self) -> List[int]:
        """The descriptors that hold the claim."""
        return [claim.fileno() for claim in self._claims]

    def close(self) -> None:
        """Close the descriptors of this process."""
        for held in self._claims:
            held.close()
        self._claims = []


def _claim_blocks(first: int, count: int) -> List[socket.socket]:
    """The sockets that claim these blocks; fewer than `count` if some are taken."""
    held: List[socket.socket] = []
    for block in range(first, first + count):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f'\0perfguard-ports-{block}')
        except OSError:
            claim.close()
            break
        held.append(claim)
    return held


def _all_free(first: int, last: int) -> bool:
    """Whether all ports can be bound: other programs do not know the claims."""
    for port in range(first, last + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(('127.0.0.1', port))
            except OSError:
                return False
    return True


def claim(ports: int) -> PortBlock:
    """Claim at least `ports` consecutive free ports."""
    blocks = -(-ports // BLOCK_PORTS)
    last_start = (LAST_PORT + 1 - FIRST_PORT) // BLOCK_PORTS - blocks
    for start in range(last_start + 1):
        held = _claim_blocks(start, blocks)
        block = PortBlock(FIRST_PORT + start * BLOCK_PORTS,
                          FIRST_PORT + (start + blocks) * BLOCK_PORTS - 1, held)
        if len(held) == blocks and _all_free(block.first, block.last):
            return block
        block.close()
    raise ClusterError(f'no {ports} consecutive free ports between {FIRST_PORT} and {LAST_PORT} '
                       'on 127.0.0.1: end other clusters ("down --all")')
