# SPDX-License-Identifier: LGPL-2.1-or-later
"""Weights that do not say where CRUSH places PGs: with weight sets, and in several trees."""
from typing import Any, Tuple

import pytest

from perfguard.cluster.crush import CrushRules
from perfguard.errors import Refused

from ..fakes.driver import Driver
from ..fakes.mon_model import ToyMon
from ..fakes.straw_cluster import StrawCluster

OPTION = 'osd_crush_update_weight_set'
COMPAT = {'-1': [{'bucket_id': -1, 'weight_set': [[1.0, 1.0]]}]}
ONLY_IDS = {'-1': [{'bucket_id': -1, 'ids': [-11, -12]}]}


def driver_of(sets: Any, who: str, value: str) -> Driver:
    driver = Driver(StrawCluster())
    driver.cluster.choose_args = sets
    driver.cluster.osd_config[who, OPTION] = value
    driver.cluster.osd_config['global', OPTION] = driver.cluster.osd_config.get(
        ('global', OPTION), 'false' if value == 'true' else 'true')
    driver.run(2)
    return driver


@pytest.mark.parametrize('who', ['mon', 'global', 'mon.a', 'mon/host:h1'])
@pytest.mark.parametrize('order', [('drain', 'osd.0'), ('expand', 'osd.0')])
def test_weights_that_have_no_effect_are_refused(order: Tuple[str, ...], who: str) -> None:
    driver = driver_of(COMPAT, who, 'false')
    if order[0] == 'expand':
        driver.cluster.toys[0] = driver.cluster.toys[0]._replace(crush_weight=0.0)
        driver.run(2)
    with pytest.raises(Refused, match=OPTION):
        driver.order(*order)
    assert driver.phase == 'IDLE'


def test_a_value_for_the_mons_of_a_host_hides_none_of_the_others() -> None:
    driver = driver_of(COMPAT, 'mon', 'false')
    driver.cluster.osd_config['mon/host:h1', OPTION] = 'true'
    driver.run(2)
    with pytest.raises(Refused, match=OPTION):
        driver.order('drain', 'osd.0')


@pytest.mark.parametrize('sets, who, value', [
    ({}, 'mon', 'false'), (ONLY_IDS, 'mon', 'false'), (COMPAT, 'mon', 'true'),
    (COMPAT, 'osd', 'false')])
def test_weights_that_have_an_effect_are_not(sets: Any, who: str, value: str) -> None:
    driver = driver_of(sets, who, value)
    driver.order('drain', 'osd.0')
    driver.run_to('DONE')


class TwoTrees(StrawCluster):
    """osd.0 is also in another tree, with twice the weight."""

    def crush(self, version: int) -> CrushRules:
        other = {'id': -90, 'name': 'other', 'type_id': 1, 'items': [
            {'id': 0, 'weight': 7 if self.toys[0].crush_weight < 0.1 else 2 * 0x10000}]}
        dump = ToyMon(self.toys, 3, ()).crush_dump()
        return CrushRules.from_dump({**dump, 'buckets': [*dump['buckets'], other]})


def test_weights_that_differ_between_trees_are_not_replaced_by_one() -> None:
    driver = Driver(TwoTrees())
    driver.order('drain', 'osd.0')
    driver.run_to('DONE')
    driver.restart()
    driver.run(2)
    with pytest.raises(Refused, match='"ceph osd crush set osd.0 1 host=.* and '
                       '"ceph osd crush set osd.0 2 host=other"'):
        driver.order('undrain', 'osd.0')
    with pytest.raises(Refused, match='different CRUSH weights'):
        driver.order('replace', 'osd.0')
    assert driver.cluster.toys[0].crush_weight < 0.1
