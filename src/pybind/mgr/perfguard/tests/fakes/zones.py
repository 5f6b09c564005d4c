# SPDX-License-Identifier: LGPL-2.1-or-later
"""The time zone of the process, whatever that of the machine."""
import contextlib
import time
from typing import Iterator

import pytest


@contextlib.contextmanager
def in_zone(name: str) -> Iterator[None]:
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv('TZ', name)
            time.tzset()
            yield
    finally:
        time.tzset()
