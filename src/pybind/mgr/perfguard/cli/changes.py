# SPDX-License-Identifier: LGPL-2.1-or-later
"""The commands that change CRUSH or pools, and their preview: one thin function each."""
import errno
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..cluster.types import Json
from ..errors import Refused
from ..rebalance import tables
from ..rebalance.orders import AWAIT, LOSE, Order, expansion, words
from ..rebalance.replacing import CANCEL, REPLACE
from ..rebalance.report import release_preview_json
from ..rebalance.risks import accepted
from ..tables import accepted as message_text
from ..window import duration_seconds
from .shell import CommandResult, Handlers, Plain, reads, show, spelled, writes

#: Changes -> the text for people on their effects.
CHANGE_TEXTS: Dict[str, Plain] = {
    'expand': tables.order, 'drain': tables.order, 'undrain': tables.order,
    'replace': tables.replacement, 'rule': tables.order, 'pg_num': tables.order,
    'balance': tables.order, 'crushmap': tables.order, 'adopt': tables.adoption,
    'import': tables.importing, 'rollback': tables.order}
#: Those that a plan may hold.
PLANNABLE = tuple(change for change in CHANGE_TEXTS
                  if change not in ('adopt', 'import', 'rollback'))
#: Those that take a whole file, and those that take neither that nor names.
_FILE_CHANGES, _NAMELESS_CHANGES = ('crushmap', 'import'), ('adopt', 'rollback')
#: Argument that only some changes take -> these changes.
_TAKEN_BY: Dict[str, Tuple[str, ...]] = {
    'weight': ('expand',), 'prior_version': ('crushmap',), 'drain': ('expand',),
    'upmaps_max': ('rule', 'crushmap'), 'await_': ('expand',), 'inbuf': _FILE_CHANGES,
    'by': ('balance',), 'deviation': ('balance',), 'max_movement': ('balance',),
    'what_if': ('expand',)}
#: Arguments that an Order has under the same name.
_IN_ORDER = ('weight', 'prior_version', 'by', 'deviation', 'max_movement', 'upmaps_max', 'what_if',
             'remove')


def order_of(change: str, arguments: Mapping[str, Any]) -> Order:
    """The order for a change by its name. Raises Refused, and InvalidValue for an invalid duration.

    `arguments`: those of the command by name; None, False and an empty inbuf: not given.
    """
    given = _given(arguments)
    what, codes = given.pop('what', ()), accepted(given.pop('accept', ()))
    dry_run = 'dry_run' in given
    change = spelled(change)
    # The loss of OSDs can only be previewed.
    losing = change == LOSE and dry_run
    if change not in CHANGE_TEXTS and not losing:
        raise Refused(errno.EINVAL, 'unknown change %.40r: must be one of %s'
                      % (change, ', '.join([*CHANGE_TEXTS, *([LOSE] if dry_run else [])])))
    _refuse_mismatched(change, what, given)
    if losing:
        return Order(LOSE, _names(LOSE, what), dry_run=True)
    order = Order(change, accept=codes, dry_run=dry_run,
                  **{name: given[name] for name in _IN_ORDER if name in given})
    if change == 'crushmap':
        return replace(order, crush_map=_file(given.get('inbuf'), 'no CRUSH map: give one'))
    if change == 'import':
        return replace(order, mappings=_file(given.get('inbuf'), 'no mappings: give a file'))
    # The hosts of --what-if do not exist, so this can only be previewed.
    if 'what_if' in given:
        return replace(order, under=words(*given.get('under', ())),
                       device_class=given.get('class_'), accept=(), dry_run=True)
    drain = words(*given.get('drain', ()))
    if 'await_' in given:
        return replace(_awaited(what, given.get('within'), order), drain=drain)
    if change == 'expand':
        return expansion(words(*what), order.weight, codes, dry_run, drain)
    return replace(order, names=_names(change, what))


def _given(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of a command without those that are not given: None, False, an empty inbuf."""
    return {name: value for name, value in arguments.items()
            if value is not None and value is not False and (value or name != 'inbuf')}


def _refuse_mismatched(change: str, what: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise Refused for arguments that the change does not take, or not together with others.
    `what`, `given`: the names, and the other arguments that are given."""
    _refuse_ignored(change, {_spelled(name): name in given and change not in changes
                             for name, changes in _TAKEN_BY.items()})
    is_awaited, asks_what_if = 'await_' in given, 'what_if' in given
    _refuse_ignored(change, {
        '--within': 'within' in given and not is_awaited,
        '--await with --what-if': is_awaited and asks_what_if,
        '--drain with --what-if': 'drain' in given and asks_what_if,
        '--under': 'under' in given and not asks_what_if,
        '--class': 'class_' in given and not asks_what_if,
        ' '.join(what) + ' with --what-if': bool(what) and asks_what_if,
        ' '.join(what): bool(what) and change in (*_FILE_CHANGES, *_NAMELESS_CHANGES)})
    if given.get('upmaps_max', 0) < 0:
        raise Refused(errno.EINVAL, '--upmaps-max must be at least 0, not %d' % given['upmaps_max'])


def _awaited(what: Sequence[str], within: Optional[str], order: Order) -> Order:
    """The order to expand to OSDs that boot later. `within`: how long to wait for the first, as in
    "12h"; None: the default. Raises Refused for names and accepted risks."""
    _refuse_ignored('expand --await', {'%s (it takes the OSDs that boot later)' % ' '.join(
        what): bool(what), '--accept (the risks are not known yet)': bool(order.accept)})
    return replace(order, verb=AWAIT,
                   within=0.0 if within is None else duration_seconds(within))


def _spelled(name: str) -> str:
    """An argument as operators write it."""
    return '-i' if name == 'inbuf' else '--' + name.rstrip('_').replace('_', '-')


def _names(change: str, what: Sequence[str]) -> Tuple[str, ...]:
    """The names that a change is for: a pool with a rule or a number, pools, or OSDs, hosts and
    racks. Raises Refused if there are too few or too many."""
    if change == 'rule' and len(what) != 2 or change == 'pg_num' and not 0 < len(what) < 3:
        raise Refused(errno.EINVAL, '%s requires a pool and %s' % (
            change, 'a CRUSH rule' if change == 'rule' else 'at most one number'))
    if change == 'balance' and not all(what):
        raise Refused(errno.EINVAL, 'an argument for pools, device classes or CRUSH roots is empty')
    if change in ('rule', 'pg_num', 'balance'):
        # A pool's name may contain commas.
        return tuple(what)
    if not what and change not in _NAMELESS_CHANGES:
        raise Refused(errno.EINVAL, '%s requires OSDs, hosts or racks' % change)
    return words(*what)


def _refuse_ignored(change: str, arguments: Mapping[str, bool]) -> None:
    """Raise Refused for the first argument that is given although the change does not use it.
    `arguments`: whether each is."""
    for argument, ignored in arguments.items():
        if ignored:
            raise Refused(errno.EINVAL, '%.80s does not apply to %.40s' % (argument, change))


def _file(inbuf: Optional[str], missing: str) -> bytes:
    """The contents of a file, in which Ceph passes bytes that are not UTF-8 as surrogates.

    `missing`: how the refusal begins if there is none.
    """
    if not inbuf:
        raise Refused(errno.EINVAL, missing + ' with -i <file>')
    try:
        return inbuf.encode('utf-8', 'surrogateescape')
    except UnicodeEncodeError:
        # The JSON of a REST call can contain half of a surrogate pair.
        raise Refused(errno.EINVAL, 'the given text is not valid Unicode')


class ChangeCommands(Handlers):
    @writes('perfguard expand', CHANGE_TEXTS['expand'])
    def expand(self, what: Optional[List[str]] = None, weight: Optional[str] = None,
               dry_run: bool = False, accept: Optional[List[str]] = None, await_: bool = False,
               within: Optional[str] = None, drain: Optional[List[str]] = None) -> Json:
        """Give new OSDs (CRUSH weight 0) their weight without remapping a PG, then fill them"""
        return self._change('expand', what=what, weight=weight, dry_run=dry_run, accept=accept,
                            await_=await_, within=within, drain=drain)

    @writes('perfguard drain', CHANGE_TEXTS['drain'])
    def drain(self, what: List[str], dry_run: bool = False,
              accept: Optional[List[str]] = None) -> Json:
        """Empty OSDs, hosts or racks in batches; their CRUSH weights are remembered"""
        return self._change('drain', what=what, dry_run=dry_run, accept=accept)

    @writes('perfguard undrain', CHANGE_TEXTS['undrain'])
    def undrain(self, what: List[str], dry_run: bool = False,
                accept: Optional[List[str]] = None) -> Json:
        """Restore the CRUSH weights of drained OSDs, hosts or racks"""
        return self._change('undrain', what=what, dry_run=dry_run, accept=accept)

    @writes('perfguard replace')
    def replace(self, what: List[str], dry_run: bool = False, accept: Optional[List[str]] = None,
                cancel: bool = False, remove: bool = False,
                format: Optional[str] = None) -> CommandResult:
        """Empty OSDs or hosts, then fill their new devices under the same OSD IDs"""
        if cancel:
            _refuse_ignored('--cancel', {'--dry-run': dry_run, '--accept': bool(accept),
                                         '--remove': remove})
            return show(self.loop.ask(Order(CANCEL, words(*what))), format, message_text)
        return show(self._change(REPLACE, what=what, dry_run=dry_run, accept=accept,
                                 remove=remove), format, CHANGE_TEXTS[REPLACE])

    @writes('perfguard rule', CHANGE_TEXTS['rule'])
    def rule(self, pool: str, rule: str, upmaps_max: Optional[int] = None, dry_run: bool = False,
             accept: Optional[List[str]] = None) -> Json:
        """Give a pool another CRUSH rule; PGs that cannot be pinned under it move first"""
        return self._change('rule', what=(pool, rule), upmaps_max=upmaps_max, dry_run=dry_run,
                            accept=accept)

    @writes('perfguard pg-num')
    @writes('perfguard pg_num', CHANGE_TEXTS['pg_num'])
    def pg_num(self, pool: str, pg_num: Optional[int] = None, dry_run: bool = False,
               accept: Optional[List[str]] = None) -> Json:
        """Split or merge PGs of a pool in batches; without <pg_num>, name the recommended number"""
        what = (pool,) if pg_num is None else (pool, str(pg_num))
        return self._change('pg_num', what=what, dry_run=dry_run, accept=accept)

    @writes('perfguard balance', CHANGE_TEXTS['balance'])
    def balance(self, what: Optional[List[str]] = None, by: Optional[str] = None,
                deviation: Optional[str] = None, max_movement: Optional[str] = None,
                dry_run: bool = False, accept: Optional[List[str]] = None) -> Json:
        """Move PGs of pools, classes or roots until each OSD has its share: --by pgs or bytes"""
        return self._change('balance', what=what, by=by, deviation=deviation,
                            max_movement=max_movement, dry_run=dry_run, accept=accept)

    @writes('perfguard crushmap', CHANGE_TEXTS['crushmap'])
    def crushmap(self, inbuf: Optional[str] = None, prior_version: Optional[int] = None,
                 upmaps_max: Optional[int] = None, dry_run: bool = False,
                 accept: Optional[List[str]] = None) -> Json:
        """Set a new CRUSH map (-i) without remapping a PG, then release in batches"""
        return self._change('crushmap', prior_version=prior_version, upmaps_max=upmaps_max,
                            inbuf=inbuf, dry_run=dry_run, accept=accept)

    @writes('perfguard adopt', CHANGE_TEXTS['adopt'])
    def adopt(self, dry_run: bool = False, accept: Optional[List[str]] = None) -> Json:
        """Take over an expansion that another tool has pinned with upmaps, and release its pins"""
        return self._change('adopt', dry_run=dry_run, accept=accept)

    @writes('perfguard import', CHANGE_TEXTS['import'])
    def import_mappings(self, inbuf: Optional[str] = None, dry_run: bool = False,
                        accept: Optional[List[str]] = None) -> Json:
        """Move PGs in batches to where exported mappings (-i) place them"""
        return self._change('import', inbuf=inbuf, dry_run=dry_run, accept=accept)

    # For users with read access: Ceph checks capabilities by the prefix of a command, so it cannot
    # distinguish --dry-run from the command without it.

    @reads('perfguard preview')
    def preview(self, change: Optional[str] = None, what: Optional[List[str]] = None,
                weight: Optional[str] = None, prior_version: Optional[int] = None,
                by: Optional[str] = None, deviation: Optional[str] = None,
                max_movement: Optional[str] = None, upmaps_max: Optional[int] = None,
                inbuf: Optional[str] = None,
                await_: bool = False, within: Optional[str] = None,
                drain: Optional[List[str]] = None, what_if: Optional[str] = None,
                under: Optional[List[str]] = None, class_: Optional[str] = None,
                format: Optional[str] = None) -> CommandResult:
        """Show what a change or a loss would do, or what a changed CRUSH map will move"""
        arguments = dict(
            what=what, weight=weight, prior_version=prior_version, inbuf=inbuf, await_=await_,
            within=within, by=by, deviation=deviation, max_movement=max_movement, drain=drain,
            what_if=what_if, under=under, class_=class_, upmaps_max=upmaps_max)
        if change is None:
            given = ', '.join(map(_spelled, _given(arguments)))
            if given:
                raise Refused(errno.EINVAL, '%s applies only to a change: name it first, as in '
                              '"preview expand"' % given)
            return show(release_preview_json(self._ready().rebalanced.preview), format,
                        tables.release_preview)
        order = order_of(change, {**arguments, 'dry_run': True})
        text = tables.loss if order.verb == LOSE else \
            CHANGE_TEXTS[spelled(change)] if what_if is None else tables.growth
        return show(self._order(order), format, text)

    def _change(self, change: str, **arguments: Any) -> Json:
        return self._order(order_of(change, arguments))
