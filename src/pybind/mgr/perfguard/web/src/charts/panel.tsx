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
const TAILS = 'perfguard-p99';

interface Props {
    store: Store;
    model: Model;
    chosen: number[];
    dark: boolean;
}

export function Charts({ store, model, chosen, dark }: Props) {
    const [log, setLog] = useState(recall(LOG) !== 'no');
    const [tails, setTails] = useState(recall(TAILS) === 'yes');
    const now = model.last?.now ?? 0;
    const range = rangeOf(model, LEAST_SECONDS);
    const pools = model.last?.status.pools ?? [];
    const shown = useMemo(() => chartedPools(model, chosen), [model.pools, chosen, busiest(pools)]);
    return (
        <section class="charts" aria-labelledby="charts-title" data-test="charts">
            <div class="section-head">
                <h2 id="charts-title">The last hour</h2>
                <PoolChoice pools={pools} chosen={chosen} shown={shown.map(([id]) => Number(id))}
                    onChoose={(ids) => store.choosePools(ids)} />
                <Toggle name={TAILS} label="p99" on={tails} onTurn={setTails} test="chart-p99" />
                <Toggle name={LOG} label="logarithmic latency" on={log} onTurn={setLog}
                    test="chart-log" />
            </div>
            <div class={`chart-grid of-${Math.min(4, shown.length)}`}>
                {shown.map(([id, table]) => (
                    <LatencyChart key={id} id={id} table={table} late={lateOf(table, now)}
                        range={range} dark={dark} log={log} tails={tails}
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

interface ToggleProps {
    /** Of what is remembered. */
    name: string;
    label: string;
    test: string;
    on: boolean;
    onTurn: (on: boolean) => void;
}

function Toggle({ name, label, test, on, onTurn }: ToggleProps) {
    return (
        <label class="check">
            <input type="checkbox" checked={on} data-test={test} onChange={(event) => {
                onTurn(event.currentTarget.checked);
                remember(name, event.currentTarget.checked ? 'yes' : 'no');
            }} /> {label}
        </label>
    );
}

/** Those that were chosen, else the busiest one. */
function chartedPools(model: Model, chosen: number[]): [string, PoolTable][] {
    const all = Object.entries(model.pools);
    const used = all.filter(([, table]) => inUse(table));
    const first = String(busiest(model.last?.status.pools ?? []));
    return chosen.length ? all : [used.find(([id]) => id === first) ?? used[0] ?? all[0]]
        .filter((found) => found !== undefined);
}

/** Id of the pool with the most operations; null: there is no pool. */
function busiest(pools: Pool[]): number | null {
    const rate = (pool: Pool) => pool.read_rate + pool.write_rate;
    return pools.reduce<Pool | null>((best, pool) => (
        best === null || rate(pool) > rate(best) ? pool : best), null)?.id ?? null;
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
    tails: boolean;
}

function LatencyChart({ id, table, late, pool, range, dark, log, tails }: LatencyProps) {
    const drawing = useMemo(() => latency(table, pool, late, tails),
        [table.rows, late, tails, pool?.read_target_ms, pool?.write_target_ms]);
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
