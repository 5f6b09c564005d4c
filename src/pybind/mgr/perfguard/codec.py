# SPDX-License-Identifier: LGPL-2.1-or-later
"""Values as JSON and back, by their type hints: for what perfguard stores.

| type                        | JSON                                                          |
|-----------------------------|---------------------------------------------------------------|
| dataclass                   | object; fields that have their default are left out           |
| Union of dataclasses        | object with the `kind` that each has as a class attribute     |
| NamedTuple                  | array; fields at the end that have their default are left out |
| dataclass with `json_row`   | the same: for types of which there are tens of thousands      |
| tuple, list, frozenset      | array                                                         |
| Mapping                     | object; keys that are numbers become text                     |
| Annotated[Mapping, BY_PG]   | [[value, "1.0 1 2 2.0 ..."], ...]; the pool is given once     |
| Annotated[type, As(...)]    | that of the type which it is packed into                      |
| Enum, bytes                 | its value; base64                                             |
| bool, int, float, str, None | themselves; a float must be finite. `Time` is a float          |
| Any, object                 | as it is                                                      |

Fields of a dataclass with compare=False are what only this process knows: they are not written.
"""
import base64
import binascii
import collections.abc
import dataclasses
import enum
import functools
import itertools
import sys
import zlib
from typing import (Annotated, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple,
                    Type, Union, get_args, get_origin, get_type_hints)

from .errors import PerfguardError


class Malformed(PerfguardError, ValueError):
    """JSON that is not of the expected type; the text names the field."""


class Newer(Malformed):
    """JSON with fields or members that this version does not know: a newer version has written
    it."""


class _Form(NamedTuple):
    """How values of one type are written and read."""
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


#: Marks a mapping from PG ids to values of which many are equal.
BY_PG = 'by PG'


class As:
    """Marks a type whose values are stored as values of the type `hint`. `pack` turns a value into
    its stored form, and `unpack` turns that back into the value, or raises ValueError, LookupError
    or zlib.error."""

    def __init__(self, hint: Any, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.hint, self.pack, self.unpack = hint, pack, unpack


def object_with(hints: Mapping[str, Any]) -> Any:
    """The type of a JSON object that has at least the keys of `hints`, with values of these type
    hints. It is read and written as it is, also with further keys: for what is only shown, and to
    which a later version may add values."""
    def checked(value: Dict[str, Any]) -> Dict[str, Any]:
        for key, hint in hints.items():
            decode(hint, value[key])
        return value

    return Annotated[Any, As(Dict[str, Any], dict, checked)]


#: Marks a point in time, in seconds since the epoch by the clock of the mgr that noted it.
TIME = 'time'
Time = Annotated[float, TIME]


def encode(value: Any, hint: Any = None) -> Any:
    """`value` as JSON. Its type, or `hint`, must be one that the table above covers."""
    kind: Any = hint or type(value)
    return _form(kind).write(value)


def decode(hint: Any, raw: Any) -> Any:
    """The value of this type that `encode` has written; raises Malformed, or Newer."""
    return _form(hint).read(raw)


def no_later_than(hint: Any, value: Any, now: float) -> Any:
    """The value, of the type `hint`, with none of its times (`Time`) after `now`: the clock of the
    mgr that has stored it may be ahead, and a wait since such a time would become longer. Times may
    be in mappings, tuples, dataclasses and NamedTuples."""
    if value is None or not _has_times(hint):
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return min(value, now) if TIME in hint.__metadata__ else no_later_than(inner[0], value, now)
    if origin is Union:
        # Optional, or one of several dataclasses.
        kinds = [kind for kind in inner if kind is not _NONE]
        return no_later_than(kinds[0] if len(kinds) == 1 else type(value), value, now)
    if isinstance(value, dict):
        return {key: no_later_than(inner[1], part, now) for key, part in value.items()}
    if origin is tuple:
        hints = itertools.repeat(inner[0]) if inner[1:] == (Ellipsis,) else inner
        return tuple([no_later_than(kind, part, now) for kind, part in zip(hints, value)])
    parts = {name: no_later_than(kind, getattr(value, name), now)
             for name, kind in _hints(hint).items()}
    return dataclasses.replace(value, **parts) if dataclasses.is_dataclass(value) \
        else value._replace(**parts)


@functools.lru_cache(maxsize=None)
def _has_times(hint: Any) -> bool:
    """Whether values of a type may contain times (`Time`)."""
    if get_origin(hint) is Annotated and TIME in hint.__metadata__:
        return True
    return any(map(_has_times, (*get_args(hint), *_hints(hint).values())))


@functools.lru_cache(maxsize=None)
def _form(hint: Any) -> _Form:
    """How values of a type are written to JSON and read. Raises TypeError for a type that the table
    of this module does not cover, which is an error of the caller."""
    if hint in (Any, object):
        return _Form(_same, _same)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        mark = hint.__metadata__[0]
        if isinstance(mark, As):
            return _packed(mark)
        return _by_pg(*get_args(inner[0])) if mark == BY_PG else _form(inner[0])
    if origin is Union:
        return _optional(inner)
    if origin in (tuple, frozenset, list, collections.abc.Sequence):
        return _array(origin, inner)
    if origin in (dict, collections.abc.Mapping):
        return _object(*inner)
    if isinstance(hint, type):
        return _of_class(hint)
    raise TypeError('no JSON for %r' % (hint,))


def _same(value: Any) -> Any:
    return value


def _of_class(kind: type) -> _Form:
    """The form of a plain type, an enum, a dataclass or a NamedTuple."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if issubclass(kind, enum.Enum):
        return _Form(lambda value: value.value, functools.partial(_member, kind))
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if hasattr(kind, '_fields'):
        return _named_row(kind, *_fields(kind))
    raise TypeError('no JSON for %r' % (kind,))


# ---- values without parts

_NONE: Any = type(None)


def _plain(kinds: Tuple[type, ...], raw: Any) -> Any:
    # A bool is an int to Python.
    if not isinstance(raw, kinds) or isinstance(raw, bool) and bool not in kinds:
        raise Malformed('%.80r is no %s' % (raw, kinds[0].__name__))
    return raw


def _number(raw: Any) -> float:
    # An int may be larger than any float.
    if not abs(_plain((float, int), raw)) <= sys.float_info.max:
        raise Malformed('%.80r is no finite number' % raw)
    return float(raw)


def _nothing(raw: Any) -> None:
    if raw is not None:
        raise Malformed('%.80r instead of null' % (raw,))


def _bytes(raw: Any) -> bytes:
    try:
        return base64.b64decode(_plain((str,), raw), validate=True)
    except binascii.Error as error:
        raise Malformed('no base64: %s' % error) from error


def _member(kind: Type[enum.Enum], raw: Any) -> enum.Enum:
    try:
        return kind(raw)
    except ValueError as error:
        # A newer version may have further members.
        raise (Newer if isinstance(raw, str) else Malformed)(str(error)) from error


_PLAIN: Mapping[type, _Form] = {
    bool: _Form(_same, functools.partial(_plain, (bool,))),
    int: _Form(_same, functools.partial(_plain, (int,))),
    str: _Form(_same, functools.partial(_plain, (str,))),
    float: _Form(_same, _number),
    _NONE: _Form(_same, _nothing),
    bytes: _Form(lambda value: base64.b64encode(value).decode(), _bytes)}


# ---- values with parts

def _optional(inner: Tuple[Any, ...]) -> _Form:
    """The form of a Union of these types: of one type, or of several dataclasses; with None among
    them, also of null."""
    kinds = [kind for kind in inner if kind is not _NONE]
    form = _form(kinds[0]) if len(kinds) == 1 else _tagged(kinds)
    if len(kinds) == len(inner):
        return form
    return _Form(lambda value: None if value is None else form.write(value),
                 lambda raw: None if raw is None else form.read(raw))


def _tagged(kinds: List[Any]) -> _Form:
    """The form of a value of one of several dataclasses, which its `kind` in the JSON names."""
    if not all(dataclasses.is_dataclass(kind) and hasattr(kind, 'kind') for kind in kinds):
        raise TypeError('no JSON for a union of %r' % (kinds,))
    forms = {kind.kind: _form(kind) for kind in kinds}

    def read(raw: Any) -> Any:
        kind = _plain((dict,), raw).get('kind')
        if kind not in forms:
            raise (Newer if isinstance(kind, str) else Malformed)('unknown kind %.80r' % (kind,))
        return forms[kind].read({name: part for name, part in raw.items() if name != 'kind'})
    return _Form(lambda value: {'kind': value.kind, **forms[value.kind].write(value)}, read)


def _array(origin: Any, inner: Tuple[Any, ...]) -> _Form:
    """The form of a list, a frozenset or a tuple. Sets are sorted, so that equal ones have equal
    JSON."""
    make = {frozenset: frozenset, list: list}.get(origin, tuple)
    if origin is tuple and inner[1:] != (Ellipsis,):
        return _row([_form(kind) for kind in inner], len(inner), lambda *parts: parts)
    form = _form(inner[0])

    def write(values: Any) -> List[Any]:
        return [form.write(value) for value in
                (sorted(values) if origin is frozenset else values)]

    def read(raw: Any) -> Any:
        return make([form.read(value) for value in _plain((list, tuple), raw)])
    return _Form(write, read)


def _row(forms: List[_Form], needed: int, make: Callable[..., Any]) -> _Form:
    """The form of an array whose parts have types of their own, each with a form; `make` takes the
    parts that were read, of which at least the first `needed` must be there."""
    def write(values: Any) -> List[Any]:
        return [form.write(value) for form, value in zip(forms, values)]

    def read(raw: Any) -> Any:
        if not needed <= len(_plain((list, tuple), raw)) <= len(forms):
            raise Malformed('%d parts instead of %d: %.80r' % (len(raw), len(forms), raw))
        return make(*[form.read(value) for form, value in zip(forms, raw)])
    return _Form(write, read)


def _object(key_hint: Any, value_hint: Any) -> _Form:
    """The form of a mapping as a JSON object."""
    key_form, value_form = _form(key_hint), _form(value_hint)
    numeric = key_hint is int

    def read_key(text: str) -> Any:
        try:
            return key_form.read(int(text) if numeric else text)
        except ValueError as error:
            raise Malformed('key %.80r: %s' % (text, error)) from error

    def read(raw: Any) -> Dict[Any, Any]:
        return {read_key(name): _field(name, value_form, part)
                for name, part in _plain((dict,), raw).items()}
    return _Form(lambda values: {str(key_form.write(key)): value_form.write(value)
                                 for key, value in values.items()}, read)


def _by_pg(_: Any, value_hint: Any) -> _Form:
    """The form of a mapping from PGs to values of which many are equal: a JSON array of each value
    with its PGs in one string."""
    value_form, rows_form = _form(value_hint), _array(list, (Tuple[Any, str],))

    def write(values: Any) -> List[List[Any]]:
        pgids_by_value: Dict[Any, List[str]] = {}
        for pgid, value in values.items():
            pgids_by_value.setdefault(value, []).append(pgid)
        return [[value_form.write(value), ' '.join(_shortened(pgids))]
                for value, pgids in pgids_by_value.items()]

    def read(raw: Any) -> Dict[str, Any]:
        return {pgid: value for part, words in rows_form.read(raw)
                for value in [value_form.read(part)] for pgid in _lengthened(words.split())}
    return _Form(write, read)


def _packed(mark: As) -> _Form:
    form = _form(mark.hint)
    return _Form(lambda value: form.write(mark.pack(value)),
                 lambda raw: _made(lambda: mark.unpack(form.read(raw))))


def _shortened(pgids: List[str]) -> Iterator[str]:
    """The PG ids, without the pool where it is that of the PG before, as in "1.0 1 2 2.0"."""
    before = ''
    for pgid in pgids:
        pool, _, seed = pgid.partition('.')
        yield seed if pool == before else pgid
        before = pool


def _lengthened(words: List[str]) -> Iterator[str]:
    """The PG ids that `_shortened` was given."""
    pool = ''
    for word in words:
        if '.' in word:
            pool, _, word = word.partition('.')
        yield '%s.%s' % (pool, word)


def _field(name: str, form: _Form, raw: Any) -> Any:
    try:
        return form.read(raw)
    except Malformed as error:
        raise type(error)('%s: %s' % (name, error)) from error


def _dataclass(kind: Any) -> _Form:
    """The form of a dataclass as a JSON object, without fields that have their default; with
    `json_row`, as an array."""
    forms, defaults = _fields(kind)
    if getattr(kind, 'json_row', False):
        return _named_row(kind, forms, defaults)

    def write(value: Any) -> Dict[str, Any]:
        parts = {name: getattr(value, name) for name in forms}
        return {name: forms[name].write(part) for name, part in parts.items()
                if name not in defaults or part != defaults[name]}

    def read(raw: Any) -> Any:
        unknown = _plain((dict,), raw).keys() - forms.keys()
        missing = forms.keys() - defaults.keys() - raw.keys()
        if unknown or missing:
            raise (Malformed if missing else Newer)('%s: unknown fields %s, missing fields %s' % (
                kind.__name__, sorted(unknown), sorted(missing)))
        return _made(functools.partial(kind, **{
            name: _field(name, forms[name], part) for name, part in raw.items()}))
    return _Form(write, read)


def _made(make: Callable[[], Any]) -> Any:
    """What `make` returns. Raises Malformed if it refuses the values (ValueError, LookupError,
    zlib.error)."""
    try:
        return make()
    except Newer:
        raise
    except (ValueError, LookupError, zlib.error) as error:
        raise Malformed(str(error)) from error


def _fields(kind: Any) -> Tuple[Dict[str, _Form], Dict[str, Any]]:
    """The forms of the fields that are written, and the defaults of those that have one."""
    forms = {name: _form(hint) for name, hint in _hints(kind).items()}
    if not dataclasses.is_dataclass(kind):
        return forms, kind._field_defaults
    fields = [field for field in dataclasses.fields(kind) if field.name in forms]
    defaults = {field.name: field.default for field in fields}
    defaults.update((field.name, field.default_factory()) for field in fields
                    if field.default_factory is not dataclasses.MISSING)
    return forms, {name: default for name, default in defaults.items()
                   if default is not dataclasses.MISSING}


def _hints(kind: Any) -> Dict[str, Any]:
    """The type hints of the fields that are written; {}: it is no type with fields."""
    if dataclasses.is_dataclass(kind):
        # compare=False: only this process knows it; init=False: the class computes it.
        names = [field.name for field in dataclasses.fields(kind) if field.compare and field.init]
    else:
        names = list(getattr(kind, '_fields', ()))
    hints = get_type_hints(kind, include_extras=True) if names else {}
    return {name: hints[name] for name in names}


def _named_row(kind: Any, forms: Dict[str, _Form], defaults: Dict[str, Any]) -> _Form:
    """The form of a class as a JSON array of its fields, without the last ones that have their
    default."""
    row = _row(list(forms.values()), len(forms) - len(defaults),
               lambda *parts: _made(functools.partial(kind, **dict(zip(forms, parts)))))

    def write(value: Any) -> List[Any]:
        parts = [getattr(value, name) for name in forms]
        names = list(forms)
        while names and names[-1] in defaults and parts[len(names) - 1] == defaults[names[-1]]:
            names.pop()
        return row.write(parts[:len(names)])

    def read(raw: Any) -> Any:
        if len(_plain((list, tuple), raw)) > len(forms):
            raise Newer('%s: %d parts instead of %d' % (kind.__name__, len(raw), len(forms)))
        return row.read(raw)
    return _Form(write, read)
