# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Debian package: what is in it, that dpkg installs and purges it, and that the mgr
of each release runs what it installs."""
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from qa.cluster import Cluster
from qa.cluster.releases import get
from qa.lib.guard import Guard

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = Path('usr/share/ceph/mgr')

#: $1: root of a system, $2: an empty directory, $3: a package, $4: a script. Carries out the script
#: in a copy of the system that nothing outlives: an overlay, in a mount namespace of its own.
IN_A_COPY = '''
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cp "$3" "$2/root/perfguard.deb"
exec chroot "$2/root" sh -euc "$4"
'''
INSTALLED = '''
before=$(find /usr /etc -path "*/__pycache__*" -prune -o -print | sort | cksum)
dpkg -i /perfguard.deb
echo "installed: $(dpkg-query -W -f '${Status}' ceph-mgr-perfguard)"
perfguard-plan --help | head -1
perfguard-probe --help | head -1
test -e /usr/share/ceph/mgr/perfguard/module.py
dpkg -i /perfguard.deb
dpkg -P ceph-mgr-perfguard
test ! -e /usr/share/ceph/mgr/perfguard
after=$(find /usr /etc -path "*/__pycache__*" -prune -o -print | sort | cksum)
test "$before" = "$after"
echo "nothing is left"
'''


@pytest.fixture(scope='module')
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the package, below a directory that stands for the root."""
    for tool in ('dpkg-buildpackage', 'dh'):
        if shutil.which(tool) is None:
            pytest.skip('%s is not installed: no package can be built' % tool)
    out = tmp_path_factory.mktemp('package')
    subprocess.run([str(CHECKOUT / 'packaging' / 'build.sh'), 'deb', str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    package, = (path for path in out.glob('*.deb') if 'dbgsym' not in path.name)
    subprocess.run(['dpkg-deb', '-x', str(package), str(out / 'root')], check=True, timeout=60)
    subprocess.run(['dpkg-deb', '-e', str(package), str(out / 'control')], check=True, timeout=60)
    return out


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_a_mgr_runs_what_the_package_installs(release: str, unpacked: Path,
                                              make_cluster: Callable[..., Cluster]) -> None:
    installed = unpacked / 'root' / MODULES
    # The native engine is found under this name only.
    assert (installed / 'perfguard' / 'probe' / 'worker' / 'core.so').exists()
    assert (installed / 'perfguard' / 'web' / 'page' / 'page.js').exists()
    assert not list(installed.rglob('tests'))
    cluster = make_cluster(release, osds=3, hosts=3, module_dir=installed / 'perfguard')
    guard = Guard(cluster)
    assert guard.get('status')['phase'] == 'IDLE' and not guard.tracebacks()


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_dpkg_installs_and_purges_it(release: str, unpacked: Path, tmp_path: Path) -> None:
    """Beside the packages of Ceph, with the dependencies that the package names."""
    package, = (path for path in unpacked.glob('*.deb') if 'dbgsym' not in path.name)
    done = subprocess.run(
        ['unshare', '--mount', '--propagation', 'private', 'sh', '-euc', IN_A_COPY, 'sh',
         str(get(release).path('/')), str(tmp_path), str(package), INSTALLED],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True, timeout=300)
    assert done.returncode == 0, done.stdout
    for words in ('installed: install ok installed', 'usage: perfguard-plan',
                  'usage: perfguard-probe', 'nothing is left'):
        assert words in done.stdout


@pytest.mark.releases('pacific', quick=())
def test_nothing_of_the_package_belongs_to_another(release: str, unpacked: Path) -> None:
    """Beside the packages of Ceph that are installed here."""
    files = [path.relative_to(unpacked / 'root') for path in (unpacked / 'root').rglob('*')
             if path.is_file()]
    assert {Path('usr/bin/perfguard-plan'), Path('usr/bin/perfguard-probe')} <= set(files)
    for path in files:
        owner = subprocess.run(['dpkg', '-S', '/%s' % path], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, universal_newlines=True, timeout=60)
        assert owner.returncode == 1 or owner.stdout.startswith('ceph-mgr-perfguard:'), path


@pytest.mark.releases('pacific', quick=())
def test_the_plan_command_runs(release: str, unpacked: Path) -> None:
    script = unpacked / 'root' / 'usr/bin/perfguard-plan'
    assert script.read_text().startswith('#!/usr/bin/python3')
    done = subprocess.run(
        ['/usr/bin/python3', str(script), '--help'], timeout=60, stdout=subprocess.PIPE,
        universal_newlines=True,
        env={'PATH': '/usr/bin:/bin', 'PYTHONPATH': str(unpacked / 'root' / MODULES)})
    assert done.returncode == 0 and 'pin' in done.stdout
