# SPDX-License-Identifier: LGPL-2.1-or-later
"""CRUSH maps and what Ceph's own CRUSH makes of them, by crushtool."""
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.types import OsdSet

_TUNABLES = ('choose_local_tries 0', 'choose_local_fallback_tries 0', 'choose_total_tries 50',
             'chooseleaf_descend_once 1', 'chooseleaf_vary_r 1', 'chooseleaf_stable 1')
_TYPES = {'osd': 0, 'host': 1, 'rack': 3, 'root': 11}


@dataclass
class Map:
    """Racks of hosts of OSDs with their weights. Rule 0 takes `take` and does `steps`."""
    racks: List[List[Dict[int, float]]]
    steps: Sequence[str] = ('chooseleaf firstn 0 type host',)
    take: str = 'default'
    classes: Dict[int, str] = field(default_factory=dict)

    @property
    def osds(self) -> List[int]:
        return sorted(osd for hosts in self.racks for host in hosts for osd in host)

    def text(self) -> str:
        lines = ['tunable ' + tunable for tunable in _TUNABLES]
        lines += ['device %d osd.%d class %s' % (osd, osd, self.classes.get(osd, 'hdd'))
                  for osd in self.osds]
        lines += ['type %d %s' % (number, name) for name, number in _TYPES.items()]
        racks: Dict[str, float] = {}
        number = -2
        for r, hosts in enumerate(self.racks):
            inside: Dict[str, float] = {}
            for h, host in enumerate(hosts):
                name = 'r%dh%d' % (r, h)
                lines += _bucket('host', name, number, {'osd.%d' % o: w for o, w in host.items()})
                inside[name] = sum(host.values())
                number -= 1
            lines += _bucket('rack', 'r%d' % r, number, inside)
            racks['r%d' % r] = sum(inside.values())
            number -= 1
        lines += _bucket('root', 'default', -1, racks)
        lines += ['rule r {', 'id 0', 'type replicated', 'min_size 1', 'max_size 20',
                  'step take ' + self.take, *('step ' + step for step in self.steps),
                  'step emit', '}']
        return '\n'.join(lines) + '\n'


def _bucket(kind: str, name: str, number: int, items: Dict[str, float]) -> List[str]:
    return ['%s %s {' % (kind, name), 'id %d' % number, 'alg straw2', 'hash 0',
            *('item %s weight %.5f' % item for item in items.items()), '}']


def place(map_: Map, size: int, pgs: int, directory: Path) -> Tuple[CrushRules, List[OsdSet]]:
    """The map's rules and the raw sets of so many PGs."""
    text, binary = directory / 'map.txt', directory / 'map'
    text.write_text(map_.text())
    _crushtool('-c', str(text), '-o', str(binary))
    rules = CrushRules.from_dump(json.loads(_crushtool('-i', str(binary), '--dump')))
    out = _crushtool('-i', str(binary), '--test', '--rule', '0', '--num-rep', str(size), '--min-x',
                     '0', '--max-x', str(pgs - 1), '--show-mappings')
    found = re.findall(r'^CRUSH rule 0 x \d+ \[([\d,]*)\]$', out, re.MULTILINE)
    assert len(found) == pgs
    return rules, [tuple(map(int, osds.split(','))) for osds in found]


def _crushtool(*argv: str) -> str:
    return subprocess.run(('crushtool', *argv), check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, universal_newlines=True).stdout
