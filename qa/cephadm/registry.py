# SPDX-License-Identifier: LGPL-2.1-or-later
"""A container registry in the network of a rig."""
import subprocess
from pathlib import Path

from .cache import REGISTRY, Cache

_CONFIG = '''version: 0.1
storage: {filesystem: {rootdirectory: %s}, delete: {enabled: true}}
http: {addr: "%s"}
log: {level: error, accesslog: {disabled: true}}
'''


def start_registry(cache: Cache, directory: Path, *enter: str) -> 'subprocess.Popen[bytes]':
    """Start it with the words `enter` before its command line; configuration and log are put into
    the directory."""
    config = directory / 'registry.yml'
    config.write_text(_CONFIG % (cache.registry, REGISTRY))
    with open(directory / 'registry.log', 'wb') as log:
        return subprocess.Popen(
            [*enter, str(cache.host_root / 'usr/bin/docker-registry'), 'serve',
             str(config)], stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True)
