# SPDX-License-Identifier: LGPL-2.1-or-later
"""The operator: runs and prints commands, and reads the output of perfguard."""

import json
import time
from typing import Any, Dict

from qa.cluster import Cluster, CommandError
from qa.cluster.patience import patient

from .screen import Screen

#: Time for which a refused command is repeated: the cluster may be settling.
PATIENCE_SECONDS = 30.0


class Operator:
    def __init__(self, cluster: Cluster, screen: Screen) -> None:
        self._cluster = cluster
        self._screen = screen

    def type(self, prefix: str, **args: Any) -> None:
        """Run a command; arguments are options for perfguard, and positional for Ceph."""
        if prefix.startswith('perfguard'):
            target, words = 'mgr', [f'--{name} {value}' for name, value in args.items()]
        else:
            target, words = 'mon', list(map(str, args.values()))
        line = ' '.join(['ceph', prefix, *words])
        deadline = time.monotonic() + patient(PATIENCE_SECONDS)
        while True:
            retval, out, error = self._cluster.command(target, {'prefix': prefix, **args})
            if retval == 0:
                break
            if time.monotonic() > deadline:
                raise CommandError(-retval, error, line)
            time.sleep(0.5)
        self._screen.command(line, out.strip())

    def campaign(self) -> Dict[str, Any]:
        """The output of ``perfguard campaign status``."""
        return self._ask('perfguard campaign status')

    def newest_probe(self) -> Dict[str, Any]:
        """The last row of ``perfguard probe ls``."""
        row: Dict[str, Any] = self._ask('perfguard probe ls')['probes'][-1]
        return row

    def compare_probes(self, before: int, after: int) -> Dict[str, Any]:
        """Print the table of ``perfguard probe compare``; returns its output."""
        self.type('perfguard probe compare', before=before, after=after)
        return self._ask('perfguard probe compare', before=before, after=after)

    def _ask(self, prefix: str, **args: int) -> Dict[str, Any]:
        retval, out, error = self._cluster.mgr(prefix, format='json', **args)
        if retval != 0:
            raise CommandError(-retval, error, prefix)
        found: Dict[str, Any] = json.loads(out)
        return found

    def wait_ready(self) -> None:
        """Wait until perfguard answers after it was enabled."""
        self._cluster.wait(self.campaign, patient(PATIENCE_SECONDS), 'perfguard to answer')
