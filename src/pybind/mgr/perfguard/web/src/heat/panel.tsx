// SPDX-License-Identifier: LGPL-2.1-or-later
import { useMemo, useState } from 'preact/hooks';
import { timeText } from '../format';
import { osdsStaleness } from '../freshness';
import { useNow } from '../hooks';
import type { State, Store } from '../store';
import { recall, remember } from '../theme';
import type { Suspect } from '../types';
import { HeatMap } from './map';
import { type Host, hostsOf, racksOf, summaryOf } from './osds';
import { OsdTable } from './table';

const VIEW = 'perfguard-osd-view';
const ROLLED = 'perfguard-rolled-up';
/** With more OSDs, hosts are shown first: one tile for each OSD does not fit a screen. */
const MOST_OSDS = 640;

interface Props {
    store: Store;
    state: State;
    suspects: Suspect[];
}

export function Osds({ store, state, suspects }: Props) {
    const { osds, osdsFailure: failure } = state;
    const [table, setTable] = useState(recall(VIEW) === 'table');
    const [asked, setAsked] = useState(recall(ROLLED));
    const rolled = asked === null ? (osds ?? []).length > MOST_OSDS : asked === 'yes';
    const suspect = suspects[0] ?? null;
    const hosts = useMemo(() => hostsOf(osds ?? [], suspect),
        [osds, suspect?.osd, suspect?.why]);
    const body = useMemo(() => (table ? <OsdTable hosts={hosts} /> : rolled
        ? <RolledUp hosts={hosts} /> : <HeatMap rows={hosts} label="OSDs by host" />),
    [hosts, table, rolled]);
    const trouble = summaryOf(osds ?? [], suspect);
    return (
        <section class="card" aria-labelledby="osds-title" data-test="heat">
            <div class="section-head">
                <h2 id="osds-title">OSDs compared with their peers</h2>
                <span class={trouble ? 'state-slow' : 'muted'} data-test="heat-summary">
                    {trouble || (osds?.length ? 'no OSD is slow' : '')}
                </span>
                {osds && <Old store={store} state={state} />}
                {!table && (
                    <label class="check right">
                        <input type="checkbox" checked={rolled} data-test="heat-roll-up"
                            onChange={(event) => {
                                const answer = event.currentTarget.checked ? 'yes' : 'no';
                                remember(ROLLED, answer);
                                setAsked(answer);
                            }} /> by host and rack
                    </label>
                )}
                <button type="button" class={table ? 'button small right' : 'button small'} aria-pressed={table}
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

/** Hosts by rack, and the OSDs of the host that was opened. */
function RolledUp({ hosts }: { hosts: Host[] }) {
    const [opened, setOpened] = useState<string | null>(null);
    const shown = hosts.filter(({ name }) => name === opened);
    return (
        <>
            <HeatMap rows={racksOf(hosts)} label="Hosts by rack" opened={opened}
                onOpen={(name) => setOpened(name === opened ? null : name)} />
            {shown.length > 0 ? (
                <div class="opened" data-test="heat-opened">
                    <HeatMap rows={shown} label={`OSDs of ${opened}`} />
                </div>
            ) : <p class="muted">Each tile is a host and shows the state of its worst OSD. Select one to
                show its OSDs.</p>}
        </>
    );
}

/** The overview may be current while the OSDs are not. */
function Old({ store, state }: { store: Store; state: State }) {
    const received = state.osdsAt;
    const why = osdsStaleness({
        received, interval: store.osdsInterval, shownAt: state.shownAt,
        failure: state.osdsFailure,
    }, useNow(1000));
    return why === null ? null : (
        <span class="state-warm" role="status" data-test="heat-stale">
            as of {timeText(received / 1000)}: {why}
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
