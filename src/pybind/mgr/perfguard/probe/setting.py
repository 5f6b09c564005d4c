# SPDX-License-Identifier: LGPL-2.1-or-later
"""What results depend on beside jobs and target: runs that differ in it are not comparable."""
from typing import Dict, Iterable, List, Mapping, Optional

from ..cluster.types import ConfigEntry
from .records import RunRecord

#: Options that change how fast OSDs and clients are begin with one of these.
_PREFIXES = ('osd_', 'bluestore_', 'bluefs_', 'rocksdb_', 'memstore_', 'ms_', 'objecter_', 'rbd_')
#: Daemons and clients whose options count.
_SECTIONS = ('global', 'osd', 'client')
#: So many options are remembered, and so many differences named.
MOST_OPTIONS, MOST_NAMED = 200, 5
ENGINE, RELEASE, PGS, DRIVES, OPTION = 'engine', 'Ceph release', 'PGs', 'drives', 'option '
#: So many models of drives are named.
MOST_DRIVES = 20
#: There where the options were read: then what is missing is not set.
READ = 'options'


def setting_of(release: str, pg_num: int, entries: Optional[Iterable[ConfigEntry]],
               drives: Iterable[str] = ()) -> Dict[str, str]:
    """`pg_num`: of the pool, 0 for a bench of the stores; `entries`: None where the mons did not
    say; `drives`: of the OSDs that do the work, '' where it is not known."""
    found = {RELEASE: release} if release else {}
    if pg_num:
        found[PGS] = str(pg_num)
    known = sorted(set(drives) - {''})
    if known:
        found[DRIVES] = ', '.join(known[:MOST_DRIVES]) + (
            ' and %d more' % (len(known) - MOST_DRIVES) if len(known) > MOST_DRIVES else '')
    if entries is not None:
        found[READ] = 'read'
    options = sorted((OPTION + '/'.join(filter(None, (each.section, each.mask, each.name))),
                      each.value) for each in entries or () if _counts(each))
    found.update(options[:MOST_OPTIONS])
    return found


def _counts(entry: ConfigEntry) -> bool:
    return entry.section.split('.')[0] in _SECTIONS and entry.name.startswith(_PREFIXES)


def differences(a: RunRecord, b: RunRecord) -> List[str]:
    """In words; empty: comparable, as far as is known."""
    ours, theirs = _known(a), _known(b)
    both = READ in ours and READ in theirs
    keys = [key for key in dict.fromkeys((*ours, *theirs))
            if key in ours and key in theirs or both and key.startswith(OPTION)]
    found = ['%s: %s (before: %s)' % (key, theirs.get(key, 'not set'), ours.get(key, 'not set'))
             for key in keys if ours.get(key) != theirs.get(key)]
    return found if len(found) <= MOST_NAMED else [
        *found[:MOST_NAMED], 'and %d more' % (len(found) - MOST_NAMED)]


def _known(record: RunRecord) -> Mapping[str, str]:
    engines = sorted({result.engine for result in record.results if result.engine})
    return {**({ENGINE: ', '.join(engines)} if engines else {}), **record.setting}
