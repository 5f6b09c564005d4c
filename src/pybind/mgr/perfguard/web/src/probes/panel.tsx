// SPDX-License-Identifier: LGPL-2.1-or-later
import { useState } from 'preact/hooks';
import { Failure } from '../parts/dialog';
import type { Store } from '../store';
import type { Comparison, Osd, Overview, ProbeDetails } from '../types';
import { Compared } from './compare';
import { Details } from './details';
import { ProbeForm } from './form';
import { ProbeList } from './list';
import { listedOf } from './results';
import { Schedules } from './schedules';
import { useGrowing, useShown } from './shown';
import { useTask } from './task';

interface Props {
    store: Store;
    overview: Overview;
    osds: Osd[];
}

export function Probes({ store, overview, osds }: Props) {
    const [marks, setMarks] = useState<number[]>([]);
    const details = useShown<ProbeDetails>();
    const comparison = useShown<Comparison>();
    const { busy, error, run } = useTask();
    const { status, may } = overview;
    useGrowing(store, overview, details);
    const marked = listedOf(marks, overview.probe.probes);
    const mark = (id: number, on: boolean) =>
        setMarks(on ? [...marked, id] : marked.filter((each) => each !== id));
    const show = (id: number, button: Element) => run(async () => {
        details.open(await store.api.get<ProbeDetails>(`probe/${id}`), button);
    });
    const compare = (button: Element) => run(async () => {
        const [before, after] = [...marked].sort((a, b) => a - b);
        comparison.open(await store.api.get<Comparison>('probe/compare', { before, after }),
            button);
    });
    return (
        <section class="card" aria-labelledby="probes-title">
            <div class="section-head">
                <h2 id="probes-title">Probes</h2>
                <button type="button" class="button small right" data-test="probe-compare-button"
                    disabled={busy || marked.length !== 2}
                    onClick={(event) => void compare(event.currentTarget)}>
                    {marked.length === 2 ? `Compare ${Math.min(...marked)} and ${Math.max(...marked)}`
                        : 'Compare two'}
                </button>
            </div>
            {may.create && <ProbeForm store={store} pools={status.pools} osds={osds} />}
            <Failure text={error} />
            {comparison.value && (
                <Compared comparison={comparison.value} onClose={comparison.close} />
            )}
            {details.value && (
                <Details details={details.value} onClose={details.close} />
            )}
            <ProbeList store={store} probes={overview.probe.probes} running={status.probe} may={may}
                marked={marked} onMark={mark} onShow={(id, button) => void show(id, button)} />
            <Schedules store={store} schedules={overview.schedules} may={may} pools={status.pools}
                osds={osds} />
        </section>
    );
}
