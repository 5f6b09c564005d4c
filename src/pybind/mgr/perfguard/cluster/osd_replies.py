# SPDX-License-Identifier: LGPL-2.1-or-later
"""What OSDs answer to commands, and what the mgr knows of them, as plain data."""
import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .types import LONGEST_OP_SECONDS, UnreadablePg

Json = Mapping[str, Any]

READ_HISTOGRAM = 'op_r_latency_out_bytes_histogram'
WRITE_HISTOGRAM = 'op_w_latency_in_bytes_histogram'


class Histograms(NamedTuple):
    """Client operations since the OSD started, by latency. Buckets as in LatencyCounts."""
    bounds: Tuple[int, ...]
    read: Tuple[int, ...]
    write: Tuple[int, ...]

    def since(self, before: 'Histograms') -> Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]:
        """(read, write) counts that came after `before`; None if the OSD started anew."""
        if before.bounds != self.bounds:
            return None
        counts = [tuple([b - a for a, b in zip(old, new)])
                  for old, new in ((before.read, self.read), (before.write, self.write))]
        return (counts[0], counts[1]) if min(min(row) for row in counts) >= 0 else None


def histograms(out: str) -> Histograms:
    """From ``perf histogram dump``; KeyError, TypeError or ValueError if it is not that.

    The histograms have two axes, latency and size; the sizes are summed up. The latency's name
    says usec, but its numbers are nanoseconds (PerfHistogramCommon.h, OSD.cc).
    """
    osd = json.loads(out)['osd']
    bounds, read = _by_latency(osd[READ_HISTOGRAM])
    other, write = _by_latency(osd[WRITE_HISTOGRAM])
    if other != bounds:
        raise ValueError('reads and writes are counted in different buckets')
    return Histograms(bounds, read, write)


def _by_latency(histogram: Json) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    ranges = histogram['axes'][0]['ranges']
    rows = histogram['values']
    if len(rows) != len(ranges) or len(ranges) < 2:
        raise ValueError('%d buckets, %d rows' % (len(ranges), len(rows)))
    bounds = [int(bucket['max']) + 1 for bucket in ranges[:-1]]
    return tuple(bounds), tuple([sum(row) for row in rows])


def drive_model(metadata: Json) -> str:
    """Model of an OSD's main drive; '' where Ceph does not know it, as of virtual disks.

    From ``device_ids``, "sda=VENDOR_MODEL_SERIAL,nvme0n1=...": all but the serial number.
    """
    ids = dict(pair.split('=', 1) for pair in metadata.get('device_ids', '').split(',')
               if '=' in pair)
    main = metadata.get('bluestore_bdev_devices', '').split(',')[0]
    name = ids.get(main) or next(iter(ids.values()), '')
    return str(name).rpartition('_')[0]


def store_and_drive(metadata: Json) -> str:
    """As in "bluestore on INTEL_SSDSC2KB96"; without a model that Ceph does not know."""
    store, model = str(metadata.get('osd_objectstore', '')), drive_model(metadata)
    return ' on '.join(filter(None, (store, model)))


#: "osd_op(client.4123.0:55 2.1fs0 2:f8a1...", as a tracked operation describes itself.
_CLIENT_OP = re.compile(r'osd_op\(\S+ (\d+\.[0-9a-f]+)(?:s\d+)? ')
#: An operation takes some 800 characters; a thousand of them cost about 5 ms to read.
MOST_CHARS = 1 << 20
#: What operations of a laggy PG, or of one in state wait, are marked with.
_WAITS = 'waiting for readable'


def unreadable_pgs(out: str) -> List[UnreadablePg]:
    """From ``dump_ops_in_flight``: PGs led by the OSD whose operations wait for a read lease.

    Of a long answer only the beginning is read: the oldest operations tell enough.
    """
    if len(out) > MOST_CHARS:
        out = out[:out.rindex('{"description"', 0, MOST_CHARS)].rstrip(', ') + ']}'
    found: Dict[str, List[float]] = {}
    for op in json.loads(out)['ops']:
        match = _CLIENT_OP.match(op['description'])
        events = op['type_data'].get('events', [])
        if match and events and events[-1]['event'] == _WAITS:
            age = float(op['age'])
            if 0.0 <= age <= LONGEST_OP_SECONDS:
                found.setdefault(match.group(1), []).append(age)
    return [UnreadablePg(pgid, max(ages), len(ages)) for pgid, ages in found.items()]


def ping_times(out: str) -> Dict[int, float]:
    """From ``dump_osd_network``: how fast the peers of an OSD answer its heartbeats, in ms.

    By the slower of their interfaces (front and back).
    """
    found: Dict[int, float] = {}
    for entry in json.loads(out)['entries']:
        peer = int(entry['to osd'])
        ms = float(entry['last'])
        if 0.0 <= ms <= 1000.0 * LONGEST_OP_SECONDS:
            found[peer] = max(found.get(peer, 0.0), ms)
    return found


def untrimmed_epochs(out: str) -> Optional[int]:
    """From an OSD's ``status``: OSDMap epochs that are kept, because PGs are not clean."""
    status = json.loads(out)
    epochs = int(status['newest_map']) - int(status['oldest_map']) + 1
    return epochs if epochs >= 0 else None
