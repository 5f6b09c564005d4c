# SPDX-License-Identifier: LGPL-2.1-or-later
"""The module `mgr_module`, which only ceph-mgr has, as far as perfguard imports it."""
import enum
import threading
import types
from typing import Any, Callable, Dict, Tuple

#: Command -> its permission and its handler, once perfguard.cli is imported.
COMMANDS: Dict[str, Tuple[str, Callable[..., Any]]] = {}


class CommandResult:
    """Filled by the mgr, waited for by the module."""

    def __init__(self, tag: str) -> None:
        self.ev = threading.Event()
        self.r, self.outb, self.outs = 0, '', ''


def _registering(permission: str) -> Callable[..., Callable[..., Any]]:
    def with_prefix(prefix: str, poll: bool = False) -> Callable[..., Any]:
        def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
            COMMANDS[prefix] = (permission, handler)
            return handler
        return decorate
    return with_prefix


def made() -> types.ModuleType:
    """As before Tentacle."""
    module = types.ModuleType('mgr_module')
    for name, value in {
            'CLICommand': object, 'CLIReadCommand': _registering('r'),
            'CLIWriteCommand': _registering('w'), 'CommandResult': CommandResult,
            'MgrModule': object, 'MgrStandbyModule': object, 'Option': dict,
            'NotifyType': enum.Enum('NotifyType', {'osd_map': 'osd_map'})}.items():
        setattr(module, name, value)
    return module
