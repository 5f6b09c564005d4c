# SPDX-License-Identifier: LGPL-2.1-or-later
"""A host of a test cluster with its own network, which can be cut off from all others.

    with Network() as network:
        cluster = Cluster.up(osds=8, hosts=4, **network.options(['osd.1', 'osd.5'], FAST_CONF))
        with network.partition():
            ...

The cable is pulled: the host and the others send into the void, and no connection is closed. All
daemons use addresses of a private network that exists on this machine only, instead of the loopback
address, which each network namespace has for itself.
"""
import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Type

from qa.cluster.errors import ClusterError

#: Networks 10.203.0.0/24 to 10.203.63.0/24: one for each test that runs.
NETWORKS = 64
PROGRAMS = ('ip', 'nsenter', 'tc')
#: A MAC address that no device has.
UNUSED_MAC = '02:00:00:00:00:01'


class Network:
    """Requires root. The next process of the same number removes the leftovers of a killed one."""

    def __init__(self) -> None:
        self._claim, number = _claim()
        self._bridge, self._cable = 'pgbr%d' % number, 'pgcable%d' % number
        self.namespace = 'perfguard-%d' % number
        #: The address of all daemons but those of the host, and that of the host.
        self.address, self._inside = ('10.203.%d.%d' % (number, last) for last in (1, 2))

    def __enter__(self) -> 'Network':
        self._remove()
        try:
            _ip('link', 'add', self._bridge, 'type', 'bridge')
            _ip('address', 'add', self.address + '/24', 'dev', self._bridge)
            _ip('link', 'set', self._bridge, 'up')
            _ip('netns', 'add', self.namespace)
            _ip('link', 'add', self._cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns',
                self.namespace)
            self._plug()
            _ip('-n', self.namespace, 'address', 'add', self._inside + '/24', 'dev', 'eth0')
            for device in ('lo', 'eth0'):
                _ip('-n', self.namespace, 'link', 'set', device, 'up')
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._end()

    def options(self, daemons: Sequence[str], conf: Mapping[str, Any]) -> Dict[str, Any]:
        """Arguments of Cluster.up; these daemons, which may be added later, are on the host."""
        return {'address': self.address, 'namespaces': {name: self.namespace for name in daemons},
                'conf': {**conf, **{name: {**conf.get(name, {}), 'public_addr': self._inside}
                                    for name in daemons}}}

    @contextlib.contextmanager
    def partition(self) -> Iterator[None]:
        """During the block, nothing that is sent arrives."""
        # Without a bridge alone, this machine would still take what the host sends: it owns the
        # address, on any device that receives a packet.
        _ip('link', 'set', self._cable, 'down')
        try:
            yield
        finally:
            self._plug()

    def traffic(self) -> int:
        """Bytes that have passed the cable, of the direction in which there were more."""
        statistics = Path('/sys/class/net') / self._cable / 'statistics'
        return max(int((statistics / ('%s_bytes' % way)).read_text()) for way in ('rx', 'tx'))

    @contextlib.contextmanager
    def narrow(self, bytes_per_second: int) -> Iterator[None]:
        """During the block, the cable carries no more in each direction, and packets wait."""
        ends = (('-n', self.namespace), 'eth0'), ((), self._cable)
        limit = ('rate', '%dbps' % bytes_per_second, 'burst', '2k', 'cburst', '2k')
        try:
            for where, device in ends:
                _run('tc', *where, 'qdisc', 'add', 'dev', device, 'root', 'handle', '1:', 'htb',
                     'default', '1')
                _run('tc', *where, 'class', 'add', 'dev', device, 'parent', '1:', 'classid', '1:1',
                     'htb', *limit)
            yield
        finally:
            for where, device in ends:
                with contextlib.suppress(ClusterError):
                    _run('tc', *where, 'qdisc', 'del', 'dev', device, 'root')

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """During the block, what the host sends arrives, but nothing reaches it."""
        neighbour = (self._inside, 'dev', self._bridge)
        _ip('neigh', 'replace', *neighbour, 'lladdr', UNUSED_MAC, 'nud', 'permanent')
        try:
            yield
        finally:
            _ip('neigh', 'del', *neighbour)

    def _plug(self) -> None:
        _ip('link', 'set', self._cable, 'master', self._bridge, 'up')

    def _end(self) -> None:
        self._remove()
        self._claim.close()

    def _remove(self) -> None:
        for words in (('netns', 'del', self.namespace), ('link', 'del', self._cable),
                      ('link', 'del', self._bridge)):
            # It may not exist, and daemons keep a namespace without a name until they end.
            with contextlib.suppress(ClusterError):
                _ip(*words)


def why_impossible() -> str:
    """Why this machine cannot have such a host, in words; '' if it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return 'not installed: ' + ', '.join(missing)
    if os.getuid() != 0:
        return 'network namespaces take root'
    try:
        with Network():
            return ''
    except ClusterError as error:
        return 'the kernel, or the container of the tests, has no such networks: %s' % error


def _ip(*words: str) -> None:
    _run('ip', *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, timeout=30)
    if done.returncode != 0:
        raise ClusterError('%s: %s' % (' '.join(words), done.stdout.strip()))


def _claim() -> Tuple[socket.socket, int]:
    """A number that no other process uses; the claim ends with the socket."""
    for number in range(NETWORKS):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind('\0perfguard-network-%d' % number)
            return claim, number
        except OSError:
            claim.close()
    raise ClusterError('all %d networks of tests are in use' % NETWORKS)
