# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page of the dashboard with a fake API, which needs no cluster.

    with FakePage() as page:
        browser.open(page.url('releasing'))

What is going on is the first part of the path: see SCENARIOS in the page's tests/fake/server.ts.
"""
import subprocess
from pathlib import Path
from types import TracebackType
from typing import List, Optional, Type

from qa.cluster.daemons import tied_argv

WEB = Path(__file__).resolve().parents[2] / 'src' / 'pybind' / 'mgr' / 'perfguard' / 'web'
PAGE = WEB / 'page'


def node_modules() -> Path:
    """The packages that the page is built and tested with."""
    found = WEB / 'node_modules'
    if not found.is_dir():
        subprocess.run(['npm', 'ci', '--loglevel=error'], cwd=WEB, check=True)
    return found


class FakePage:
    def __init__(self, arguments: Optional[List[str]] = None) -> None:
        node_modules()
        subprocess.run(['node', 'build.mjs', 'fake', '.build/fake'], cwd=WEB, check=True)
        self._arguments = arguments or []
        self._root = ''
        self._process: Optional['subprocess.Popen[str]'] = None

    def __enter__(self) -> 'FakePage':
        self.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()

    def start(self, *more: str) -> None:
        """Start the server, at its previous address if it had one."""
        port = self._root.rsplit(':', 1)[1] if self._root else '0'
        self._process = subprocess.Popen(
            tied_argv(['node', str(WEB / '.build' / 'fake' / 'server.mjs'), '--port', port,
                       '--page', str(PAGE), *self._arguments, *more]),
            stdout=subprocess.PIPE, universal_newlines=True)
        assert self._process.stdout is not None
        self._root = self._process.stdout.readline().strip()
        if not self._root:
            raise RuntimeError('the fake API has ended')

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def url(self, scenario: str) -> str:
        return f'{self._root}/{scenario}/perfguard'
