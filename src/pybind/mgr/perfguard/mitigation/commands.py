# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mon command that makes a setting have a value."""
from typing import Any, Dict

from .types import Kind, Put


def command_of(put: Put) -> Dict[str, Any]:
    setting, value = put.setting, put.value
    if setting.kind is Kind.FLAG:
        return {'prefix': 'osd unset' if value is None else 'osd set', 'key': setting.name}
    if setting.kind is Kind.AFFINITY:
        return {'prefix': 'osd primary-affinity', 'id': int(setting.name),
                'weight': 1.0 if value is None else float(value)}
    if value is None:
        return {'prefix': 'config rm', 'who': setting.who, 'name': setting.name}
    return {'prefix': 'config set', 'who': setting.who, 'name': setting.name, 'value': value}
