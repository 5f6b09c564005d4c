// SPDX-License-Identifier: LGPL-2.1-or-later
import type { ProbeDetails } from '../types';
import { curveXy, scalingXy } from './curves';
import { XyChart } from './xy';

/** Charts of a probe at several queue depths, or of growing numbers of OSDs. */
export function Charts({ details }: { details: ProbeDetails }) {
    const kind = details.curves.length > 0 ? 'curve' : 'scale';
    const charts = [...details.curves.map(curveXy), ...details.scalings.map(scalingXy)];
    return charts.length === 0 ? null : (
        <div class="jobs">
            {charts.map((xy, place) => (
                <XyChart key={xy.title} xy={xy} test={`probe-${kind}-${place}`} />
            ))}
        </div>
    );
}
