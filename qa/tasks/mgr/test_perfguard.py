# SPDX-License-Identifier: LGPL-2.1-or-later
"""perfguard in Ceph's own test framework; qa/tests/test_teuthology.py runs it here."""
import json
from typing import Any, Dict

from tasks.mgr.mgr_test_case import MgrTestCase


class TestPerfguard(MgrTestCase):
    MGRS_REQUIRED = 2
    POOL = 'perfguard_data'
    #: Until the OSDs of a test cluster have reported, and a small campaign has ended.
    REPORT_SECONDS = 60
    CAMPAIGN_SECONDS = 600

    def _ceph(self, *args: str) -> str:
        return str(self.mgr_cluster.mon_manager.raw_cluster_cmd(*args))

    def _perfguard(self, *args: str) -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(self._ceph('perfguard', *args, '--format', 'json'))
        return found

    def _phase(self) -> str:
        return str(self._perfguard('campaign', 'status')['phase'])

    def _answers(self) -> bool:
        """After a failover commands fail until the module has started."""
        try:
            return bool(self._perfguard('status')['signals'])
        except Exception:
            return False

    def _clean(self) -> bool:
        signals = self._perfguard('status')['signals']
        return bool(signals['active_clean_pgs'] == signals['pgs'])

    def _osd_dump(self) -> Dict[str, Any]:
        found: Dict[str, Any] = self.mgr_cluster.mon_manager.get_osd_dump_json()
        return found

    def setUp(self) -> None:
        super().setUp()
        if len(self._osd_dump()['osds']) < 4:
            self.skipTest('not enough OSDs')
        self.mgr_cluster.mon_manager.create_pool(self.POOL)
        self._load_module('perfguard')
        # A quiet test cluster: its clients have no latency to be judged.
        self.mgr_cluster.set_module_conf('perfguard', 'stall_ratio', '1')
        self.wait_until_true(self._answers, timeout=self.REPORT_SECONDS)
        self.wait_until_true(self._clean, timeout=self.REPORT_SECONDS)

    def tearDown(self) -> None:
        self._ceph('perfguard', 'shutdown', '--yes-i-really-mean-it')
        self.wait_until_true(lambda: not self._perfguard('held')['held'],
                             timeout=self.REPORT_SECONDS)
        self.mgr_cluster.mon_manager.remove_pool(self.POOL)
        super().tearDown()

    def test_drain_and_undrain(self) -> None:
        """An OSD is emptied and filled again; nothing stays borrowed."""
        osd = max(row['osd'] for row in self._osd_dump()['osds'])
        for verb in ('drain', 'undrain'):
            self._ceph('perfguard', verb, 'osd.%d' % osd)
            self.wait_until_true(lambda: self._phase() == 'DONE', timeout=self.CAMPAIGN_SECONDS)
            self.assertEqual(self._perfguard('held')['held'], [])
            self.wait_until_true(self._clean, timeout=self.REPORT_SECONDS)

    def test_failover(self) -> None:
        """The next mgr knows of the campaign, and can end it."""
        flags = self._osd_dump()['flags']
        self._ceph('perfguard', 'campaign', 'prepare')
        self.wait_until_true(lambda: self._phase() == 'PREPARED', timeout=self.REPORT_SECONDS)
        self.assertIn('norebalance', self._osd_dump()['flags'])

        before = self.mgr_cluster.get_active_id()
        self.mgr_cluster.mgr_fail(before)
        self.wait_until_true(lambda: self.mgr_cluster.get_active_id() not in ('', before),
                             timeout=self.REPORT_SECONDS)
        self.wait_until_true(self._answers, timeout=self.REPORT_SECONDS)
        self.assertEqual(self._phase(), 'PREPARED')

        self._ceph('perfguard', 'campaign', 'abort')
        self.wait_until_true(lambda: self._phase() == 'ABORTED', timeout=self.REPORT_SECONDS)
        self.assertEqual(self._osd_dump()['flags'], flags)

    def test_advise(self) -> None:
        """A finding is there while its cause is."""
        self._ceph('config', 'set', 'osd', 'debug_rgw', '20')
        try:
            self.wait_until_true(lambda: 'DEBUG_LEVEL' in [
                each['code'] for each in self._perfguard('advise', '--refresh')['findings']],
                timeout=self.REPORT_SECONDS)
        finally:
            self._ceph('config', 'rm', 'osd', 'debug_rgw')
