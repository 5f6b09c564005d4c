# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fixtures of all tests that run on real clusters."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Generator, Iterator, List, Optional

import pytest

from qa.cluster import Cluster, ClusterError
from qa.cluster.state import base_dir, threads
from qa.lib import tiers
from qa.lib.clusters import ClusterFactory, SharedClusters
from qa.lib.guard import Guard

CHECKOUT = Path(__file__).resolve().parents[1]

#: Of the log of an mgr, this many of the last lines about perfguard are shown, and of all lines.
LOG_LINES, LAST_LINES = 20, 5
#: Of each log of a failed cluster, this much of its end is kept.
LOG_BYTES_MAX = 4 << 20

_failed = pytest.StashKey[bool]()
_shared = pytest.StashKey[SharedClusters]()
#: What has the clusters that a test uses.
_factories = pytest.StashKey[List[Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(tiers.Tiers(config), 'perfguard-tiers')


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: 'pytest.CallInfo[None]'
                              ) -> Generator[None, Any, None]:
    """Note for the fixtures that the test has failed; describe its clusters and keep their logs.

    Here and not in a fixture: a lent cluster that a test has failed on is gone by then.
    """
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        again = item.stash.get(_failed, False)
        item.stash[_failed] = True
        for factory in item.stash.get(_factories, []) if not again else []:
            for cluster in factory.clusters:
                report.sections.append((cluster.directory.name, _description(cluster)))
                _keep_logs(cluster, item.nodeid)


@pytest.fixture(scope='session')
def tier(request: pytest.FixtureRequest) -> str:
    """"quick" or "nightly"."""
    return str(request.config.getoption('--tier'))


@pytest.fixture
def failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has failed, for fixtures that are being torn down."""
    return lambda: bool(request.node.stash.get(_failed, False))


@contextlib.contextmanager
def _boot_lock() -> Iterator[None]:
    """One cluster boots at a time: two at once do not end sooner, but may miss their deadlines."""
    base_dir().parent.mkdir(parents=True, exist_ok=True)
    # In /tmp it may belong to another user, or be a link to a file that must not be written.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with open(f'{base_dir()}.lock', 'r+', opener=lambda path, _: os.open(path, flags, 0o600)
              ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _factory(config: pytest.Config) -> Iterator[ClusterFactory]:
    clusters: List[Cluster] = []

    def make(release: str = 'pacific', **options: Any) -> Cluster:
        with _boot_lock():
            clusters.append(Cluster.up(release, **options))
        config.pluginmanager.get_plugin('perfguard-tiers').boots += 1
        return clusters[-1]

    make.clusters = clusters  # type: ignore[attr-defined]
    yield make
    with contextlib.ExitStack() as stack:
        # Each of them, even if one of them refuses to end.
        for cluster in clusters:
            stack.callback(cluster.down)


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Cluster.up, and down after the test: ``make_cluster(release, osds=12)``."""
    yield from _factory(request.config)


@pytest.fixture(scope='module')
def cluster_factory(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Cluster.up for clusters that the tests of a module share."""
    yield from _factory(request.config)


@pytest.fixture(scope='session')
def shared_clusters(request: pytest.FixtureRequest) -> Iterator[SharedClusters]:
    """Clusters that the tests of several modules share."""
    with contextlib.contextmanager(_factory)(request.config) as make:
        request.config.stash[_shared] = SharedClusters(make)
        yield request.config.stash[_shared]


@pytest.fixture
def guard(request: pytest.FixtureRequest, release: str, shared_clusters: SharedClusters,
          failed: Callable[[], bool]) -> Iterator[Guard]:
    """The shared cluster of the kind that the marker `shares` names, with perfguard."""
    kind = tiers.shared_kind(request.node)
    assert kind is not None, 'the marker "shares" is missing'
    with shared_clusters.lend(kind, release, failed) as guard:
        yield guard


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: Optional[pytest.Item]
                            ) -> Generator[None, None, None]:
    """A shared cluster ends with the last test that borrows it."""
    yield
    shared = item.config.stash.get(_shared, None)
    if shared is not None and (nextitem is None or tiers.group(nextitem) != tiers.group(item)):
        shared.discard()


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory,
            monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A base directory for clusters of other processes, emptied in any case."""
    path = tmp_path_factory.mktemp('run')
    monkeypatch.setenv('PERFGUARD_RUN', str(path))
    yield path
    subprocess.run([sys.executable, '-m', 'qa.cluster', 'down', '--all'], cwd=CHECKOUT,
                   timeout=60, check=True)


@pytest.fixture(autouse=True)
def _clusters_of_the_test(request: pytest.FixtureRequest) -> None:
    """For `pytest_runtest_makereport`."""
    names = ('make_cluster', 'cluster_factory', 'shared_clusters')
    request.node.stash[_factories] = [request.getfixturevalue(name) for name in names
                                      if name in request.fixturenames]


def _description(cluster: Cluster) -> str:
    try:
        status = cluster.ceph('-s', check=False, timeout=10).stdout
    except (ClusterError, OSError, subprocess.SubprocessError) as e:
        status = str(e)
    lines = [status]
    for path in sorted((cluster.directory / 'log').glob('mgr.*.log')):
        with open(path, errors='replace') as log:
            logged = log.readlines()
        # The directory's own name would make every traceback a hit.
        found = [line for line in logged
                 if 'perfguard' in line.replace(str(cluster.directory), '')]
        lines.append(f'{path.name}:\n{"".join(found[-LOG_LINES:])}')
        lines.append(f'the end of {path.name}:\n{"".join(logged[-LAST_LINES:])}')
    # A daemon that does not answer may be stopped, wait for a lock or for a disk, or be busy.
    for name, pid in cluster.pids().items():
        if name.startswith('mgr.'):
            lines += [f'threads of {name}:', *threads(pid), '']
    return '\n'.join(lines)


def _keep_logs(cluster: Cluster, test: str) -> None:
    """Into the directory of artefacts, if there is one."""
    artefacts = os.environ.get('PERFGUARD_ARTEFACTS')
    if not artefacts:
        return
    name = re.sub(r'\W+', '-', test.rpartition('/')[2].partition('@')[0]).strip('-')
    kept = Path(artefacts) / 'logs' / name / cluster.directory.name
    kept.mkdir(parents=True, exist_ok=True)
    for path in (cluster.directory / 'log').glob('*.log'):
        with open(path, 'rb') as log, open(kept / path.name, 'wb') as copy:
            log.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
            shutil.copyfileobj(log, copy)
