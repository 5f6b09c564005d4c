# SPDX-License-Identifier: LGPL-2.1-or-later
"""The cluster in memory with several CRUSH rules: hosts, racks, single OSDs, device classes, roots.
"""
from dataclasses import replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from perfguard.cluster.crush import CrushRules
from perfguard.cluster.ports import Future, FuturePg, NoFuture, Outlook
from perfguard.cluster.types import OsdMap, PoolSetting, PoolRule, pool_of

from .cluster import FakeView
from .mon_model import HOLE, ToyMon, ToyOsd
from .straw_cluster import StrawCluster, straw

NAMES = {'rep': 1, 'ec': 2}


class Rule(NamedTuple):
    name: str
    domain: str
    #: '': OSDs of all classes.
    device_class: str = ''
    root: str = 'default'

    def domain_of(self, osd: int, toy: ToyOsd) -> object:
        return {'osd': osd, 'host': toy.host, 'rack': toy.rack}[self.domain]

    def takes(self, osd: int, toy: ToyOsd) -> bool:
        return self.device_class in ('', class_of(osd)) and self.root in ('default', root_of(toy))


RULES = (Rule('hosts', 'host'), Rule('racks', 'rack'), Rule('hosts-hdd', 'host', 'hdd'),
         Rule('hosts-ssd', 'host', 'ssd'), Rule('any', 'osd'), Rule('two', 'rack', 'ssd'),
         Rule('east', 'host', root='east'), Rule('west', 'host', root='west'))
#: The id of the root above the others, and those of the others with their racks.
TOP, ROOTS = -1, {'east': (-200001, (0, 1)), 'west': (-200002, (2, 3))}


def class_of(osd: int) -> str:
    return 'ssd' if osd % 2 else 'hdd'


def root_of(toy: ToyOsd) -> str:
    return next(name for name, (_, racks) in ROOTS.items() if toy.rack in racks)


class RuledMon(ToyMon):
    """Its rule is that of the pool."""
    rule = RULES[0]

    def legal(self, osds: Sequence[int]) -> bool:
        if any(self.weight(osd) == 0.0 or not self.rule.takes(osd, self.osds[osd]) for osd in osds):
            return False
        domains = [self.rule.domain_of(osd, self.osds[osd]) for osd in set(osds)]
        return len(domains) == len(set(domains))


class RuledCluster(StrawCluster):
    """8 hosts in 4 racks with an hdd and an ssd each; "default" has two roots below it."""

    def __init__(self, known: int = len(RULES), rule: int = 0, ec_rule: int = 0,
                 **kwargs: Any) -> None:
        """`known`: so many of RULES exist; `rule`, `ec_rule`: those of the pools."""
        self.known = known
        self.rules = {1: rule, 2: ec_rule}
        super().__init__(hosts=8, osds_per_host=2, racks=4, **kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        for pgid, pg in self.pg.items():
            mon = RuledMon(self.toys, 3, pg.mon.raw)
            mon.rule = RULES[self.rules[pool_of(pgid)]]
            self.pg[pgid] = replace(pg, mon=mon)
        self._views = [self._view()]

    def raw_under(self, pgid: str, toys: Mapping[int, ToyOsd]) -> List[int]:
        return self._raw(pgid, toys, RULES[self.rules[pool_of(pgid)]])

    def _raw(self, pgid: str, toys: Mapping[int, ToyOsd], rule: Rule) -> List[int]:
        domains: Dict[object, Dict[int, float]] = {}
        for osd, toy in toys.items():
            if toy.crush_weight * toy.reweight > 0.0 and rule.takes(osd, toy):
                domains.setdefault(rule.domain_of(osd, toy), {})[osd] = toy.crush_weight
        raw: List[int] = []
        for position in range(3):
            if domains:
                best = min(domains, key=lambda each: straw(pgid, rule.domain, each, position))
                osds = domains.pop(best)
                raw.append(min(osds, key=lambda osd: straw(pgid, osd) / osds[osd]))
            elif pool_of(pgid) == 2:
                raw.append(HOLE)
        return raw

    def set_rule(self, pool: int, rule: int) -> None:
        self.rules[pool] = rule
        for pgid, pg in self.pg.items():
            if pool_of(pgid) == pool:
                assert isinstance(pg.mon, RuledMon)
                pg.mon.rule = RULES[rule]
                pg.mon.raw = self.raw_under(pgid, self.toys)

    def _pool_set(self, command: Mapping[str, Any]) -> None:
        if command['var'] == 'crush_rule':
            names = [rule.name for rule in RULES]
            self.set_rule(NAMES[command['pool']], names.index(command['val']))
        else:
            super()._pool_set(command)

    def _view(self) -> FakeView:
        view = super()._view()
        pools = {number: replace(pool, crush_rule=self.rules[number])
                 for number, pool in view.osdmap.pools.items()}
        return replace(view, osdmap=replace(view.osdmap, pools=pools))

    def crush(self, version: int) -> CrushRules:
        return self._crush_rules(list(range(self.known)))

    def _crush_rules(self, steps_of: List[int],
                     toys: Optional[Dict[int, ToyOsd]] = None) -> CrushRules:
        dump = ToyMon(toys or self.toys, 3, ()).crush_dump()
        dump['buckets'] = [*_roots(dump['buckets'][0]), *dump['buckets'][1:]]
        dump['devices'] = [{'id': osd, 'class': class_of(osd)} for osd in self.toys]
        for number, kind in enumerate(('hdd', 'ssd'), 1):
            dump['buckets'] += [_shadow(bucket, kind, number * 1000000)
                                for bucket in dump['buckets'] if '~' not in bucket['name']]
        dump['rules'] = [{'rule_id': number, 'rule_name': RULES[number].name, 'type': 1,
                          'steps': _steps(RULES[steps])}
                         for number, steps in enumerate(steps_of)]
        return CrushRules.from_dump(dump)

    def outlook(self, osdmap: OsdMap, weights: Mapping[int, float], crush_map: Optional[bytes],
                whole: bool = False, setting: Optional[PoolSetting] = None) -> Outlook:
        if self.no_tools:
            return NoFuture(self.no_tools)
        if setting is None:
            outlook = super().outlook(osdmap, weights, crush_map, whole)
            assert isinstance(outlook, Future)
            toys = {osd: toy._replace(crush_weight=weights.get(osd, toy.crush_weight))
                    for osd, toy in self.toys.items()}
            return replace(outlook, crush=self._crush_rules(list(range(self.known)), toys))
        assert isinstance(setting, PoolRule)
        exchanged = list(range(self.known))
        old = osdmap.pools[setting.pool].crush_rule
        exchanged[old], exchanged[setting.rule] = setting.rule, old
        found = {pgid: FuturePg(self._whole(pgid, pg),
                                tuple(self._raw(pgid, self.toys, RULES[setting.rule])))
                 for pgid, pg in self.pg.items() if pool_of(pgid) == setting.pool}
        return Future(found, self._crush_rules(exchanged))


def _roots(default: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The topmost bucket, and the roots below it, each with its racks."""
    racks = {-100002 - rack: root for root, racks in ROOTS.values() for rack in racks}
    found = [{**default, 'items': [{'id': root, 'weight': 131072, 'pos': 0}
                                   for root, _ in ROOTS.values()]}]
    return found + [{**default, 'id': root, 'name': name, 'items': [
        item for item in default['items'] if racks[item['id']] == root]}
        for name, (root, _) in ROOTS.items()]


def _steps(rule: Rule) -> List[Dict[str, Any]]:
    choose = 'choose_firstn' if rule.domain == 'osd' else 'chooseleaf_firstn'
    root = TOP if rule.root == 'default' else ROOTS[rule.root][0]
    shadow = ('', 'hdd', 'ssd').index(rule.device_class) * 1000000
    name = '~'.join(filter(None, (rule.root, rule.device_class)))
    return [{'op': 'take', 'item': root - shadow, 'item_name': name},
            {'op': choose, 'num': 0, 'type': rule.domain}, {'op': 'emit'}]


def _shadow(bucket: Mapping[str, Any], kind: str, offset: int) -> Dict[str, Any]:
    """The bucket with the OSDs of one class."""
    items = [{**item, 'id': item['id'] - offset if item['id'] < 0 else item['id']}
             for item in bucket['items'] if item['id'] < 0 or class_of(item['id']) == kind]
    return {**bucket, 'id': bucket['id'] - offset, 'name': bucket['name'] + '~' + kind,
            'items': items}
