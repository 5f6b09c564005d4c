// SPDX-License-Identifier: LGPL-2.1-or-later
import { useState } from 'preact/hooks';
import { Failure } from '../parts/dialog';
import type { Store } from '../store';
import type { Comparison, Osd, Overview, ProbeDetails } from '../types';
import { Compared } from './compare';
import { Details } from './details';
import { ProbeForm } from './form';
import { ProbeList } from './list';
import { Schedules } from './schedules';
import { useTask } from './task';

interface Props {
    store: Store;
    overview: Overview;
    osds: Osd[];
}

export function Probes({ store, overview, osds }: Props) {
    const [marked, setMarked] = useState<number[]>([]);
    const [details, setDetails] = useState<ProbeDetails | null>(null);
    const [comparison, setComparison] = useState<Comparison | null>(null);
    const { busy, error, run } = useTask();
    const { status, may } = overview;
    const mark = (id: number, on: boolean) =>
        setMarked(on ? [...marked, id] : marked.filter((each) => each !== id));
    const show = (id: number) => run(async () => {
        setDetails(await store.api.get<ProbeDetails>(`probe/${id}`));
    });
    const compare = () => run(async () => {
        const [before, after] = [...marked].sort((a, b) => a - b);
        setComparison(await store.api.get<Comparison>('probe/compare', { before, after }));
    });
    return (
        <section class="card" aria-labelledby="probes-title">
            <div class="section-head">
                <h2 id="probes-title">Probes</h2>
                <span class="muted">kept in {overview.probe.kept_in}</span>
                <button type="button" class="button small right" data-test="probe-compare-button"
                    disabled={busy || marked.length !== 2} onClick={() => void compare()}>
                    {marked.length === 2 ? `Compare ${Math.min(...marked)} and ${Math.max(...marked)}`
                        : 'Compare two'}
                </button>
            </div>
            {may.create && <ProbeForm store={store} pools={status.pools} osds={osds} />}
            <Failure text={error} />
            {comparison && (
                <Compared comparison={comparison} onClose={() => setComparison(null)} />
            )}
            {details && <Details details={details} onClose={() => setDetails(null)} />}
            <ProbeList store={store} probes={overview.probe.probes} running={status.probe} may={may}
                marked={marked} onMark={mark} onShow={(id) => void show(id)} />
            <Schedules store={store} schedules={overview.schedules} may={may} pools={status.pools}
                osds={osds} />
        </section>
    );
}
