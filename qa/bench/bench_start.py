# SPDX-License-Identifier: LGPL-2.1-or-later
"""What ceph-mgr spends on importing the module, at its start and after a failover.

    /usr/bin/python3 -m qa.bench.bench_start

Each run is a new process, which imports the shell of the module and so all of it, with a stub in
place of mgr_module. Modules of Python itself that ceph-mgr has loaded for others are counted as
well. Without compiled files: as after an installation that did not write any.
"""
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional, Sequence

from qa.lib.reference import CHECKOUT

IMPORT = '''
import resource, sys
from perfguard.tests.fakes import mgr_module
sys.modules["mgr_module"] = mgr_module.made()
def usage():
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime, found.ru_maxrss
seconds, kib = usage()
import perfguard.module
after = usage()
count = sum(name.startswith("perfguard") for name in sys.modules)
print(1000 * (after[0] - seconds), (after[1] - kib) / 1024, count)
'''


def measured(cache: Optional[str]) -> List[float]:
    """CPU time in ms, MiB and modules of one process; `cache`: directory of compiled files."""
    environment: Dict[str, str] = {'PYTHONPATH': str(CHECKOUT / 'src' / 'pybind' / 'mgr'),
                                   'PYTHONPYCACHEPREFIX': cache or '/nonexistent'}
    if not cache:
        environment['PYTHONDONTWRITEBYTECODE'] = '1'
    return [float(word) for word in subprocess.run(
        [sys.executable, '-c', IMPORT], env=environment, check=True, stdout=subprocess.PIPE,
        universal_newlines=True, timeout=120).stdout.split()]


def row(name: str, runs: Sequence[Sequence[float]]) -> str:
    cpu = sorted(run[0] for run in runs)
    return '%-22s %6.0f to %4.0f %8.1f %8.0f' % (name, cpu[0], cpu[-1], runs[0][1], runs[0][2])


def main() -> int:
    print('%-22s %14s %8s %8s' % ('', 'CPU time in ms', 'MiB', 'modules'))
    with tempfile.TemporaryDirectory() as cache:
        measured(cache)
        print(row('with compiled files', [measured(cache) for _ in range(5)]))
    print(row('without', [measured(None) for _ in range(3)]))
    return 0


if __name__ == '__main__':
    sys.exit(main())
