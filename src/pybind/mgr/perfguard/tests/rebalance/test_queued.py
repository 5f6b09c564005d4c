# SPDX-License-Identifier: LGPL-2.1-or-later
"""When an order that no operator waits for is tried again."""
import errno
from typing import Callable

import pytest

from perfguard.errors import Refused
from perfguard.rebalance.queued import Retry


def refusing(error: Exception) -> Callable[[], None]:
    def carry_out() -> None:
        raise error
    return carry_out


@pytest.mark.parametrize('refusals, seconds', [
    (0, 60.0), (1, 120.0), (2, 240.0), (5, 1920.0), (6, 3600.0), (2000, 3600.0)])
def test_a_refused_order_is_tried_less_and_less_often(refusals: int, seconds: float) -> None:
    retry, refused = Retry('plan p1', refusals=refusals).attempt(
        1000.0, refusing(Refused(errno.EPERM, 'osd.3 is full')))
    assert retry == Retry('plan p1', 1000.0 + seconds, 'osd.3 is full', refusals + 1)
    assert refused is not None and refused.errno == errno.EPERM
    assert not retry.is_due(1000.0 + seconds - 0.1) and retry.is_due(1000.0 + seconds)


@pytest.mark.parametrize('refused, seconds', [
    (Refused(errno.EPERM, 'a PG is degraded', not_fit=True), 5.0),
    (Refused(errno.EAGAIN, 'the tools are busy'), 60.0)])
def test_an_order_that_waits_for_the_cluster_is_tried_as_often_as_before(
        refused: Refused, seconds: float) -> None:
    retry, _ = Retry('plan p1', refusals=4).attempt(1000.0, refusing(refused))
    assert retry == Retry('plan p1', 1000.0 + seconds, str(refused), 0)


def test_an_error_is_a_refusal() -> None:
    retry, refused = Retry('plan p1').attempt(1000.0, refusing(KeyError('osd')))
    assert refused is not None and refused.errno == errno.EIO
    assert retry.refusals == 1 and retry.due == 1060.0


def test_an_order_that_is_carried_out_is_not_tried_again() -> None:
    retry = Retry('plan p1', 900.0, 'osd.3 is full', 2)
    assert retry.attempt(1000.0, lambda: None) == (retry, None)
