# SPDX-License-Identifier: LGPL-2.1-or-later
"""The packages: what is in them, that dpkg and rpm install and remove them, that an upgrade of Ceph
leaves the Debian package alone, and that the mgr of each release runs what they install."""
import re
import shutil
import subprocess
from pathlib import Path
from typing import Callable, List

import pytest

from qa.cluster import Cluster
from qa.cluster.releases import get
from qa.lib.guard import Guard

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = Path('usr/share/ceph/mgr')

#: $1: root of a system, $2: an empty directory, $3: a directory that is mounted at /given, $4: a
#: script. Carries out the script in a copy of the system that nothing outlives: an overlay, in a
#: mount namespace of its own.
IN_A_COPY = '''
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mkdir "$2/root/given"
mount --bind "$3" "$2/root/given"
exec chroot "$2/root" sh -euc "$4"
'''
INSTALLED = '''
before=$(find /usr /etc -path "*/__pycache__*" -prune -o -print | sort | cksum)
dpkg -i /given/ceph-mgr-perfguard_*.deb
echo "installed: $(dpkg-query -W -f '${Status}' ceph-mgr-perfguard)"
perfguard-plan --help | head -1
perfguard-probe --help | head -1
test -e /usr/share/ceph/mgr/perfguard/module.py
dpkg -i /given/ceph-mgr-perfguard_*.deb
dpkg -P ceph-mgr-perfguard
test ! -e /usr/share/ceph/mgr/perfguard
after=$(find /usr /etc -path "*/__pycache__*" -prune -o -print | sort | cksum)
test "$before" = "$after"
dpkg -i /given/ceph-mgr-perfguard_*.deb
rm -r /usr/share/ceph/mgr/perfguard
dpkg -P ceph-mgr-perfguard
echo "nothing is left"
'''
#: Every package of Ceph is built again from what is installed, with its scripts, under a higher
#: version, and all of them are upgraded at once.
UPGRADED = '''
dpkg -i /given/ceph-mgr-perfguard_*.deb
mkdir /next
for package in $(dpkg-query -W -f '${source:Package} ${Package}\\n' | sed -n 's/^ceph //p'); do
    version=$(dpkg-query -W -f '${Version}' $package)
    mkdir -p /next/$package/DEBIAN
    dpkg -L $package | while read -r path; do
        case "$path" in /.|/bin|/lib|/sbin) continue ;; esac
        if [ -L "$path" ] || [ -e "$path" ]; then echo "${path#/}"; fi
    done | tar -C / --no-recursion -cT - | tar -C /next/$package -x
    for kind in preinst postinst prerm postrm triggers conffiles; do
        for found in /var/lib/dpkg/info/$package.$kind /var/lib/dpkg/info/$package:*.$kind; do
            if [ -e "$found" ]; then cp "$found" /next/$package/DEBIAN/$kind; fi
        done
    done
    dpkg-query -s $package | sed -e '/^Status:/d' -e '/^Conffiles:/,/^[^ C]/{/^[ C]/d}' \\
        -e "s/$version/$version.next/g" > /next/$package/DEBIAN/control
    dpkg-deb -Znone --root-owner-group -b /next/$package /next > /dev/null
    rm -r /next/$package
done
# As apt does: ceph-osd has pre-dependencies.
dpkg -i $(ls /next/*.deb | grep -v /ceph-osd_)
dpkg -i /next/ceph-osd_*.deb
case $(dpkg-query -W -f '${Version}' ceph-mgr) in *.next) echo "Ceph was upgraded" ;; esac
echo "still: $(dpkg-query -W -f '${Status}' ceph-mgr-perfguard)"
test -z "$(dpkg --audit)" && echo "nothing is broken"
dpkg --verify ceph-mgr-perfguard && echo "all files are in place"
test -e /usr/share/ceph/mgr/dashboard/controllers/perfguard.py
perfguard-plan --help | head -1
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


def a_mgr_runs(installed: Path, release: str, make_cluster: Callable[..., Cluster]) -> None:
    # The native engine is found under this name only.
    assert (installed / 'perfguard' / 'probe' / 'worker' / 'core.so').exists()
    assert (installed / 'perfguard' / 'web' / 'page' / 'page.js').exists()
    assert not list(installed.rglob('tests'))
    cluster = make_cluster(release, osds=3, hosts=3, module_dir=installed / 'perfguard')
    guard = Guard(cluster)
    assert guard.get('status')['phase'] == 'IDLE' and not guard.tracebacks()


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_a_mgr_runs_what_the_package_installs(release: str, unpacked: Path,
                                              make_cluster: Callable[..., Cluster]) -> None:
    a_mgr_runs(unpacked / 'root' / MODULES, release, make_cluster)


@pytest.mark.skipif(shutil.which('rpmbuild') is None, reason='rpmbuild is not installed')
@pytest.mark.releases('tentacle', quick=())
def test_rpm_installs_what_a_mgr_runs_and_erases_it(
        release: str, tmp_path: Path, make_cluster: Callable[..., Cluster]) -> None:
    """Below a directory that stands for the root. Debian does not know what RPM depends on."""
    out, root = tmp_path / 'out', tmp_path / 'root'
    root.mkdir()
    subprocess.run([str(CHECKOUT / 'packaging' / 'build.sh'), 'rpm', str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    package, = out.glob('*.rpm')
    subprocess.run(['rpm', '--root', str(root), '-i', '--nodeps', str(package)], check=True,
                   timeout=60)
    assert {path.name for path in (root / 'usr/bin').iterdir()} == {
        'perfguard-plan', 'perfguard-probe'}
    a_mgr_runs(root / MODULES, release, make_cluster)
    subprocess.run(['rpm', '--root', str(root), '-e', 'ceph-mgr-perfguard'], check=True,
                   timeout=60)
    assert not [path for path in (root / 'usr').rglob('*') if path.is_file()]


def in_a_copy(release: str, scratch: Path, given: Path, script: str) -> str:
    """The output of a script in a copy of the system of a release; it must succeed."""
    done = subprocess.run(
        ['unshare', '--mount', '--propagation', 'private', 'sh', '-euc', IN_A_COPY, 'sh',
         str(get(release).path('/')), str(scratch), str(given), script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True, timeout=300)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_dpkg_installs_and_purges_it(release: str, unpacked: Path, tmp_path: Path) -> None:
    """Beside the packages of Ceph, with the dependencies that the package names."""
    out = in_a_copy(release, tmp_path, unpacked, INSTALLED)
    for words in ('installed: install ok installed', 'usage: perfguard-plan',
                  'usage: perfguard-probe', 'nothing is left'):
        assert words in out


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_an_upgrade_of_ceph_leaves_it_alone(release: str, unpacked: Path, tmp_path: Path) -> None:
    out = in_a_copy(release, tmp_path, unpacked, UPGRADED)
    for words in ('Ceph was upgraded', 'still: install ok installed', 'nothing is broken',
                  'all files are in place', 'usage: perfguard-plan'):
        assert words in out, out


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


#: Instructions of the Containerfile -> commands in a copy of a system. /given has the context of
#: the build, and what passes from one stage to the next.
CARRIED_OUT = {
    'COPY . /perfguard': 'cp -r /given/context /perfguard',
    'WORKDIR /perfguard': 'cd /perfguard',
    'COPY --from=build /out/usr/ /usr/': 'tar -C /usr -xf /given/out.tar'}
#: Installs the compiler, from repositories of another distribution.
NOT_HERE = 'RUN dnf '


def stages(containerfile: str) -> List[List[str]]:
    """The instructions of each stage after FROM, one line each."""
    lines = re.sub(r'\\\n *', '', re.sub(r'^#.*\n', '', containerfile, flags=re.M)).splitlines()
    found: List[List[str]] = []
    for line in filter(None, lines):
        if line.startswith('FROM '):
            found.append([])
        elif found:
            found[-1].append(line)
    return found


def carried_out(instructions: List[str]) -> str:
    """The script of a stage."""
    return '\n'.join(CARRIED_OUT[each] if each in CARRIED_OUT else each[len('RUN '):]
                     for each in instructions if not each.startswith(NOT_HERE))


@pytest.mark.releases('pacific', 'tentacle', quick=())
def test_the_container_image_is_built_as_its_file_says(release: str, tmp_path: Path) -> None:
    """All but the base image: the first stage begins with what is installed here, as only that has
    a compiler, and the second one with the system of the release."""
    build, final = stages((CHECKOUT / 'packaging' / 'Containerfile').read_text())
    assert {each for each in (*build, *final) if not each.startswith('RUN ')} == set(CARRIED_OUT)
    assert sum(each.startswith(NOT_HERE) for each in (*build, *final)) == 1
    ignored = re.findall(r'^\*\*/(.+)$', (CHECKOUT / '.dockerignore').read_text(), re.M)
    given = tmp_path / 'given'
    shutil.copytree(CHECKOUT, given / 'context',
                    ignore=shutil.ignore_patterns(*ignored, '.git', 'build'))
    for name in ('one', 'two'):
        (tmp_path / name).mkdir()
    in_a_copy('pacific', tmp_path / 'one', given, carried_out(build)
              + '\ntar -C /out/usr -cf /given/out.tar .')
    out = in_a_copy(release, tmp_path / 'two', given, carried_out(final) + """
test -e /usr/share/ceph/mgr/perfguard/probe/worker/core.so
test -e /usr/share/ceph/mgr/dashboard/controllers/perfguard.py
cd / && PYTHONPATH=/usr/share/ceph/mgr python3 -c 'import perfguard; print(perfguard.VERSION)'
""")
    assert re.search(r'^\d+\.\d+\.\d+$', out, re.M)
