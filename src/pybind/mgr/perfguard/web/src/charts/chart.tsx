// SPDX-License-Identifier: LGPL-2.1-or-later
// One chart over time: uPlot draws, the legend is ours, so that names stay text.
import uPlot from 'uplot';
import { useEffect, useRef } from 'preact/hooks';
import { clockText, NONE } from '../format';
import { color } from '../theme';
import type { Value } from '../types';
import { type Line, logRange } from './lines';

interface Props {
    title: string;
    test: string;
    lines: Line[];
    /** Times in seconds, then one column a line. */
    data: Value[][];
    /** Of the time axis, the same for all charts. */
    range: [number, number];
    format: (value: Value) => string;
    /** The axis reaches up to this, however little there is. */
    least?: number;
    /** Steps between the values beside the axis. */
    steps?: number[];
    /** Room for the values beside the axis, in px. */
    room?: number;
    height: number;
    dark: boolean;
    log?: boolean;
}

const SYNC = 'perfguard';
/** Seconds between two times below a chart: they are written by the minute. */
const MINUTES = [1, 2, 5, 10, 15, 30, 60].map((minutes) => 60 * minutes);

export function Chart(props: Props) {
    const { title, test, lines, data, height, dark, log = false, format } = props;
    const box = useRef<HTMLDivElement>(null);
    const values = useRef<HTMLUListElement>(null);
    const plot = useRef<uPlot | null>(null);
    const latest = useRef(props);
    latest.current = props;
    const names = lines.map((line) => line.label).join('\n');

    useEffect(() => {
        const element = box.current!;
        const made = new uPlot(options(latest, element.clientWidth, values.current!),
            latest.current.data as uPlot.AlignedData, element);
        plot.current = made;
        const watcher = new ResizeObserver(() => {
            if (element.clientWidth && element.clientWidth !== made.width) {
                made.setSize({ width: element.clientWidth, height });
            }
        });
        watcher.observe(element);
        return () => {
            watcher.disconnect();
            made.destroy();
        };
    }, [names, dark, log, height]);

    useEffect(() => {
        if (plot.current && plot.current.data !== data as unknown) {
            plot.current.setData(data as uPlot.AlignedData);
        }
        write(values.current!, latest.current, null);
    }, [data, names]);

    return (
        <figure class="chart" data-test={test} data-points={data[0]!.length}>
            <figcaption><h3>{title}</h3><span class="at" aria-hidden="true" /></figcaption>
            <div ref={box} class="plot" role="img" aria-label={summary(title, lines, data, format)} />
            <ul ref={values} class="legend" aria-hidden="true">
                {lines.map((line) => (
                    <li key={line.label}>
                        <span class={`mark ${line.color.slice(2)}${line.dash ? ' dashed' : ''}`} />
                        {line.label} <b>{NONE}</b>
                    </li>
                ))}
            </ul>
        </figure>
    );
}

function options(latest: { current: Props }, width: number, list: HTMLElement): uPlot.Options {
    const { lines, height, log = false, format, room = 52, steps } = latest.current;
    const quiet = color('--muted');
    const grid = { stroke: color('--grid'), width: 1 };
    const axis = { stroke: quiet, grid, ticks: { ...grid, size: 4 }, font: '11px system-ui' };
    return {
        width, height,
        padding: [8, 18, 0, 0],
        legend: { show: false },
        cursor: {
            sync: { key: SYNC }, drag: { x: false, y: false }, y: false,
            points: { size: 6 },
        },
        scales: {
            x: { time: true, range: () => latest.current.range },
            y: log ? { distr: 3, range: (_, low, high) => logRange(low, high) } : {
                range: (_, __, high) => [0, Math.max(latest.current.least ?? 1, 1.1 * (high ?? 0))],
            },
        },
        axes: [
            {
                ...axis, space: 60, size: 26, incrs: MINUTES,
                values: (_, splits) => splits.map(minute),
            },
            { ...axis, ...(steps ? { incrs: steps } : {}), space: 26, size: room, values: (_, splits) => splits.map(
                (value) => (value === null ? '' : format(value))) },
        ],
        series: [{}, ...lines.map(seriesOf)],
        hooks: { setCursor: [(made) => write(list, latest.current, made.cursor.idx ?? null)] },
    };
}

function seriesOf(line: Line): uPlot.Series {
    const stroke = color(line.color);
    return {
        label: line.label, stroke, width: line.width ?? 1.5,
        points: { show: false, size: 5, fill: stroke, filter: lonely },
        ...(line.dash ? { dash: line.dash } : {}),
        ...(line.fill ? { fill: `${stroke}22` } : {}),
    };
}

/** Values without a neighbour, of which no line would be seen. */
function lonely(made: uPlot, series: number): number[] | null {
    const values = made.data[series]!;
    const known = (at: number) => values[at] !== null && values[at] !== undefined;
    const found: number[] = [];
    for (let at = 0; at < values.length; at += 1) {
        if (known(at) && !known(at - 1) && !known(at + 1)) {
            found.push(at);
        }
    }
    return found.length ? found : null;
}

function minute(seconds: number): string {
    return clockText(seconds).slice(0, 5);
}

/** Values under the cursor, or the last ones. */
function write(list: HTMLElement, { data, format }: Props, at: number | null): void {
    const place = at ?? data[0]!.length - 1;
    list.querySelectorAll('b').forEach((value, line) => {
        const text = format(data[line + 1]?.[place] ?? null);
        if (value.textContent !== text) {
            value.textContent = text;
        }
    });
    const time = at === null ? null : data[0]![place];
    const label = list.parentElement!.querySelector('.at')!;
    label.textContent = time ? clockText(time) : '';
}

function summary(title: string, lines: Line[], data: Value[][], format: Props['format']): string {
    const end = data[0]!.length - 1;
    if (end < 0) {
        return `${title}: no data yet`;
    }
    const values = lines.map((line, place) => `${line.label} ${format(data[place + 1]![end] ?? null)}`);
    return `Chart of ${title}. Now: ${values.join(', ')}`;
}
