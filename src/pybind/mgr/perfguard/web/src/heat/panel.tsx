// SPDX-License-Identifier: LGPL-2.1-or-later
import { useMemo, useState } from 'preact/hooks';
import type { ApiError } from '../api';
import { plural } from '../format';
import { recall, remember } from '../theme';
import type { Osd, Suspect } from '../types';
import { HeatMap } from './map';
import { hostsOf } from './osds';
import { OsdTable } from './table';

const VIEW = 'perfguard-osd-view';

interface Props {
    osds: Osd[] | null;
    failure: ApiError | null;
    suspects: Suspect[];
}

export function Osds({ osds, failure, suspects }: Props) {
    const [table, setTable] = useState(recall(VIEW) === 'table');
    const suspect = suspects[0] ?? null;
    const hosts = useMemo(() => hostsOf(osds ?? [], suspect),
        [osds, suspect?.osd, suspect?.why]);
    const body = useMemo(() => (table ? <OsdTable hosts={hosts} /> : <HeatMap hosts={hosts} />),
        [hosts, table]);
    const slow = hosts.flatMap((host) => host.cells).filter((cell) => cell.state === 'slow');
    return (
        <section class="card" aria-labelledby="osds-title" data-test="heat">
            <div class="section-head">
                <h2 id="osds-title">OSDs against their peers</h2>
                <span class={slow.length ? 'state-slow' : 'muted'} data-test="heat-summary">
                    {slow.length ? `${plural(slow.length, 'slow OSD')}: ${slow.slice(0, 6).map(
                        (cell) => `osd.${cell.osd.osd}`).join(', ')}` : 'none is slow'}
                </span>
                <button type="button" class="button small right" aria-pressed={table}
                    data-test="osd-view" onClick={() => {
                        remember(VIEW, table ? 'map' : 'table');
                        setTable(!table);
                    }}>
                    {table ? 'Heat map' : 'Table'}
                </button>
            </div>
            {osds && osds.length ? body : (
                <p class="muted">{failure ? failure.message : osds
                    ? 'No OSD has reported yet.' : 'Asking\u2026'}</p>
            )}
            {!table && osds && osds.length > 0 && <Legend />}
        </section>
    );
}

function Legend() {
    return (
        <ul class="heat-legend" aria-label="Legend">
            <li>
                {['0', '1', '2', '3', '4'].map((level) => (
                    <span key={level} class={`cell h-${level}`} aria-hidden="true" />
                ))}
                as fast as its peers to twice as slow
            </li>
            <li><span class="cell h-slow" aria-hidden="true"><b data-mark="S" /></span> proven slow</li>
            <li><span class="cell h-slow" aria-hidden="true"><b data-mark="L" /></span> suspect of laggy PGs</li>
            <li><span class="cell h-none" aria-hidden="true" /> too little to tell</li>
            <li><span class="cell h-none" aria-hidden="true"><b data-mark="?" /></span> silent</li>
            <li><span class="cell h-none in" aria-hidden="true" /> pinned PGs to come</li>
            <li><span class="cell h-none out" aria-hidden="true" /> pinned PGs to leave</li>
        </ul>
    );
}
