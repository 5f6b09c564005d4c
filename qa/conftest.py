# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fixtures of all tests that run on real clusters."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Generator, Iterator, List

import pytest

from qa.cluster import Cluster, ClusterError
from qa.lib import tiers

ClusterFactory = Callable[..., Cluster]

CHECKOUT = Path(__file__).resolve().parents[1]

LOG_LINES = 20

_failed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(tiers.Tiers(config))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: 'pytest.CallInfo[None]'
                              ) -> Generator[None, Any, None]:
    """Tell the fixtures whether the test has failed."""
    outcome = yield
    if outcome.get_result().failed:
        item.stash[_failed] = True


def _factory() -> Iterator[ClusterFactory]:
    clusters: List[Cluster] = []

    def make(release: str = 'pacific', **options: Any) -> Cluster:
        clusters.append(Cluster.up(release, **options))
        return clusters[-1]

    make.clusters = clusters  # type: ignore[attr-defined]
    yield make
    for cluster in clusters:
        cluster.down()


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Cluster.up, and down after the test: ``make_cluster(release, osds=12)``."""
    yield from _factory()


@pytest.fixture(scope='module')
def cluster_factory() -> Iterator[ClusterFactory]:
    """Cluster.up for clusters that the tests of a module share."""
    yield from _factory()


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
def _describe_clusters(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a failure, print what the clusters say of themselves."""
    factories = [request.getfixturevalue(name) for name in ('make_cluster', 'cluster_factory')
                 if name in request.fixturenames]
    yield
    if request.node.stash.get(_failed, False):
        for factory in factories:
            for cluster in factory.clusters:
                print(_description(cluster))


def _description(cluster: Cluster) -> str:
    try:
        status = cluster.ceph('-s', check=False, timeout=10).stdout
    except (ClusterError, OSError, subprocess.SubprocessError) as e:
        status = str(e)
    lines = [status]
    for path in sorted((cluster.directory / 'log').glob('mgr.*.log')):
        with open(path, errors='replace') as log:
            # The directory's own name would make every traceback a hit.
            found = [line for line in log
                     if 'perfguard' in line.replace(str(cluster.directory), '')]
        lines.append(f'{path.name}:\n{"".join(found[-LOG_LINES:])}')
    return '\n'.join(lines)
