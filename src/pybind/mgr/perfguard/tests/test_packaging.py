# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the packages require and run, and what an interpreter that is too old says."""
import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perfguard

PACKAGE = Path(perfguard.__file__).parent
CHECKOUT = PACKAGE.parents[3]
OLDEST = '%d.%d' % perfguard.OLDEST_PYTHON
#: Says it to ceph-mgr.
STAND_IN = '''
import sys, types
sys.version_info = (3, 6, 15, 'final', 0)
mgr_module = sys.modules['mgr_module'] = types.ModuleType('mgr_module')
mgr_module.MgrModule = type('MgrModule', (), {})
sys.modules['ceph_module'] = types.ModuleType('ceph_module')
import perfguard
subclasses = [each for each in vars(perfguard).values()
              if isinstance(each, type) and issubclass(each, mgr_module.MgrModule)]
print(len(subclasses), subclasses[0].can_run())
'''


@pytest.mark.parametrize('path, pattern', [
    ('setup.py', r"python_requires='>=%s'"), ('setup.cfg', r'python_version = %s$'),
    ('README.md', r'Python %s or later'), ('doc/mgr/perfguard/index.rst', r'Python %s or later'),
    ('debian/control', r'\bBuild-Depends: .*python3:any \(>= %s\)'),
    ('debian/control', r'\bDepends: .*python3:any \(>= %s\)'),
    ('packaging/ceph-mgr-perfguard.spec', r'BuildRequires: +python3-devel >= %s$'),
    ('packaging/ceph-mgr-perfguard.spec', r'^Requires: +python3 >= %s$')])
def test_the_oldest_python_is_required_everywhere(path: str, pattern: str) -> None:
    text = (CHECKOUT / path).read_text()
    assert re.search(pattern % re.escape(OLDEST), text, re.MULTILINE)


def run(*argv: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run([sys.executable, '-S', *argv], capture_output=True, text=True,
                          env={'PYTHONPATH': str(PACKAGE.parent)}, check=False)


@pytest.mark.parametrize('script', ['perfguard.offline', 'perfguard.probe.client'])
def test_a_script_on_an_older_python_is_one_line(script: str) -> None:
    done = run('-c', 'import sys; sys.version_info = (3, 8, 18, "final", 0); import ' + script)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == 'perfguard requires Python %s or later; this is 3.8.18\n' % OLDEST


def test_ceph_mgr_on_an_older_python_reports_it() -> None:
    done = run('-c', STAND_IN)
    assert done.stdout == "1 (False, 'perfguard requires Python %s or later; this is 3.6.15')\n" \
        % OLDEST, done.stderr


@pytest.mark.parametrize('name', ['__init__', 'version', 'too_old'])
def test_what_an_older_python_reads_is_valid_there(name: str) -> None:
    ast.parse((PACKAGE / (name + '.py')).read_text(), feature_version=(3, 6))


@pytest.mark.parametrize('path', sorted(CHECKOUT.glob('debian/*.p*')), ids=lambda path: path.name)
@pytest.mark.parametrize('argument', ['configure', 'remove', 'upgrade'])
def test_scripts_of_the_package_do_not_need_the_module_s_directory(
        path: Path, argument: str, tmp_path: Path) -> None:
    """It may have been moved or removed by hand."""
    script = path.read_text().replace('/usr/share/ceph/mgr', str(tmp_path))
    assert str(tmp_path) in script
    done = subprocess.run(['sh', '-s', argument], input=script.replace('#DEBHELPER#', ''),
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
