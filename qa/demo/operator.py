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

    def type(self, prefix: str, **args: Any) -> None:
        """A command as an operator types it; perfguard's take options, Ceph's are positional."""
        if prefix.startswith('perfguard'):
            target, words = 'mgr', [f'--{name} {value}' for name, value in args.items()]
        else:
            target, words = 'mon', list(map(str, args.values()))
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
        return self._ask('perfguard rebalance status')

    def newest_probe(self) -> Dict[str, Any]:
        """The last row of ``perfguard probe ls``."""
        row: Dict[str, Any] = self._ask('perfguard probe ls')['probes'][-1]
        return row

    def compare_probes(self, before: int, after: int) -> str:
        """The verdict of ``perfguard probe compare``, whose table is printed."""
        self.type('perfguard probe compare', before=before, after=after)
        return str(self._ask('perfguard probe compare', before=before, after=after)['verdict'])

    def _ask(self, prefix: str, **args: int) -> Dict[str, Any]:
        retval, out, error = self._cluster.mgr(prefix, format='json', **args)
        if retval != 0:
            raise CommandError(-retval, error, prefix)
        found: Dict[str, Any] = json.loads(out)
        return found

    def wait_ready(self) -> None:
        """Until perfguard, just enabled, answers."""
        self._cluster.wait(self.campaign, PATIENCE_SECONDS, 'perfguard to answer')
