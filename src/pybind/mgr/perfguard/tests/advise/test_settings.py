# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the rules over the configuration database report, at their limits and with all that they
name."""
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple

import pytest

from perfguard.advise import settings as rules
from perfguard.advise.report import Facts, Measurements, Symptom, SlowAlone
from perfguard.cluster.types import ConfigEntry

from .test_rules import GIB, GOOD, OSDS, SANE, SSD, WPQ, balancer, config, facts, osds

Look = Callable[[Facts], Optional[Symptom]]
OVERRIDE = 'osd_mclock_override_recovery_settings'
LIMIT = config('osd_max_backfills', '8')
HDD = 'osd_mclock_max_capacity_iops_hdd'
BALANCE = ('ceph perfguard balance --dry-run (shows what moves, and which pools to name); ceph '
           'perfguard balance [<pool>...]; ceph perfguard campaign watch --until DONE; ')


def capacities(*rows: float, rotational: Optional[bool] = False, **probed: Tuple[int, float]
               ) -> Facts:
    """The IOPS of each OSD from osd.0 on, as mclock is configured with them."""
    option = HDD if rotational else SSD
    given = facts(*(config(option, '%g' % iops, 'osd.%d' % osd) for osd, iops in enumerate(rows)),
                  **osds(*range(12), rotational=rotational))
    return replace(given, measured=Measurements(store_iops={
        int(name[3:]): row for name, row in probed.items()}))


@pytest.mark.parametrize('look, given, seen, fix', [
    (rules.debug_levels, facts(*(config('debug_%s' % name, '20') for name in 'abcde')),
     'debug_a is 20 for osd, debug_b is 20 for osd, debug_c is 20 for osd, debug_d is 20 for osd '
     'and 1 more',
     'ceph config rm osd debug_a; ceph config rm osd debug_b; ceph config rm osd debug_c; ceph '
     'config rm osd debug_d'),
    (rules.memory_target, facts(
        config('osd_memory_target', '3G', 'osd.7'), config('osd_memory_target', '2G', 'osd.5'),
        config('osd_memory_target', '2G', 'osd.6')),
     'osd_memory_target of osd.5, osd.6, osd.7 is below 4.0 GiB; the lowest is 2.0 GiB (osd.5)',
     'ceph config set osd.5 osd_memory_target 4294967296'),
    (rules.memory_target, facts(
        config('osd_memory_target_autotune', 'true'), config('osd_memory_target', '2G', 'osd.5')),
     'osd_memory_target of osd.5 is below 4.0 GiB; the lowest is 2.0 GiB (osd.5)',
     'move other daemons away from host h2.example.com, or raise the share of its memory that '
     'cephadm divides among its daemons (osd_memory_target_autotune): ceph config set mgr '
     'mgr/cephadm/autotune_memory_target_ratio <more than now; default 0.7>'),
    (rules.memory_overcommitted, facts(
        config('osd_memory_target', '231G', 'osd.4'), config('osd_memory_target', '1G', 'osd.5')),
     'the memory targets of the 2 OSDs of host h2.example.com add up to 232.0 GiB (memory 256.0 '
     'GiB)',
     'ceph config rm osd.4 osd_memory_target; ceph config rm osd.5 osd_memory_target; ceph config '
     'set osd/host:h2 osd_memory_target %d' % (256 * GIB * 0.45)),
    (rules.memory_overcommitted, facts(
        config('osd_memory_target_autotune', 'true'), config('osd_memory_target', '240G', 'osd.4')),
     'the memory targets of the 2 OSDs of host h2.example.com add up to 244.0 GiB (memory 256.0 '
     'GiB)', 'ceph config set mgr mgr/cephadm/autotune_memory_target_ratio 0.7'),
    (rules.cut_off, facts(WPQ, config('osd_op_queue_cut_off', 'low', 'osd.3')),
     'osd_op_queue_cut_off is low for osd.3, which schedules with wpq',
     'ceph config set osd.3 osd_op_queue_cut_off high'),
    (rules.cut_off, facts(WPQ, config('osd_op_queue_cut_off', 'low', 'osd', 'host:h2')),
     'osd_op_queue_cut_off is low for osd.4, osd.5, which schedule with wpq',
     'ceph config set osd/host:h2 osd_op_queue_cut_off high'),
    (rules.cut_off, facts(defaults={'osd_op_queue': 'wpq', 'osd_op_queue_cut_off': 'low'}, **osds(
        *range(12))), 'osd_op_queue_cut_off is low for osd.0, osd.1, osd.2, osd.3, osd.4 and 7 '
     'more, which schedule with wpq', 'ceph config set osd osd_op_queue_cut_off high'),
    (rules.power_saving, replace(GOOD, measured=Measurements(slow_alone=SlowAlone(
        7, 0.914, 0.526, 3))),
     'in all repetitions of probe 7, one operation at a time was slower than several: it took 0.91 '
     'ms, each of 3 at a time 0.53 ms; power saving of CPUs may be the reason',
     'on the hosts of OSDs and on that of the probe, look at "cpupower idle-info" and "cpupower '
     'frequency-info"; compare a probe after "cpupower frequency-set -g performance; cpupower '
     'idle-set -D 10"'),
    (rules.mclock_capacity, capacities(250000.0),
     SSD + ' of osd.0 is 250000 (plausible: 1000 to 80000)',
     'ceph perfguard probe run --store --osd 0'),
    (rules.mclock_capacity, capacities(30.0, rotational=True, osd0=(7, 321.6)),
     HDD + ' of osd.0 is 30 (plausible: 50 to 500, probe 7 measured 321)',
     'ceph config set osd.0 %s 321' % HDD),
    (rules.mclock_capacity, capacities(*[20000.0] * 5, 999.0, osd5=(7, 300000.0)),
     SSD + ' of osd.5 is 999 (plausible: 1000 to 80000, median of such OSDs 20000, probe 7 '
     'measured 300000)', 'ceph config set osd.5 %s 20000' % SSD),
    (rules.mclock_ignores, facts(config('osd_max_backfills', '8'), config('osd_scrub_sleep', '0')),
     'osd_max_backfills is 8 for osd, osd_scrub_sleep is 0 for osd',
     'ceph config rm osd osd_max_backfills; ceph config rm osd osd_scrub_sleep'),
    (rules.secure_mode, facts(
        config('ms_cluster_mode', 'secure crc', 'global'), config('ms_client_mode', 'secure'),
        config('ms_service_mode', 'secure,crc'), config('ms_mon_client_mode', 'secure')),
     'ms_cluster_mode is secure crc for global, ms_client_mode is secure for osd, ms_service_mode '
     'is secure,crc for osd',
     'ceph config rm global ms_cluster_mode; ceph config rm osd ms_client_mode; ceph config rm osd '
     'ms_service_mode'),
    (rules.signatures, facts(*(config('cephx_sign_messages', value, 'osd.%d' % osd)
                               for osd, value in enumerate(('False', '0', 'no', 'true', 'no', 'no')
                                                           ))),
     'cephx_sign_messages is False for osd.0, cephx_sign_messages is 0 for osd.1, '
     'cephx_sign_messages is no for osd.2, cephx_sign_messages is no for osd.4 and 1 more',
     'mount kernel clients without nocephx_sign_messages first; ceph config rm osd.0 '
     'cephx_sign_messages; ceph config rm osd.1 cephx_sign_messages; ceph config rm osd.2 '
     'cephx_sign_messages; ceph config rm osd.4 cephx_sign_messages'),
    (rules.messenger_threads, facts(
        config('ms_async_op_threads', '4', 'osd.1'), config('ms_async_op_threads', '2', 'osd.2'),
        config('ms_async_op_threads', 'many', 'osd.3'), config('ms_async_op_threads', '1', 'mon'),
        config('ms_async_op_threads', '3', 'osd.4'), defaults={}),
     'ms_async_op_threads is 2 for osd.2', 'ceph config rm osd.2 ms_async_op_threads'),
    (rules.messenger_threads, facts(
        config('ms_async_op_threads', '4'), defaults={'ms_async_op_threads': '5'}),
     'ms_async_op_threads is 4 for osd', 'ceph config rm osd ms_async_op_threads'),
    (rules.balancer_off, facts(**balancer(active='false')), 'the balancer is off',
     BALANCE + 'ceph balancer on'),
    (rules.balancer_off, facts(balancer={'active': 'false'}), 'the balancer is off',
     BALANCE + 'ceph balancer on'),
    (rules.balancer_off, facts(balancer={'mode': 'none'}), 'the mode of the balancer is none',
     'ceph balancer off; ceph balancer mode upmap; ' + BALANCE + 'ceph balancer on'),
    (rules.balancer_off, facts(**balancer(active='false', mode='crush-compat')),
     'the mode of the balancer is crush-compat, and it is off',
     'ceph balancer off; ceph balancer mode upmap; ' + BALANCE + 'ceph balancer on'),
    (rules.balancer_deviation, facts(**balancer(upmap_max_deviation='5')),
     'upmap_max_deviation of the balancer is 5 PGs',
     BALANCE + 'ceph config set mgr mgr/balancer/upmap_max_deviation 1')])
def test_the_text_of_a_finding(look: Look, given: Facts, seen: str, fix: str) -> None:
    assert look(given) == Symptom(seen, fix)


@pytest.mark.parametrize('look, given, is_reported', [
    (rules.debug_levels, facts(config('debug_osd', '5/20')), False),
    (rules.debug_levels, facts(config('debug_osd', '6/0')), True),
    (rules.debug_levels, facts(config('debug_osd', '?')), False),
    (rules.memory_target, facts(config('osd_memory_target', '4G')), False),
    (rules.memory_target, facts(config('osd_memory_target', '4294967295')), True),
    (rules.memory_target, facts(config('osd_memory_target', '?')), False),
    # 90 % of 20 GiB, for the two OSDs of each host.
    (rules.memory_overcommitted, facts(config('osd_memory_target', '9G'), **osds(
        *range(12), memory_bytes=20 * GIB)), False),
    (rules.memory_overcommitted, facts(config('osd_memory_target', '9663676417'), **osds(
        *range(12), memory_bytes=20 * GIB)), True),
    (rules.memory_overcommitted, facts(config('osd_memory_target', '200G'), **osds(
        *range(12), memory_bytes=None)), False),
    (rules.memory_overcommitted, facts(config('osd_memory_target', '200G'), **osds(
        *range(12), hostname='')), False),
    (rules.memory_overcommitted, facts(config('osd_memory_target', '200G'), **osds(
        *range(12), store='memstore')), False),
    (rules.memory_overcommitted, facts(config('osd_memory_target', '?')), False),
    (rules.cut_off, facts(config('osd_op_queue_cut_off', 'low')), False),
    (rules.mclock_capacity, capacities(1000.0, 80000.0), False),
    (rules.mclock_capacity, capacities(80001.0), True),
    (rules.mclock_capacity, capacities(50.0, 500.0, rotational=True), False),
    (rules.mclock_capacity, capacities(501.0, rotational=True), True),
    (rules.mclock_capacity, capacities(49.0, rotational=True), True),
    (rules.mclock_capacity, capacities(7.0, rotational=None), False),
    # A third of the median, and three times as much; of four OSDs none is compared.
    (rules.mclock_capacity, capacities(*[6000.0] * 4, 2000.0, 18000.0), False),
    (rules.mclock_capacity, capacities(*[6000.0] * 5, 1999.0), True),
    (rules.mclock_capacity, capacities(*[6000.0] * 5, 18001.0), True),
    (rules.mclock_capacity, capacities(*[6000.0] * 3, 18001.0), False),
    (rules.mclock_capacity, capacities(*[6000.0] * 4, 18001.0), True),
    # Some of the OSDs to which the limit applies override; the mons of Pacific were forced.
    (rules.mclock_ignores, facts(LIMIT, config(OVERRIDE, 'true', 'osd.7')), False),
    (rules.mclock_ignores, facts(config('osd_max_backfills', '8', 'osd.6'),
                                 config(OVERRIDE, 'true', 'osd.7')), True),
    (rules.mclock_ignores, facts(LIMIT, config(OVERRIDE, 'true'), config(
        OVERRIDE, 'false', 'osd.0')), False),
    (rules.mclock_ignores, facts(LIMIT, config(OVERRIDE, 'true'), defaults={
        'osd_op_queue': 'mclock_scheduler'}), True),
    (rules.secure_mode, facts(config('ms_cluster_mode', '')), False),
    (rules.balancer_off, facts(balancer={}), False),
    (rules.balancer_off, facts(balancer={'mode': 'upmap-read'}), False),
    (rules.balancer_deviation, facts(balancer={'upmap_max_deviation': '0.01'}), False),
    (rules.balancer_deviation, facts(balancer={'upmap_max_deviation': '2'}), True),
    (rules.balancer_deviation, facts(balancer={'upmap_max_deviation': '?'}), False)])
def test_the_limits_of_the_rules(look: Look, given: Facts, is_reported: bool) -> None:
    assert (look(given) is not None) is is_reported


@pytest.mark.parametrize('measured, fix', [
    (1000.0, 'ceph config set osd.0 %s 1000' % SSD),
    (80000.0, 'ceph config set osd.0 %s 80000' % SSD),
    (999.9, 'ceph config rm osd.0 %s' % SSD), (80000.1, 'ceph config rm osd.0 %s' % SSD)])
def test_a_plausible_probe_sets_the_capacity(measured: float, fix: str) -> None:
    found = rules.mclock_capacity(capacities(5.0, osd0=(7, measured)))
    assert found is not None and found.fix == fix


def test_an_implausible_capacity_is_removed_where_it_is_set() -> None:
    given = replace(facts(config(SSD, '250000'), **osds(*range(12), rotational=False)),
                    measured=Measurements(store_iops={0: (7, 300000.0)}))
    found = rules.mclock_capacity(given)
    assert found is not None and found.fix == 'ceph config rm osd %s' % SSD


@pytest.mark.parametrize('memory, has_room', [(10 * GIB, True), (8 * GIB, False)])
def test_the_least_memory_target_fits_a_host(memory: int, has_room: bool) -> None:
    """Two OSDs of 4 GiB each use 8 GiB, and up to 90 % of the memory."""
    found = rules.memory_target(facts(
        config('osd_memory_target', '2G', 'osd.6'), **osds(6, 7, memory_bytes=memory)))
    assert found is not None and found.fix.startswith('ceph config set') is has_room


def test_hosts_of_other_osds_need_no_memory_for_a_higher_target() -> None:
    given = facts(config('osd_memory_target', '2G', 'osd.0'), **osds(6, 7, memory_bytes=GIB))
    found = rules.memory_target(given)
    assert found is not None and found.fix == 'ceph config set osd.0 osd_memory_target 4294967296'


@pytest.mark.parametrize('text, value', [
    ('2k', 2048), ('3m', 3 << 20), ('1t', 1 << 40), (' 5 ', 5), ('7b', 7), ('7kb', 7168),
    ('7i', 7), ('g', None)])
def test_sizes_with_each_unit(text: str, value: Optional[float]) -> None:
    assert rules.number(text) == value


@pytest.mark.parametrize('section, concerns_osds', [
    ('global', True), ('osd', True), ('osd.3', True), ('mon', False), ('osdx', False)])
def test_which_entries_concern_osds(section: str, concerns_osds: bool) -> None:
    entry = ConfigEntry(section, '', 'bluestore_rocksdb_options', 'x')
    assert rules.entries(facts(entry), 'bluestore_rocksdb_options') == [entry] * concerns_osds


@pytest.mark.parametrize('entry, osd, value', [
    (config('osd_memory_target', '6G', 'osd.3'), 3, '6G'),
    (config('osd_memory_target', '6G', 'osd.3'), 4, '4294967296'),
    (config('osd_memory_target', '6G', 'osd', 'class:hdd'), 4, '4294967296')])
def test_the_value_of_an_option_for_an_osd(entry: ConfigEntry, osd: int, value: str) -> None:
    given = facts(entry)
    assert rules.value_of(given, OSDS[osd], 'osd_memory_target') == value
    assert rules.value_of(given, OSDS[osd], 'no_such_option') is None


def test_the_capacities_of_osds_with_wpq_are_not_compared() -> None:
    queues: Dict[str, str] = {'osd.7': 'wpq'}
    assert rules.mclock_capacity(facts(*SANE, config(SSD, '300', 'osd.7'), *(
        config('osd_op_queue', queue, osd) for osd, queue in queues.items()))) is None
