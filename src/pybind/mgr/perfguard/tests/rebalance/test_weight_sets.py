# SPDX-License-Identifier: LGPL-2.1-or-later
"""CRUSH places by weight sets where there are any, and they need not follow the weights."""
from typing import Any, Tuple

import pytest

from perfguard.errors import Refused

from ..fakes.driver import Driver
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


@pytest.mark.parametrize('who', ['mon', 'global', 'mon.a'])
@pytest.mark.parametrize('order', [('drain', 'osd.0'), ('expand', 'osd.0')])
def test_weights_that_have_no_effect_are_refused(order: Tuple[str, ...], who: str) -> None:
    driver = driver_of(COMPAT, who, 'false')
    if order[0] == 'expand':
        driver.cluster.toys[0] = driver.cluster.toys[0]._replace(crush_weight=0.0)
        driver.run(2)
    with pytest.raises(Refused, match=OPTION):
        driver.order(*order)
    assert driver.phase == 'IDLE'


@pytest.mark.parametrize('sets, who, value', [
    ({}, 'mon', 'false'), (ONLY_IDS, 'mon', 'false'), (COMPAT, 'mon', 'true'),
    (COMPAT, 'osd', 'false')])
def test_weights_that_have_an_effect_are_not(sets: Any, who: str, value: str) -> None:
    driver = driver_of(sets, who, value)
    driver.order('drain', 'osd.0')
    driver.run_to('DONE')
