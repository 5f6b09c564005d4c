// SPDX-License-Identifier: LGPL-2.1-or-later
// What the charts show: lines and their columns.
import { columnsOf } from '../model';
import type { Pool, Table, Value } from '../types';

export interface Line {
    label: string;
    /** A custom property of the stylesheet. */
    color: string;
    width?: number;
    dash?: number[];
    /** The area below it is shaded. */
    fill?: boolean;
}

export interface Drawing {
    lines: Line[];
    data: Value[][];
}

const KINDS = ['read', 'write'] as const;
type Kind = typeof KINDS[number];
const DASH = [6, 4];

/** Means of one pool with their limits, and p99 where it is asked for and known. */
export function latency(table: Table, pool: Pool | undefined, late: Value = null,
    tails = false): Drawing {
    const lines: Line[] = [];
    const names: string[] = [];
    for (const kind of KINDS) {
        const hue = `--${kind}`;
        lines.push({ label: `${kind} mean`, color: hue, width: 2 });
        names.push(`${kind}_ms`);
        if (tails && tailsKnown(table, kind)) {
            lines.push({ label: `${kind} p99`, color: `${hue}-soft`, width: 1.5 });
            names.push(`${kind}_p99_ms`);
        }
    }
    const data = columnsOf(table, names, late);
    for (const kind of KINDS) {
        const target = pool?.[`${kind}_target_ms`] ?? null;
        if (target !== null) {
            lines.push({ label: `${kind} limit (mean)`, color: `--${kind}`, width: 1, dash: DASH });
            data.push(data[0]!.map(() => target));
        }
    }
    return { lines, data: positive(data) };
}

/** Whether there is anything to draw: the pool may have no clients. */
export function inUse(table: Table): boolean {
    const places = KINDS.map((kind) => table.columns.indexOf(`${kind}_ms`));
    return table.rows.some((row) => places.some((place) => isNumber(row[place])));
}

/** Of most rows with operations of this kind. */
export function tailsKnown(table: Table, kind: Kind): boolean {
    const mean = table.columns.indexOf(`${kind}_ms`);
    const tail = table.columns.indexOf(`${kind}_p99_ms`);
    const busy = table.rows.filter((row) => isNumber(row[mean]));
    const known = busy.filter((row) => isNumber(row[tail]));
    return known.length > 0 && 2 * known.length >= busy.length;
}

function isNumber(value: Value | undefined): boolean {
    return value !== null && value !== undefined;
}

/** A logarithmic axis has no place for 0. */
function positive(data: Value[][]): Value[][] {
    return data.map((column, place) => (place === 0 ? column
        : column.map((value) => (value !== null && value > 0 ? value : null))));
}

/** Of a logarithmic axis.
 *
 * It begins at one digit and zeros: from a value such as 0.0097, uPlot counts up in steps that it
 * rounds to 0, in an endless loop.
 */
export function logRange(low: number | null, high: number | null): [number, number] {
    if (low === null || high === null || low <= 0) {
        return [0.1, 10];
    }
    const [digit, power] = (low / 1.3).toExponential().split('e');
    return [Number(`${Math.floor(Number(digit))}e${power}`), high * 1.3];
}

export interface SignalChart {
    test: string;
    title: string;
    columns: string[];
    lines: Line[];
    kind: 'count' | 'ratio' | 'bytes';
}

export const SIGNALS: SignalChart[] = [
    { test: 'chart-in-flight', title: 'PGs in flight', kind: 'count',
        columns: ['in_flight', 'backfilling_pgs'],
        lines: [{ label: 'in flight', color: '--read', width: 2, fill: true },
            { label: 'backfilling', color: '--muted', width: 1 }] },
    { test: 'chart-misplaced', title: 'Misplaced objects', kind: 'ratio',
        columns: ['misplaced_ratio'],
        lines: [{ label: 'misplaced', color: '--write', width: 2, fill: true }] },
    { test: 'chart-recovery', title: 'Recovery', kind: 'bytes',
        columns: ['recovery_bytes_per_second'],
        lines: [{ label: 'bytes per second', color: '--good', width: 2, fill: true }] },
    { test: 'chart-trouble', title: 'Problems', kind: 'count',
        columns: ['laggy_pgs', 'degraded_pgs', 'slow_ops'],
        lines: [{ label: 'laggy PGs', color: '--bad', width: 2 },
            { label: 'degraded PGs', color: '--warn', width: 1.5 },
            { label: 'slow operations', color: '--muted', width: 1.5 }] },
];
