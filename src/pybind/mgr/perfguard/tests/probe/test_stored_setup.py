# SPDX-License-Identifier: LGPL-2.1-or-later
"""What operators set up of probes survives a failover."""
import json

from perfguard.codec import decode, encode
from perfguard.probe.orders import RunOrder
from perfguard.probe.schedules import Baselines, ProbeSettings, Regression, schedule_of

from ..fakes.probe_records import LATENCY, run, step


def test_settings_both_ways() -> None:
    night = schedule_of('night', RunOrder(profile='quick'),
                        {'begin_time': '0200', 'end_time': '0500'})
    base = run(3, [step(LATENCY, [9.0] * 9)])
    settings = ProbeSettings((night,), Baselines().with_run(base),
                             (Regression(3, 5, 'pool:rbd', ('latency read: slower',)),),
                             {'night': 1234.5})
    found = decode(ProbeSettings, json.loads(json.dumps(encode(settings))))
    assert found.schedules == (night,) and found.begun == {'night': 1234.5}
    assert found.regressions == settings.regressions and found.baselines.of(base) == 3
