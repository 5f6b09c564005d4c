# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whether what was read from a stored document has the types that its dataclass declares. Pure.

JSON that is whole may still be nonsense. A wrong type that is taken up fails in each turn of the
loop, long after the document could have been refused and reported.
"""
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Dict, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar('T')
NONE = type(None)
_HINTS: Dict[type, Dict[str, Any]] = {}


def checked(instance: T) -> T:
    """The instance of a dataclass itself; raises TypeError with the name of a field that is wrong.

    Any finite number passes for an int, a float or a bool: earlier versions wrote one for the
    other.
    """
    kind = type(instance)
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _fits(value, _HINTS[kind][field.name]):
            raise TypeError('%s of %s: %.80r' % (field.name, kind.__name__, value))
    return instance


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Union:
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_fits(each, inner[0]) for each in value)
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    if hint in (int, float, bool):
        return isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(hint, type) and not isinstance(value, hint):
        return False
    if dataclasses.is_dataclass(value):
        checked(value)
    return True
