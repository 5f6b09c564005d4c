# SPDX-License-Identifier: LGPL-2.1-or-later
"""The operator: types ceph's commands, which are printed, and reads what perfguard answers."""

import json
import time
from typing import Any, Dict

from qa.cluster import Cluster, CommandError

from .screen import Screen

#: How long a command is repeated that perfguard refuses: the cluster may just be settling.
PATIENCE_SECONDS = 30.0


class Operator:
    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self._cluster = cluster
        self._screen = screen

    def type(self, prefix: str, **args: str) -> None:
        """A command as an operator types it; perfguard's take options, Ceph's are positional."""
        if prefix.startswith('perfguard'):
            target, words = 'mgr', [f'--{name} {value}' for name, value in args.items()]
        else:
            target, words = 'mon', list(args.values())
        line = ' '.join(['ceph', prefix, *words])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            retval, out, error = self._cluster.command(target, {'prefix': prefix, **args})
            if retval == 0:
                break
            if time.monotonic() > deadline:
                raise CommandError(-retval, error, line)
            time.sleep(0.5)
        self._screen.command(line, out.strip())

    def campaign(self) -> Dict[str, Any]:
        """The answer of ``perfguard rebalance status``."""
        retval, out, error = self._cluster.mgr('perfguard rebalance status', format='json')
        if retval != 0:
            raise CommandError(-retval, error, 'perfguard rebalance status')
        status: Dict[str, Any] = json.loads(out)
        return status

    def wait_ready(self) -> None:
        """Until perfguard, just enabled, answers."""
        self._cluster.wait(self.campaign, PATIENCE_SECONDS, 'perfguard to answer')
