# SPDX-License-Identifier: LGPL-2.1-or-later
"""Installs perfguard.

    pip install .                                              the module, perfguard-plan and
                                                                perfguard-probe
    python3 setup.py install --install-lib /usr/share/ceph/mgr  where ceph-mgr looks for modules
"""
import os
import sys
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.install import install
from setuptools.command.install_scripts import install_scripts

SOURCE = 'src/pybind/mgr'


class BuildPy(build_py):
    """Compiles the probe's native engine too, where there is a C compiler."""

    def run(self) -> None:
        super().run()
        sys.path.insert(0, SOURCE)
        from perfguard.probe.worker.build import build
        del sys.path[0]
        why_not = build(os.path.join(self.build_lib, 'perfguard', 'probe', 'worker'))
        if why_not is not None:
            self.announce('probes use their Python engine: %s' % why_not, level=3)


class InstallScripts(install_scripts):
    """Scripts that find the package also where Python does not look for packages by itself."""

    def run(self) -> None:
        super().run()
        library = self._library()
        for path in self.get_outputs():
            with open(path) as script:
                shebang, body = script.read().split('\n', 1)
            with open(path, 'w') as script:
                script.write('%s\nimport sys\nsys.path.append(%r)\n%s' % (shebang, library, body))

    def _library(self) -> str:
        """Where the package is at last: --root is where it is put together only."""
        command = self.get_finalized_command('install')
        library = os.path.abspath(command.install_lib)
        root = os.path.abspath(command.root) if command.root else '/'
        return os.path.join('/', os.path.relpath(library, root)) \
            if os.path.commonpath([root, library]) == root else library


class Install(install):
    """Files side by side where --install-lib says, as ceph-mgr wants them, and never an egg."""

    def finalize_options(self) -> Any:
        if not self.root and not self.record:
            self.single_version_externally_managed = True
            os.makedirs('build', exist_ok=True)
            self.record: str = os.path.join('build', 'installed-files.txt')
        super().finalize_options()


setup(
    name='perfguard',
    version='0.1.0',
    description='Ceph manager module that keeps client I/O fast while the cluster changes',
    long_description='See README.md and doc/mgr/perfguard/index.rst.',
    license='LGPL-2.1-or-later',
    python_requires='>=3.9',
    install_requires=['prettytable'],
    package_dir={'': SOURCE},
    packages=find_packages(SOURCE, include=['perfguard', 'perfguard.*'],
                           exclude=['perfguard.tests', 'perfguard.tests.*']),
    # The dashboard's page as it was built, so that installing takes no npm.
    package_data={'perfguard.web': ['page/*']},
    # The dashboard imports every file of that folder, so the drop-in goes into its package.
    py_modules=['dashboard.controllers.perfguard'],
    entry_points={'console_scripts': ['perfguard-plan = perfguard.offline:main',
                                      'perfguard-probe = perfguard.probe.client:main']},
    cmdclass={'build_py': BuildPy, 'install': Install,
              'install_scripts': InstallScripts},
    classifiers=['Programming Language :: Python :: 3',
                 'License :: OSI Approved :: '
                 'GNU Lesser General Public License v2 or later (LGPLv2+)'])
