// SPDX-License-Identifier: LGPL-2.1-or-later
import { useMemo, useState } from 'preact/hooks';
import { bytesText, countText, NONE, numberText, percentText } from '../format';
import { columnsOf, lateOf, type Model, rangeOf } from '../model';
import type { Store } from '../store';
import { recall, remember } from '../theme';
import type { Pool, PoolTable, Table, Value } from '../types';
import { Chart } from './chart';
import { inUse, latency, SIGNALS, type SignalChart } from './lines';
import { PoolChoice } from './pools';
import { LastValues } from './values';

const LEAST_SECONDS = 300;
const LOG = 'perfguard-log-scale';

interface Props {
    store: Store;
    model: Model;
    chosen: number[];
    dark: boolean;
}

export function Charts({ store, model, chosen, dark }: Props) {
    const [log, setLog] = useState(recall(LOG) !== 'no');
    const now = model.last?.now ?? 0;
    const range = rangeOf(model, LEAST_SECONDS);
    const pools = model.last?.status.pools ?? [];
    const shown = useMemo(() => chartedPools(model, chosen), [model.pools, chosen]);
    return (
        <section class="charts" aria-labelledby="charts-title" data-test="charts">
            <div class="section-head">
                <h2 id="charts-title">The last hour</h2>
                <PoolChoice pools={pools} chosen={chosen} shown={shown.map(([id]) => Number(id))}
                    onChoose={(ids) => store.choosePools(ids)} />
                <label class="check">
                    <input type="checkbox" checked={log} onChange={(event) => {
                        setLog(event.currentTarget.checked);
                        remember(LOG, event.currentTarget.checked ? 'yes' : 'no');
                    }} /> logarithmic latency
                </label>
            </div>
            <div class={`chart-grid of-${Math.min(4, shown.length)}`}>
                {shown.map(([id, table]) => (
                    <LatencyChart key={id} id={id} table={table} late={lateOf(table, now)}
                        range={range} dark={dark} log={log}
                        pool={pools.find((pool) => pool.id === Number(id))} />
                ))}
            </div>
            <div class="chart-grid small">
                {SIGNALS.map((signal) => (
                    <Signal key={signal.test} signal={signal} table={model.cluster}
                        late={lateOf(model.cluster, now)} range={range} dark={dark} />
                ))}
            </div>
            <LastValues pools={pools} tables={model.pools} now={now} />
        </section>
    );
}

/** Those that were chosen, else those that are in use, if there are any. */
function chartedPools(model: Model, chosen: number[]): [string, PoolTable][] {
    const all = Object.entries(model.pools);
    const used = all.filter(([, table]) => inUse(table));
    return chosen.length || !used.length ? all : used;
}

interface LatencyProps {
    id: string;
    table: PoolTable;
    /** Rows are missing up to this time; null: none are. */
    late: Value;
    pool: Pool | undefined;
    range: [number, number];
    dark: boolean;
    log: boolean;
}

function LatencyChart({ id, table, late, pool, range, dark, log }: LatencyProps) {
    const drawing = useMemo(() => latency(table, pool, late),
        [table.rows, late, pool?.read_target_ms, pool?.write_target_ms]);
    return (
        <Chart title={`Latency in ms, ${table.pool}`} test={`chart-latency-${id}`}
            lines={drawing.lines} data={drawing.data} range={range} format={numberText}
            height={210} dark={dark} log={log} />
    );
}

interface Scale {
    format: (value: Value) => string;
    least: number;
    steps?: number[];
    room?: number;
}

const POWERS = Array.from({ length: 45 }, (_, power) => 2 ** power);
const SCALES: Record<SignalChart['kind'], Scale> = {
    count: { format: countText, least: 4,
        steps: Array.from({ length: 8 }, (_, power) => [1, 2, 5].map(
            (digit) => digit * 10 ** power)).flat() },
    ratio: { format: percentText, least: 0.01 },
    bytes: { format: (value) => (value === null ? NONE : `${bytesText(value)}/s`),
        least: 4 * 1024 * 1024, steps: POWERS, room: 84 },
};

interface SignalProps {
    signal: SignalChart;
    table: Table;
    /** As above. */
    late: Value;
    range: [number, number];
    dark: boolean;
}

function Signal({ signal, table, late, range, dark }: SignalProps) {
    const data = useMemo(() => columnsOf(table, signal.columns, late), [table.rows, late]);
    return (
        <Chart title={signal.title} test={signal.test} lines={signal.lines} data={data}
            range={range} height={150} dark={dark} {...SCALES[signal.kind]} />
    );
}
