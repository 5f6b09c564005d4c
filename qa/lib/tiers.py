# SPDX-License-Identifier: LGPL-2.1-or-later
"""Selects the tests of a tier and their releases, and sorts them.

The nightly tier runs a test on every release that its marker names; the quick tier on those of
`quick`. What the tier leaves out is deselected and counted, never skipped.

    @pytest.mark.releases('pacific', 'reef', 'tentacle', quick='reef')
"""
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Generator, List, NamedTuple, Optional, Tuple

import pytest

from qa.cephadm.cache import Cache
from qa.cluster.daemons import heed_interrupts
from qa.lib.seed import SEED, VARIABLE

TIERS = ('quick', 'nightly')
RELEASES = ('pacific', 'reef', 'tentacle')
#: Timeout of a test with its fixtures, unless it has a timeout marker.
TIMEOUT_SECONDS = 900
#: Keys of the report of a worker to the process that distributes the tests.
LEFT_OUT, WITHOUT_RIG, BOOTS = (
    'perfguard_left_out', 'perfguard_without_rig', 'perfguard_boots')
#: Seconds that the tests of a module, or of a kind of shared cluster, take on one release, where
#: that is much: the longest begin first. From the durations that check.sh keeps as artefacts.
LONG = {'test_rule': 700, 'join': 500, 'campaign': 310, 'test_release': 140,
        'test_campaign_trouble': 250, 'test_probe_trouble': 240, 'test_probe': 160,
        'test_mitigation': 150, 'test_metrics': 150, 'test_advise': 150,
        'test_cephadm': 200, 'test_dashboard_api': 120, 'test_dashboard_page': 110,
        'test_soak': 1300}
USUAL = 60
#: In the nightly tier, which check.sh ends after six hours, these begin first, in this order:
#: they kill mgrs, mons and OSDs in many ways, or upgrade them, which the quick tier hardly does.
FIRST = ('test_crash', 'test_faults', 'test_three_mons', 'test_handover')
#: Time for the cleanup after the time limit of the whole run.
LAST_SECONDS = 120.0


class Choice(NamedTuple):
    """The releases that a test runs on."""
    nightly: Tuple[str, ...]
    quick: Tuple[str, ...]


def choice(names: Tuple[str, ...], quick: object = None) -> Choice:
    """From the arguments of the marker; raises ValueError if they contradict each other."""
    nightly = names or RELEASES
    chosen = (nightly[:1] if quick is None else (quick,) if isinstance(quick, str)
              else tuple(str(name) for name in quick) if isinstance(quick, (tuple, list))
              else None)
    if chosen is None or not set(chosen) <= set(nightly) <= set(RELEASES):
        raise ValueError(f'releases{names} with quick={quick!r}: known are {RELEASES}')
    return Choice(nightly, chosen)


def add_options(parser: pytest.Parser) -> None:
    parser.addoption('--tier', default='quick', choices=TIERS,
                     help='quick: each test on one release; nightly: on every release that it '
                     'names (default: quick)')
    parser.addoption('--release', metavar='NAMES',
                     help='run on these releases, separated by commas, in any tier')
    parser.addoption('--limit', type=float, default=0.0, metavar='SECONDS',
                     help='interrupt the whole run after so many seconds')
    parser.addoption('--failed-to', metavar='FILE',
                     help='write the failed tests into a file, one on a line')


class Tiers:
    """The plugin that conftest.py registers."""

    def __init__(self, config: pytest.Config) -> None:
        self._tier: str = config.getoption('--tier')
        self._releases: Optional[List[str]] = None
        if config.getoption('--release'):
            self._releases = config.getoption('--release').split(',')
            unknown = set(self._releases) - set(RELEASES)
            if unknown:
                raise pytest.UsageError(f'--release: no such release: {", ".join(unknown)}')
        self._left_out = 0
        #: Why tests on clusters of cephadm cannot run, and how many these are.
        self._no_rig = Cache.default().why_not()
        self._without_rig = 0
        #: Number of booted clusters.
        self.boots = 0
        #: Failed tests, in their order.
        self._failed: Dict[str, None] = {}
        self._failed_to: Optional[str] = config.getoption('--failed-to')
        heed_interrupts()
        if config.getoption('--limit') and not hasattr(config, 'workerinput'):
            watch_the_clock(config.getoption('--limit'))
        # The garbage collector may report objects of an earlier test, and fail the wrong one.
        config.addinivalue_line('filterwarnings',
                                'ignore::pytest.PytestUnraisableExceptionWarning')
        for line in (
                'releases(*names, quick=...): the Ceph releases that a test runs on (default: '
                'all), and the one or those of the quick tier (default: the first; (): none)',
                'shares(kind): the test borrows a cluster that modules share (qa/lib/clusters.py)',
                'cephadm: the test boots a cluster of cephadm (qa/cephadm), if there is one',
                'alone: the test judges latency, so that nothing else may run meanwhile'):
            config.addinivalue_line('markers', line)

    # ---- Selection

    @staticmethod
    def _choice(node: pytest.Item) -> Optional[Choice]:
        # That of a parameter is the last one.
        own = [mark for mark in node.own_markers if mark.name == 'releases']
        marker = own[-1] if own else node.get_closest_marker('releases')
        if marker is None:
            return choice(()) if 'release' in getattr(node, 'fixturenames', ()) else None
        return choice(marker.args, **marker.kwargs)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize tests that use `release`, directly or through a fixture."""
        if 'release' in metafunc.fixturenames:
            marker = metafunc.definition.get_closest_marker('releases')
            metafunc.parametrize('release', choice(marker.args if marker else ()).nightly,
                                 scope='module')

    def _runs(self, item: pytest.Item) -> bool:
        chosen = self._choice(item)
        if chosen is None:
            return True
        wanted = self._releases or (chosen.quick if self._tier == 'quick' else chosen.nightly)
        release = release_of(item)
        return release in wanted if release else bool(set(wanted) & set(chosen.nightly))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: List[pytest.Item]
                                      ) -> Generator[None, None, None]:
        for item in items:
            if item.get_closest_marker('timeout') is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
            # Before the hook of xdist, which reads it.
            item.add_marker(pytest.mark.xdist_group(group(item)))
        yield
        left_out = [item for item in items if not self._runs(item)]
        without_rig = [item for item in items if item not in left_out and self._no_rig
                       and item.get_closest_marker('cephadm')]
        self._left_out, self._without_rig = len(left_out), len(without_rig)
        deselected = left_out + without_rig
        if deselected:
            items[:] = [item for item in items if item not in deselected]
            config.hook.pytest_deselected(items=deselected)
        # Stable: the tests of a group stay together and in their order.
        items.sort(key=lambda item: (self._rank(item), -LONG.get(family(item), USUAL),
                                     group(item)))

    def _rank(self, item: pytest.Item) -> int:
        name = family(item).partition('-')[0]
        return FIRST.index(name) if self._tier == 'nightly' and name in FIRST else len(FIRST)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from qa.lib.scheduler import Scheduler
        return Scheduler(config, log) if config.getvalue('dist') == 'loadgroup' else None

    # ---- Report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # xdist adds the group.
            self._failed[report.nodeid.partition('@')[0]] = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: Optional[Dict[str, object]] = getattr(session.config, 'workeroutput', None)
        if output is not None:
            output.update({LEFT_OUT: self._left_out, WITHOUT_RIG: self._without_rig,
                           BOOTS: self.boots})
        elif self._failed_to:
            Path(self._failed_to).write_text(''.join(name + '\n' for name in self._failed))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A worker of xdist has ended. All workers collect the same tests."""
        output: Dict[str, int] = getattr(node, 'workeroutput', {})
        self._left_out = max(self._left_out, output.get(LEFT_OUT, 0))
        self._without_rig = max(self._without_rig, output.get(WITHOUT_RIG, 0))
        self.boots += output.get(BOOTS, 0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line('%s=%d' % (VARIABLE, SEED))
        if self.boots:
            terminalreporter.write_line('clusters booted: %d' % self.boots)
        if self._without_rig:
            terminalreporter.write_line(
                'NOT RUN: %d on a cluster of cephadm: %s' % (self._without_rig, self._no_rig),
                yellow=True)
        if self._left_out and self._releases is None:
            terminalreporter.write_line(
                '%d %s in the nightly tier only (./check.sh nightly)' % (
                    self._left_out, 'test runs' if self._left_out == 1 else 'tests run'))


def release_of(item: pytest.Item) -> Optional[str]:
    callspec = getattr(item, 'callspec', None)
    return callspec.params.get('release') if callspec else None


def module(item: pytest.Item) -> str:
    return Path(str(item.path)).stem


def shared_kind(item: pytest.Item) -> Optional[str]:
    """The kind of the shared cluster that a test borrows."""
    marker = item.get_closest_marker('shares')
    return str(marker.args[0]) if marker else None


def family(item: pytest.Item) -> str:
    """The tests that share clusters on one release: those of a module, or of a shared cluster."""
    return shared_kind(item) or module(item)


def group(item: pytest.Item) -> str:
    """One worker runs the tests that share clusters."""
    return '%s-%s' % (family(item), release_of(item) or 'any')


def watch_the_clock(seconds: float) -> None:
    """Interrupt this process after a time; exit if that has no effect."""
    def end() -> None:
        print('\nthe whole run has taken more than %g s: interrupted' % seconds, file=sys.stderr,
              flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(LAST_SECONDS)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
