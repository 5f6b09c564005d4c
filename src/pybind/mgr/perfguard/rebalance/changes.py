# SPDX-License-Identifier: LGPL-2.1-or-later
"""All kinds of changes. doc/dev/perfguard.rst lists what another kind requires."""
from typing import Union

from .balancing import BalanceChange
from .pg_num import PgNumChange
from .pool_rule import RuleChange
from .weights import WeightChange
from .whole_map import MapChange

AnyChange = Union[WeightChange, MapChange, RuleChange, PgNumChange, BalanceChange]
