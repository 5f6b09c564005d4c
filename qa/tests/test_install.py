# SPDX-License-Identifier: LGPL-2.1-or-later
"""What setup.py installs is what ceph-mgr loads and what the shell finds."""
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

from qa.cluster import Cluster

from .guard import Guard

CHECKOUT = Path(__file__).resolve().parents[2]


def test_installed_module_and_script(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    source, library, scripts = (tmp_path / name for name in ('source', 'library', 'scripts'))
    source.mkdir()
    for name in ('setup.py', 'setup.cfg', 'README.md'):
        shutil.copy(CHECKOUT / name, source)
    shutil.copytree(CHECKOUT / 'src', source / 'src',
                    ignore=shutil.ignore_patterns('__pycache__'))
    subprocess.run(
        [sys.executable, 'setup.py', '-q', 'install', '--install-lib', str(library),
         '--install-scripts', str(scripts)], cwd=source, check=True, timeout=120)
    assert (library / 'perfguard' / 'module.py').exists()
    assert not (library / 'perfguard' / 'tests').exists()

    script = subprocess.run(
        [str(scripts / 'perfguard-plan'), 'pin', '--osd-dump', '/nonesuch',
         '--pg-dump', '/nonesuch'],
        cwd=tmp_path, env={'PATH': '/usr/bin:/bin'}, timeout=30, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, universal_newlines=True)
    assert script.returncode == 2 and '/nonesuch' in script.stderr
    assert 'Traceback' not in script.stderr

    cluster = make_cluster('pacific', osds=3, hosts=3, module_dir=library / 'perfguard')
    assert Guard(cluster).get('status')['phase'] == 'IDLE'
