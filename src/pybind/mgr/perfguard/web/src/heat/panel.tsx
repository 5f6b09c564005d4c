// SPDX-License-Identifier: LGPL-2.1-or-later
import { useMemo, useState } from 'preact/hooks';
import { clockText } from '../format';
import { osdsStaleness } from '../freshness';
import { useNow } from '../hooks';
import type { State, Store } from '../store';
import { recall, remember } from '../theme';
import type { Suspect } from '../types';
import { HeatMap } from './map';
import { hostsOf, summaryOf } from './osds';
import { OsdTable } from './table';

const VIEW = 'perfguard-osd-view';

interface Props {
    store: Store;
    state: State;
    suspects: Suspect[];
}

export function Osds({ store, state, suspects }: Props) {
    const { osds, osdsFailure: failure } = state;
    const [table, setTable] = useState(recall(VIEW) === 'table');
    const suspect = suspects[0] ?? null;
    const hosts = useMemo(() => hostsOf(osds ?? [], suspect),
        [osds, suspect?.osd, suspect?.why]);
    const body = useMemo(() => (table ? <OsdTable hosts={hosts} /> : <HeatMap hosts={hosts} />),
        [hosts, table]);
    const trouble = summaryOf(osds ?? [], suspect);
    return (
        <section class="card" aria-labelledby="osds-title" data-test="heat">
            <div class="section-head">
                <h2 id="osds-title">OSDs against their peers</h2>
                <span class={trouble ? 'state-slow' : 'muted'} data-test="heat-summary">
                    {trouble || (osds?.length ? 'no OSD is slow' : '')}
                </span>
                {osds && <Old store={store} state={state} />}
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
                    ? 'No OSD has reported yet.' : 'Loading\u2026'}</p>
            )}
            {!table && osds && osds.length > 0 && <Legend />}
        </section>
    );
}

/** The overview may come while the OSDs do not. */
function Old({ store, state }: { store: Store; state: State }) {
    const received = state.osdsAt;
    const why = osdsStaleness({
        received, interval: store.osdsInterval, shownAt: state.shownAt,
        failure: state.osdsFailure,
    }, useNow(1000));
    return why === null ? null : (
        <span class="state-warm" role="status" data-test="heat-stale">
            as of {clockText(received / 1000)}: {why}
        </span>
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
            <li><span class="cell h-slow" aria-hidden="true"><b data-mark="S" /></span> slow</li>
            <li>
                <span class="cell h-slow" aria-hidden="true"><b data-mark="L" /></span>
                {' '}suspect for laggy PGs
            </li>
            <li><span class="cell h-none" aria-hidden="true" /> too few operations</li>
            <li><span class="cell h-none" aria-hidden="true"><b data-mark="?" /></span> silent</li>
            <li><span class="cell h-none in" aria-hidden="true" /> pinned PGs to move in</li>
            <li><span class="cell h-none out" aria-hidden="true" /> pinned PGs to move out</li>
        </ul>
    );
}
