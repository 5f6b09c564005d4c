# SPDX-License-Identifier: LGPL-2.1-or-later
"""The locks of ceph-mgr: what perfguard does while other modules do their work must not stop it.

In ceph-mgr, three threads may wait for each other for ever: one that lists stored keys by a prefix
(it waits for the GIL with the locks of the modules and of their options), one that takes a change
of the configuration (it waits for the options of the modules with the lock of the configuration),
and one that reads an option of Ceph (it waits for the configuration with the GIL).
"""
import threading
import time
from typing import Callable

import pytest

from qa.cluster import Cluster
from qa.lib.guard import FAST_CONF, Guard

ClusterFactory = Callable[..., Cluster]

#: A module that reads options of Ceph all the time, as other modules do now and then.
READER = '''
import threading

from mgr_module import MgrModule


class Module(MgrModule):
    MODULE_OPTIONS = [{'name': 'number', 'type': 'int', 'default': 0}]

    def serve(self):
        self._end = threading.Event()
        for _ in range(2):
            threading.Thread(target=self._read, daemon=True).start()
        self._end.wait()

    def _read(self):
        while not self._end.is_set():
            self.get_ceph_option('mgr_stats_period')

    def shutdown(self):
        self._end.set()
'''
SECONDS = 60.0


@pytest.mark.releases('pacific', 'reef', 'tentacle', quick=())
def test_a_change_of_the_configuration_does_not_stop_an_mgr_that_writes(
        release: str, make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(release, osds=3, hosts=3, conf=FAST_CONF)
    guard = Guard(cluster)
    cluster.pool_create('p', 8)
    cluster.wait_clean(60)
    reader = cluster.directory / 'mgr-modules' / 'reader'
    reader.mkdir()
    (reader / '__init__.py').write_text('from .module import Module\n')
    (reader / 'module.py').write_text(READER)
    cluster.restart_mgr(60)
    cluster.mon('mgr module enable', module='reader', force='--force')
    guard.wait_ready()
    end = threading.Event()
    changes = 0

    def change() -> None:
        nonlocal changes
        while not end.is_set():
            changes += 1
            cluster.mon('config set', who='mgr', name='mgr/reader/number', value=str(changes))
            time.sleep(0.01)

    changing = threading.Thread(target=change)
    changing.start()
    # Not at present.
    hour = (time.localtime().tm_hour + 2) % 24
    orders, begin = 0, time.monotonic()
    try:
        while time.monotonic() - begin < SECONDS:
            guard.get('probe schedule', schedule='s', pool='p', begin_time='%02d00' % hour,
                      end_time='%02d00' % ((hour + 1) % 24))
            guard.get('probe schedule', schedule='s', rm=True)
            orders += 2
    finally:
        end.set()
        changing.join()
    print('%d orders, %d changes' % (orders, changes))
    assert orders >= 6 and changes >= 100
    assert cluster.mon('mgr stat')['available'] and not guard.tracebacks()
