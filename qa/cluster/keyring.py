# SPDX-License-Identifier: LGPL-2.1-or-later
"""cephx keys, made here: a fork of ceph-authtool for each of sixty OSDs takes seconds."""

import base64
import os
import struct
import time
from typing import Mapping, Optional

ADMIN_CAPS = {'mon': 'allow *', 'mgr': 'allow *', 'osd': 'allow *', 'mds': 'allow *'}
MON_CAPS = {'mon': 'allow *'}
MGR_CAPS = {'mon': 'allow profile mgr', 'osd': 'allow *', 'mds': 'allow *'}

_AES = 1


def new_key() -> str:
    """A new secret, encoded as CryptoKey does: type, creation time, length, 16 random bytes."""
    secret = os.urandom(16)
    header = struct.pack('<HIIH', _AES, int(time.time()), 0, len(secret))
    return base64.b64encode(header + secret).decode()


def entry(entity: str, key: str, caps: Optional[Mapping[str, str]] = None) -> str:
    """One section of a keyring file."""
    lines = [f'[{entity}]', f'\tkey = {key}']
    lines.extend(f'\tcaps {service} = "{cap}"' for service, cap in (caps or {}).items())
    return '\n'.join(lines) + '\n'


def monitor_keyring(mgrs: Mapping[str, str], admin_key: str, mon_key: str) -> str:
    """The keyring that the mons are made with; `mgrs` maps an mgr's id to its key."""
    entries = [entry('mon.', mon_key, MON_CAPS), entry('client.admin', admin_key, ADMIN_CAPS)]
    entries.extend(entry(f'mgr.{mgr_id}', key, MGR_CAPS) for mgr_id, key in mgrs.items())
    return ''.join(entries)
