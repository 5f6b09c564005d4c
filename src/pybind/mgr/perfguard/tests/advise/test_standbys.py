# SPDX-License-Identifier: LGPL-2.1-or-later
"""Standby mgrs that could not take over are named in a health check."""
from dataclasses import replace
from typing import Any, Dict, List, Optional

import pytest

from perfguard.advise.report import (STANDBY_CHECK, AdviseOrder, active_problems, standby_checks,
                                     standby_problems)
from perfguard.cluster.inventory import Inventory, StandbyMgr, standbys

from ..fakes.driver import Driver


def module(version: Optional[str], can_run: bool = True, error: str = '') -> Dict[str, Any]:
    options = {} if version is None else {'installed_version': {'default_value': version}}
    return {'name': 'perfguard', 'can_run': can_run, 'error_string': error,
            'module_options': options}


def mgr_map(*modules: Dict[str, Any]) -> Dict[str, Any]:
    return {'active_name': 'x', 'standbys': [{
        'name': 'y', 'available_modules': [{'name': 'balancer', 'can_run': True}, *modules]}]}


@pytest.mark.parametrize('given, part', [
    (mgr_map(module('1.2')), []), ({}, []), ({'standbys': []}, []),
    (mgr_map(), ['does not have the module']),
    (mgr_map(module('1.1')), ['has version 1.1 (active mgr: 1.2)']),
    (mgr_map(module(None)), ['has version unknown']),
    (mgr_map(module('1.2', False, 'No module named prettytable')), ['prettytable'])])
def test_what_is_found(given: Dict[str, Any], part: List[str]) -> None:
    found = standby_problems(standbys(given, 'perfguard'), '1.2')
    assert len(found) == len(part) and all(one in other for one, other in zip(part, found))


def test_each_problem_of_a_standby_is_one_line() -> None:
    assert standby_problems([
        StandbyMgr('d', '1.1', ''), StandbyMgr('c', '', ''), StandbyMgr('b', '1.2', 'no cherrypy'),
        StandbyMgr('a', None), StandbyMgr('e', '1.2')], '1.2') == [
        'mgr.a does not have the module', 'mgr.b cannot run the module: no cherrypy',
        'mgr.c has version unknown (active mgr: 1.2)', 'mgr.d has version 1.1 (active mgr: 1.2)']
    assert active_problems('1.2', '1.3') == [
        'the active mgr runs version 1.2, and version 1.3 is installed']
    assert active_problems('1.2', '') == [
        'the active mgr runs version 1.2, and its files are missing']


def test_the_health_check() -> None:
    good = Inventory(standbys=(StandbyMgr('y', '1.2'),), version='1.2', installed='1.2')
    assert standby_checks(good) == {}
    check = standby_checks(replace(good, installed='', standbys=(
        StandbyMgr('z', None), StandbyMgr('y', '1.1'))))[STANDBY_CHECK]
    assert check['summary'].startswith('3 mgrs ') and check['severity'] == 'warning'
    assert [line.split()[0] for line in check['detail'][:3]] == ['the', 'mgr.y', 'mgr.z']
    assert check['detail'][3:] == [
        'Install the version of the active mgr on these hosts and restart their mgrs. Campaigns '
        'and the watch stop once one of them becomes active.']
    one = standby_checks(replace(good, installed=''))[STANDBY_CHECK]
    assert one['summary'] == '1 mgr cannot start perfguard 1.2'


@pytest.mark.parametrize('installed, part', [
    ('1.2', None), ('', 'its files are missing'), ('1.3', 'version 1.3 is installed')])
def test_the_files_of_the_active_mgr(installed: str, part: Optional[str]) -> None:
    found = active_problems('1.2', installed)
    assert len(found) == (part is not None) and all(part and part in line for line in found)
    # An mgr that does not report its modules.
    assert active_problems('', installed) == []


def test_the_loop_raises_and_clears_it() -> None:
    driver = Driver()
    for names in ((StandbyMgr('y', None),), ()):
        driver.cluster.inventory_ = Inventory(standbys=names)
        driver.loop.requests.submit(AdviseOrder('advise'))
        driver.turn()
        assert (STANDBY_CHECK in driver.loop.status()['health']) == bool(names)
