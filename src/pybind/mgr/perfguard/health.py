# SPDX-License-Identifier: LGPL-2.1-or-later
"""Health checks as MgrModule.set_health_checks takes them."""
from typing import Any, Dict, Sequence

#: Ceph keeps so many lines of a health check's detail.
DETAIL_LINES = 50


def warning(summary: str, detail: Sequence[str]) -> Dict[str, Any]:
    return {'severity': 'warning', 'summary': summary, 'count': len(detail),
            'detail': list(detail[:DETAIL_LINES])}
