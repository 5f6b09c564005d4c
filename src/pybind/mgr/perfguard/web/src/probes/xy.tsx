// SPDX-License-Identifier: LGPL-2.1-or-later
import { numberText } from '../format';
import { type Axis, share, type Xy } from './curves';

const [WIDTH, HEIGHT] = [520, 250];
const [LEFT, RIGHT, TOP, BOTTOM] = [62, 26, 10, 40];

/** Points with error bars: the median of the repetitions, the lowest and the highest. */
export function XyChart({ xy, test }: { xy: Xy; test: string }) {
    const x = (value: number) => LEFT + share(xy.x, value) * (WIDTH - LEFT - RIGHT);
    const y = (value: number) => HEIGHT - BOTTOM - share(xy.y, value) * (HEIGHT - TOP - BOTTOM);
    const line = xy.points.map(({ x: across, y: up }) => `${x(across.median)} ${y(up.median)}`);
    const bars = xy.points.map(({ x: across, y: up }) =>
        `M${x(across.low)} ${y(up.median)}H${x(across.high)}`
        + `M${x(across.median)} ${y(up.low)}V${y(up.high)}`);
    const reference = xy.reference.map(([across, up]) => `${x(across)} ${y(up)}`);
    return (
        <figure class="job" data-test={test} data-points={xy.points.length}>
            <figcaption><b>{xy.title}</b> <span class="muted">{xy.text}</span></figcaption>
            <svg class="xy" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img"
                aria-label={`Chart of ${xy.title}: ${xy.y.name} against ${xy.x.name}. ${xy.text}`}>
                <Grid axis={xy.x} at={x} up={false} />
                <Grid axis={xy.y} at={y} up />
                {reference.length > 0 && <path class="one" d={`M${reference.join('L')}`} />}
                <path class="line" d={`M${line.join('L')}`} />
                <path class="interval" d={bars.join('')} />
                {xy.points.map((point) => (
                    <circle key={point.label} class={point.marked ? 'knee' : 'point'}
                        cx={x(point.x.median)} cy={y(point.y.median)} r={point.marked ? 6 : 3}>
                        <title>{`${point.label}: ${numberText(point.x.median)} ${xy.x.name}, `
                            + `${numberText(point.y.median)} ${xy.y.name}`}</title>
                    </circle>
                ))}
            </svg>
            <ul class="reasons">{xy.notes.map((note) => <li key={note}>{note}</li>)}</ul>
        </figure>
    );
}

/** Lines at the ticks of one axis, their values, and its name. */
function Grid({ axis, at, up }: { axis: Axis; at: (value: number) => number; up: boolean }) {
    const name = up ? { x: 8 - HEIGHT / 2, y: 12, transform: 'rotate(-90)' }
        : { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6 };
    return (
        <g class="axis">
            <path class="grid" d={axis.ticks.map((tick) => (up ? `M${LEFT} ${at(tick)}H${WIDTH - RIGHT}`
                : `M${at(tick)} ${TOP}V${HEIGHT - BOTTOM}`)).join('')} />
            {axis.ticks.map((tick) => (up
                ? <text key={tick} x={LEFT - 6} y={at(tick) + 4} class="end">{tickText(tick)}</text>
                : <text key={tick} x={at(tick)} y={HEIGHT - BOTTOM + 15}>{tickText(tick)}</text>))}
            <text {...name}>{axis.name}</text>
        </g>
    );
}

function tickText(value: number): string {
    return value.toLocaleString('en-US', { maximumSignificantDigits: 3 });
}
