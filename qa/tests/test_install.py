# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is released and installed is what ceph-mgr loads and what the shell finds."""
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from qa.cluster import Cluster
from qa.lib.guard import Guard

CHECKOUT = Path(__file__).resolve().parents[2]


def released(tmp_path: Path) -> Path:
    """What is in the source distribution, unpacked."""
    source = tmp_path / 'source'
    source.mkdir()
    for name in ('setup.py', 'setup.cfg', 'MANIFEST.in', 'README.md', 'COPYING'):
        shutil.copy(CHECKOUT / name, source)
    for name in ('src', 'doc', 'monitoring'):
        shutil.copytree(CHECKOUT / name, source / name,
                        ignore=shutil.ignore_patterns('__pycache__', 'node_modules', '.build'))
    subprocess.run([sys.executable, 'setup.py', '-q', 'sdist', '--formats=gztar'], cwd=source,
                   check=True, timeout=120)
    archive, = (source / 'dist').iterdir()
    shutil.unpack_archive(archive, tmp_path / 'released')
    found, = (tmp_path / 'released').iterdir()
    return found


def test_packaged_scripts_name_the_installation_path(tmp_path: Path) -> None:
    """As distributions build: everything is put together below another root."""
    source, root = released(tmp_path), tmp_path / 'root'
    subprocess.run(
        [sys.executable, 'setup.py', '-q', 'install', '--root', str(root), '--install-lib',
         '/usr/share/ceph/mgr', '--install-scripts', '/usr/bin'], cwd=source, check=True,
        timeout=120)
    assert (root / 'usr/share/ceph/mgr/perfguard/module.py').exists()
    text = (root / 'usr/bin/perfguard-plan').read_text()
    assert str(tmp_path) not in text and "sys.path.append('/usr/share/ceph/mgr')" in text


def test_installed_module_and_script(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    library, scripts = (tmp_path / name for name in ('library', 'scripts'))
    source = released(tmp_path)
    # The page can be built anew from what is released.
    web = source / 'src' / 'pybind' / 'mgr' / 'perfguard' / 'web'
    assert (web / 'package-lock.json').exists() and (web / 'src' / 'app.tsx').exists()
    assert (source / 'monitoring' / 'perfguard_alerts.yml').exists()
    subprocess.run(
        [sys.executable, 'setup.py', '-q', 'install', '--install-lib', str(library),
         '--install-scripts', str(scripts)], cwd=source, check=True, timeout=120)
    assert (library / 'perfguard' / 'module.py').exists()
    assert not (library / 'perfguard' / 'tests').exists()
    assert (library / 'perfguard' / 'web' / 'page' / 'page.js').stat().st_size > 10000
    assert not (library / 'perfguard' / 'web' / 'src').exists()
    assert (library / 'dashboard' / 'controllers' / 'perfguard.py').exists()

    script = subprocess.run(
        [str(scripts / 'perfguard-plan'), 'pin', '--osd-dump', '/nonesuch',
         '--pg-dump', '/nonesuch'],
        cwd=tmp_path, env={'PATH': '/usr/bin:/bin'}, timeout=30, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, universal_newlines=True)
    assert script.returncode == 2 and '/nonesuch' in script.stderr
    assert 'Traceback' not in script.stderr

    cluster = make_cluster('pacific', osds=0, module_dir=library / 'perfguard')
    assert Guard(cluster).get('status')['phase'] == 'IDLE'


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_a_mgr_whose_python_is_too_old_says_so(
        release: str, tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    module = tmp_path / 'perfguard'
    shutil.copytree(CHECKOUT / 'src/pybind/mgr/perfguard', module,
                    ignore=shutil.ignore_patterns('__pycache__', 'node_modules', 'tests'))
    version = module / 'version.py'
    version.write_text(version.read_text().replace('(3, 9)', '(3, 99)'))
    cluster = make_cluster(release, osds=0, module_dir=module)
    row, = (row for row in cluster.mon('mgr module ls')['disabled_modules']
            if row['name'] == 'perfguard')
    assert not row['can_run'] and 'requires Python 3.99 or later' in row['error_string']
    refused = cluster.ceph('mgr', 'module', 'enable', 'perfguard', check=False)
    assert refused.returncode != 0 and 'requires Python 3.99 or later' in refused.stderr
