# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clusters whose process was killed, which the next boot or the command line removes."""
import os
from pathlib import Path

import pytest

from qa.cluster.cluster import end_cluster


def test_two_processes_remove_the_same_cluster(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, unlink = tmp_path / 'abandoned', Path.unlink
    directory.mkdir()
    (directory / 'ceph.conf').write_text('')

    def unlink_after_the_other(path: Path, missing_ok: bool = False) -> None:
        os.unlink(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, 'unlink', unlink_after_the_other)
    end_cluster(directory)
    assert not directory.exists()
