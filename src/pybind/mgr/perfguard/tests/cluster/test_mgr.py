# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the versions of daemons decide."""
from types import ModuleType
from typing import Any, Dict

import pytest

OLD, NEW = '18.2.7', '20.2.1'
DEGRADED = 'osd_recovery_sleep_degraded'


class Mgr:
    """An mgr that has the newer option. `builds`: mon -> its version and build."""

    def __init__(self, builds: Dict[str, str]) -> None:
        self._builds = builds
        self.get_latest_counter = None

    def get(self, name: str) -> Dict[str, Any]:
        assert name == 'mon_map'
        return {'mons': [{'name': mon} for mon in self._builds]}

    def get_mgr_id(self) -> str:
        return 'x'

    def get_metadata(self, service: str, name: str) -> Any:
        build = NEW if service == 'mgr' else self._builds[name]
        return {'ceph_version': build, 'ceph_version_short': build.split()[0]} if build else None

    def get_ceph_option(self, name: str) -> str:
        assert name == DEGRADED
        return '0'


@pytest.mark.parametrize('builds, osds, alike, option', [
    ({'a': NEW, 'b': NEW}, {NEW}, True, DEGRADED),
    ({'a': NEW, 'b': OLD}, {NEW}, False, 'osd_recovery_sleep'),
    ({'a': NEW, 'b': NEW}, {NEW, OLD}, True, 'osd_recovery_sleep'),
    ({'a': OLD, 'b': OLD}, {OLD}, True, 'osd_recovery_sleep'),
    # Of one mon nothing is known yet.
    ({'a': NEW, 'b': ''}, {NEW}, False, 'osd_recovery_sleep'),
    # Two builds of one version have the same options.
    ({'a': NEW + ' (1)', 'b': NEW + ' (2)'}, {NEW}, False, DEGRADED)])
def test_daemons_of_several_versions(mgr_stub: ModuleType, builds: Dict[str, str], osds: Any,
                                     alike: bool, option: str) -> None:
    from perfguard.cluster.mgr import MgrCluster
    mgr: Any = Mgr(builds)
    cluster = MgrCluster(mgr, lambda: False, lambda: 0.0)
    assert cluster.mons_alike() is alike and cluster.degraded_sleep(osds) == option


def test_the_versions_of_osds(mgr_stub: ModuleType) -> None:
    from perfguard.cluster.mgr import MgrCluster
    mgr: Any = Mgr({'3': NEW, '4': ''})
    cluster = MgrCluster(mgr, lambda: False, lambda: 0.0)
    assert cluster.osd_versions([3, 4]) == {3: NEW.split()[0], 4: ''}
