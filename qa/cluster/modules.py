# SPDX-License-Identifier: LGPL-2.1-or-later
"""The directory of mgr modules of a cluster: those of the release, and perfguard."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from .errors import ClusterError
from .releases import Release

PACKAGED = '/usr/share/ceph/mgr'
MODULE = 'perfguard'
#: Compiles the native engine, which is optional.
BUILD = Path('probe', 'worker', 'build.py')

_SKIP = shutil.ignore_patterns('tests', '__pycache__', '*.pyc', '*.so', '.mypy_cache',
                               '.pytest_cache', 'node_modules', '.build')


def default_module_dir() -> Path:
    """The module in the checkout of this file."""
    return Path(__file__).resolve().parents[2] / 'src' / 'pybind' / 'mgr' / MODULE


def install(target: Path, release: Release, module_dir: Optional[Path]) -> None:
    """Fill `target`, or refresh the copy of the module and of its dashboard controller in it.

    The packaged modules are symlinks to their path in the release, so they resolve where the mgr
    runs. A missing module is left out.
    """
    packaged = release.path(PACKAGED)
    if not packaged.is_dir():
        raise ClusterError(f'{packaged} not found: run ./install-deps.sh')
    target.mkdir(exist_ok=True)
    for entry in packaged.iterdir():
        link = target / entry.name
        if entry.name != '__pycache__' and not os.path.lexists(link):
            link.symlink_to(f'{PACKAGED}/{entry.name}')
    source = module_dir or default_module_dir()
    _replace(source, target / MODULE)
    controller = source.parent / 'dashboard' / 'controllers' / f'{MODULE}.py'
    if controller.exists() and (packaged / 'dashboard').is_dir():
        _install_controller(packaged / 'dashboard', target / 'dashboard', controller)


def _replace(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_SKIP)
        if (target / BUILD).exists():
            subprocess.run([sys.executable, '-B', str(target / BUILD)], stderr=subprocess.DEVNULL)


def _install_controller(packaged: Path, dashboard: Path, controller: Path) -> None:
    """Replace the link to the dashboard with a copy that contains the controller.

    The dashboard does not import controllers that are symlinks. Only the compiled frontend, which
    is most of the data, is a symlink.
    """
    if dashboard.is_symlink():
        dashboard.unlink()
        skip = shutil.ignore_patterns('tests', '__pycache__', 'frontend')
        shutil.copytree(packaged, dashboard, ignore=skip, symlinks=True)
        (dashboard / 'frontend').symlink_to(f'{PACKAGED}/dashboard/frontend')
    shutil.copy(controller, dashboard / 'controllers' / controller.name)
