# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real Prometheus on the loopback address for the duration of a test."""
import http.client
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

from qa.cluster.daemons import tied_argv

LOOPBACK = '127.0.0.1'
CONFIG = '''
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['%s']
scrape_configs:
  - job_name: perfguard
    static_configs:
      - targets: %s
'''
START_SECONDS = 30.0

Labels = Dict[str, str]


class Prometheus:
    def __init__(self, directory: Path, port: int, targets: Sequence[str], rules: Path) -> None:
        self._directory = directory
        self._port = port
        self.config = directory / 'prometheus.yml'
        self.config.write_text(CONFIG % (rules, json.dumps(list(targets))))
        self._process: 'Optional[subprocess.Popen[bytes]]' = None

    def __enter__(self) -> 'Prometheus':
        log = self._directory / 'prometheus.log'
        with open(log, 'wb') as output:
            self._process = subprocess.Popen(
                tied_argv(['prometheus', '--config.file=%s' % self.config,
                           '--storage.tsdb.path=%s' % (self._directory / 'data'),
                           '--web.listen-address=%s:%d' % (LOOPBACK, self._port)]),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            self._wait_ready(log)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _wait_ready(self, log: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while fetch(self._port, '/-/ready')[0] != 200:
            assert self._process is not None and self._process.poll() is None \
                and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def _api(self, path: str, **parameters: str) -> Any:
        status, text = fetch(self._port, '/api/v1/%s?%s' % (
            path, urllib.parse.urlencode(parameters)))
        assert status == 200, text
        return json.loads(text)['data']

    def targets(self) -> List[str]:
        """Health of each target."""
        return [target['health'] for target in self._api('targets')['activeTargets']]

    def query(self, expr: str) -> List[Tuple[Labels, float]]:
        return [(row['metric'], float(row['value'][1]))
                for row in self._api('query', query=expr)['result']]

    def value(self, expr: str) -> Optional[float]:
        """The value of an expression with at most one result."""
        found = self.query(expr)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def wait(self, expr: str, good: Callable[[Optional[float]], bool], seconds: float) -> float:
        """Wait until the only result meets the condition."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.value(expr)
            if good(value):
                return value or 0.0
            assert time.monotonic() < deadline, (expr, value)
            time.sleep(0.2)

    def alerts(self) -> Dict[str, str]:
        """Alerts that are pending or firing."""
        return {alert['labels']['alertname']: alert['state']
                for alert in self._api('alerts')['alerts']}

    def rules(self) -> Dict[str, str]:
        """The health of each rule that is loaded."""
        return {rule['name']: rule['health'] for group in self._api('rules')['groups']
                for rule in group['rules']}


def fetch(port: int, path: str = '/metrics') -> Tuple[int, str]:
    """Status and text of a response; status 0 if no server listens, or it ends in the middle."""
    try:
        with urllib.request.urlopen('http://%s:%d%s' % (LOOPBACK, port, path), timeout=5) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.IncompleteRead) as error:
        return 0, str(error)
