# SPDX-License-Identifier: LGPL-2.1-or-later
"""The part of MgrTestCase of teuthology that qa/tasks needs, on a loopback cluster."""
import json
import sys
import time
import types
import unittest
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional

from qa.cluster import Cluster
from qa.cluster.patience import patient

MODULES = ('tasks', 'tasks.mgr', 'tasks.mgr.mgr_test_case')


class MonManager:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def raw_cluster_cmd(self, *args: str) -> str:
        return self._cluster.ceph(*args).stdout

    def get_osd_dump_json(self) -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(self.raw_cluster_cmd('osd', 'dump', '--format=json'))
        return found

    def create_pool(self, name: str, pg_num: int = 16) -> None:
        self._cluster.pool_create(name, pg_num, size=2)

    def remove_pool(self, name: str) -> None:
        self.raw_cluster_cmd('osd', 'pool', 'rm', name, name, '--yes-i-really-really-mean-it')


class MgrCluster:
    def __init__(self, cluster: Cluster) -> None:
        self.mon_manager = MonManager(cluster)

    def _mgr_map(self) -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(
            self.mon_manager.raw_cluster_cmd('mgr', 'dump', '--format=json'))
        return found

    def get_active_id(self) -> str:
        found = self._mgr_map()
        return str(found['active_name']) if found['available'] else ''

    def get_standby_ids(self) -> List[str]:
        return [str(standby['name']) for standby in self._mgr_map()['standbys']]

    def mgr_fail(self, mgr_id: str) -> None:
        self.mon_manager.raw_cluster_cmd('mgr', 'fail', mgr_id)

    def set_module_conf(self, module: str, key: str, val: str) -> None:
        self.mon_manager.raw_cluster_cmd('config', 'set', 'mgr', 'mgr/%s/%s' % (module, key), val)


class MgrTestCase(unittest.TestCase):
    MGRS_REQUIRED = 1
    mgr_cluster: Optional[MgrCluster] = None

    @classmethod
    def setUpClass(cls) -> None:
        assert cls.mgr_cluster is not None
        cls.wait_until_true(lambda: len(cls._standbys()) + 1 >= cls.MGRS_REQUIRED, timeout=60)

    @classmethod
    def _standbys(cls) -> List[str]:
        assert cls.mgr_cluster is not None
        return cls.mgr_cluster.get_standby_ids()

    @classmethod
    def _load_module(cls, module_name: str) -> None:
        assert cls.mgr_cluster is not None
        cls.mgr_cluster.mon_manager.raw_cluster_cmd(
            'mgr', 'module', 'enable', module_name, '--force')

    @classmethod
    def wait_until_true(cls, condition: Callable[[], bool], timeout: float,
                        period: float = 1.0) -> None:
        deadline = time.monotonic() + patient(timeout)
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError('Timed out after %d s' % timeout)
            time.sleep(period)


@contextmanager
def framework(cluster: Cluster) -> Iterator[None]:
    """Makes `import tasks.mgr.mgr_test_case` find the class above with this cluster."""
    saved = {name: sys.modules.get(name) for name in MODULES}
    for name in MODULES:
        sys.modules[name] = types.ModuleType(name)
    MgrTestCase.mgr_cluster = MgrCluster(cluster)
    setattr(sys.modules[MODULES[-1]], 'MgrTestCase', MgrTestCase)
    try:
        yield
    finally:
        MgrTestCase.mgr_cluster = None
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
