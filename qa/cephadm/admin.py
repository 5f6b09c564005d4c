# SPDX-License-Identifier: LGPL-2.1-or-later
"""The administrator of a rig, on the host that has the keyring and perfguard's archive."""
import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional

from qa.cluster.load_control import TOP_DIR

from .cache import ADMIN_HOST
from .rig import Rig

#: For most of a campaign: it must outlast what happens meanwhile. Not by max_pgs_in_flight: once
#: reduced, it is raised again only after measurements of clients, or minutes.
SLOW = {'max_backfills_host': '1', 'campaign_interval': '5'}
#: An upgrade takes minutes.
SLOWEST = {**SLOW, 'campaign_interval': '30'}
FASTER = {'max_backfills_host': '32', 'campaign_interval': '0.3'}
PGS = 64
OBJECTS = 300
_FILL_SECONDS = 5


def build_archive(out: Path) -> Path:
    """perfguard's archive for cephadm, made of this tree."""
    subprocess.run([f'{TOP_DIR}/packaging/build.sh', 'tar', str(out)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    archive, = out.iterdir()
    return archive


class Admin:
    """The administrator, on a host with the keyring."""

    def __init__(self, rig: Rig, archive: Path) -> None:
        self.rig = rig
        # The root of the host is visible to the keeper only.
        subprocess.run(rig.host_argv(ADMIN_HOST, 'tar', '-C', '/root', '-xz'), check=True,
                       stdin=open(archive, 'rb'), timeout=60)
        self.folder = f'/root/{archive.name[:-len(".tar.gz")]}'

    def installer(self, *options: str, check: bool = True) -> str:
        """Its output. It finds no ceph, as on most hosts, and uses cephadm's shell."""
        return self.rig.admin('sh', '-c', f'cd {self.folder} && PATH=/usr/sbin:/usr/bin '
                              './install-cephadm "$@" 2>&1', 'sh', *options, check=check)

    def spec(self) -> Any:
        return self.rig.json('orch', 'ls', 'mgr', '--export')

    def configure(self, options: Dict[str, str]) -> None:
        """Set options of perfguard. "config assimilate-conf" would not change present values."""
        self.rig.give(f'config set mgr mgr/perfguard/{name} {value}'
                      for name, value in options.items())

    def fill(self) -> None:
        """A pool whose PGs have something to copy."""
        self.rig.give([f'osd pool create rep {PGS} --autoscale-mode=off',
                       'osd pool application enable rep test'])
        self.rig.client('rados', '-p', 'rep', 'bench', str(_FILL_SECONDS), 'write',
                        '--no-cleanup', '-b', '65536', '--max-objects', str(OBJECTS))

    def perfguard(self, *words: str) -> Optional[Any]:
        """The answer to a command; None while no mgr answers."""
        out = self.rig.ceph('perfguard', *words, '--format', 'json', check=False)
        return json.loads(out) if out.strip() else None

    def status(self) -> Any:
        return self.rig.wait(lambda: self.perfguard('campaign', 'status'), 60, 'perfguard')

    def wait_phase(self, *phases: str, seconds: float) -> Any:
        def there() -> Optional[Any]:
            status = self.perfguard('campaign', 'status')
            return status if status and status['phase'] in phases else None

        return self.rig.wait(there, seconds, f'phase {"/".join(phases)}')

    def wait_moving(self) -> Any:
        def moving() -> Optional[Any]:
            status = self.perfguard('campaign', 'status')
            return status if status and status['released'] and status['pinned'] else None

        return self.rig.wait(moving, 120, 'PGs to be released')
