# SPDX-License-Identifier: LGPL-2.1-or-later
"""Dumps as files."""
import json
from pathlib import Path

import pytest

from .test_command import CRUSH_DUMP, OSD_DUMP, ROWS, Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    paths = {}
    for name, dump in (('osd', OSD_DUMP), ('pg', {'pg_stats': ROWS}), ('crush', CRUSH_DUMP)):
        paths[name] = str(tmp_path / name)
        Path(paths[name]).write_text(json.dumps(dump))
    return paths
