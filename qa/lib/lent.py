# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests share one after the other, made anew after a test that failed.

    @pytest.fixture(scope='module')
    def lender(release: str, cluster_factory: ClusterFactory) -> Iterator[Lender[Guard]]:
        with Lender(lambda: Guard(cluster_factory(release))) as lender:
            yield lender

    @pytest.fixture
    def guard(lender: Lender[Guard], failed: Failed) -> Iterator[Guard]:
        with lender.lend(failed) as guard:
            yield guard
            tidy(guard)
"""
import contextlib
from types import TracebackType
from typing import Callable, Generic, Iterator, Optional, Protocol, Type, TypeVar

from qa.cluster import Cluster


class OnCluster(Protocol):
    """What drives a cluster."""
    cluster: Cluster


T = TypeVar('T', bound=OnCluster)
#: Whether the test that is being torn down has failed.
Failed = Callable[[], bool]


class Lender(Generic[T]):
    """One test's failure is not that of all that follow: what it leaves is thrown away."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: Optional[T] = None

    def __enter__(self) -> 'Lender[T]':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.discard()

    def discard(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.cluster.down()

    @contextlib.contextmanager
    def lend(self, failed: Failed) -> Iterator[T]:
        """For one test; what is done after the test to put things back belongs to it."""
        if self._made is None:
            self._made = self._make()
        kept = False
        try:
            yield self._made
            kept = not failed()
        finally:
            if not kept:
                self.discard()
