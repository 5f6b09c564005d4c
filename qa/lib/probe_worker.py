# SPDX-License-Identifier: LGPL-2.1-or-later
"""The worker of probes on a test cluster, without the module."""
import json
import subprocess
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Type

from perfguard.probe import worker
from perfguard.probe.resources import RunResources, user_command
from qa.cluster import Cluster
from qa.cluster.modules import MODULE

Json = Dict[str, Any]


def probe_key(cluster: Cluster, user: str, pool: str, image: bool = False) -> str:
    """Creates the cephx user client.<user> with the caps of users of the module."""
    caps = user_command(RunResources(0, pool, own=image, image=image))['caps']
    found = cluster.mon('auth get-or-create', entity='client.' + user, caps=caps)
    return str(found[0]['key'])


def mon_host(cluster: Cluster) -> str:
    text = cluster.conf_path.read_text()
    return next(line.partition('=')[2].strip() for line in text.splitlines()
                if line.replace('_', ' ').startswith('mon host'))


class Worker:
    """A worker from the copy of the module of the cluster, in the release of the cluster."""

    def __init__(self, cluster: Cluster, request: Json) -> None:
        package = cluster.directory / 'mgr-modules' / MODULE
        *python, script = worker.argv()
        command = [*python, str(package.joinpath(*script.split('/')[-3:]))]
        self.process = subprocess.Popen(cluster.release.argv(command, cluster.directory), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self.tell(request)

    def __enter__(self) -> 'Worker':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stdout.close()
        self.hang_up()

    def tell(self, line: Json) -> None:
        self._stdin.write(json.dumps(line) + '\n')
        self._stdin.flush()

    def hang_up(self) -> None:
        """Close its input, as the death of the mgr does."""
        if not self._stdin.closed:
            self._stdin.close()

    def each_line(self) -> Iterator[Json]:
        for line in self._stdout:
            yield json.loads(line)

    def lines(self) -> List[Json]:
        """All remaining lines; waits for its end."""
        found = list(self.each_line())
        self.process.wait()
        return found
