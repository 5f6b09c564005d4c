// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import { Failure } from '../parts/dialog';
import { failureOf, type Store } from '../store';
import type { CurveAnswer, ProbeDetails, ScaleAnswer } from '../types';
import { curveXy, hasCurve, hasScaling, scalingXy, type Xy } from './curves';
import { XyChart } from './xy';

/** Charts of a probe at several queue depths, or of growing numbers of OSDs. */
export function Charts({ store, details }: { store: Store; details: ProbeDetails }) {
    const [charts, setCharts] = useState<Xy[]>([]);
    const [error, setError] = useState('');
    const { id } = details;
    const [curve, scale] = [hasCurve(details), hasScaling(details)];
    useEffect(() => {
        let wanted = true;
        setCharts([]);
        setError('');
        ask(store, id, curve, scale)
            .then((found) => wanted && setCharts(found))
            .catch((thrown) => wanted && setError(failureOf(thrown).message));
        return () => { wanted = false; };
    }, [id, curve, scale]);
    return (
        <>
            <Failure text={error} />
            {charts.length > 0 && (
                <div class="jobs">
                    {charts.map((xy, place) => (
                        <XyChart key={xy.title} xy={xy}
                            test={`probe-${curve ? 'curve' : 'scale'}-${place}`} />
                    ))}
                </div>
            )}
        </>
    );
}

async function ask(store: Store, id: number, curve: boolean, scale: boolean): Promise<Xy[]> {
    if (curve) {
        return (await store.api.get<CurveAnswer>(`probe/${id}/curve`)).curves.map(curveXy);
    }
    return scale ? (await store.api.get<ScaleAnswer>(`probe/${id}/scale`)).scalings.map(scalingXy)
        : [];
}
