// SPDX-License-Identifier: LGPL-2.1-or-later
// What the page knows, and how an answer changes it. Nothing here is changed in place.
import type { Event, Overview, PoolTable, Table, Value } from './types';

const HOUR_SECONDS = 3600;
const MOST_ROWS = 760;
export const MOST_EVENTS = 200;
/** Lines are interrupted where there is no row for so long. */
const GAP_SECONDS = 30;
/** A pool that is new among the charted ones is asked for from its beginning, so often at most. */
const WHOLE_SECONDS = 30;

export interface Model {
    /** The newest answer; its series and events are not the page's, see below. */
    last: Overview | null;
    /** When it came, by the browser's clock, in ms. */
    received: number;
    cluster: Table;
    pools: Record<string, PoolTable>;
    events: Event[];
    /** Ask for everything next time. */
    whole: boolean;
    /** When everything was last asked for, in ms. */
    wholeAt: number;
}

const NO_TABLE: Table = { columns: ['time'], rows: [] };

export const EMPTY: Model = {
    last: null, received: 0, cluster: NO_TABLE, pools: {}, events: [], whole: true, wholeAt: 0,
};

/** For the next request: time of the newest row there is; 0: everything is wanted. */
export function sinceOf(model: Model): number {
    return model.whole ? 0 : timeOf(model.cluster.rows[model.cluster.rows.length - 1]);
}

function timeOf(row: Value[] | undefined): number {
    return row?.[0] ?? 0;
}

/** The model after an answer to a request for rows after `since`. */
export function absorb(model: Model, answer: Overview, since: number, received: number): Model {
    const { cluster, pools } = answer.series;
    const joined = mergePools(model.pools, pools, answer.now);
    const incomplete = since > 0 && Object.keys(pools).some((id) => !(id in model.pools));
    const wholeAt = since === 0 ? received : model.wholeAt;
    return {
        last: answer, received, pools: joined,
        cluster: merge(model.cluster, cluster, answer.now),
        events: mergeEvents(model.events, answer.events),
        whole: incomplete && received - wholeAt >= WHOLE_SECONDS * 1000,
        wholeAt,
    };
}

/** Old rows and new ones in the new one's columns: those of the last hour, each time once.
 *
 * After a failover another mgr answers. Its rows may begin anew, and its clock may be behind: rows
 * of a future that it does not know of are given up, or nothing would ever be newer than they.
 */
export function merge(old: Table, fresh: Table, now: number): Table {
    const columns = fresh.columns.length ? fresh.columns : old.columns;
    const first = fresh.rows.length ? timeOf(fresh.rows[0]) : Infinity;
    const begin = now - HOUR_SECONDS;
    const before = inColumns(old, columns);
    const kept = before.filter((row) => {
        const time = timeOf(row);
        return time > begin && time < first && time <= now + 1;
    });
    if (!fresh.rows.length && kept.length === before.length) {
        // The very same rows tell the charts that there is nothing to draw.
        return { columns, rows: before };
    }
    const rows = [...kept, ...fresh.rows.filter((row) => timeOf(row) > begin)];
    return { columns, rows: rows.slice(-MOST_ROWS) };
}

function inColumns(table: Table, columns: string[]): Value[][] {
    if (same(table.columns, columns)) {
        return table.rows;
    }
    const places = columns.map((name) => table.columns.indexOf(name));
    return table.rows.map((row) => places.map((place) => row[place] ?? null));
}

function same(a: string[], b: string[]): boolean {
    return a.length === b.length && a.every((name, place) => name === b[place]);
}

/** Of the pools that are charted now. */
function mergePools(old: Record<string, PoolTable>, fresh: Record<string, PoolTable>,
    now: number): Record<string, PoolTable> {
    return Object.fromEntries(Object.entries(fresh).map(([id, table]) => [id, {
        pool: table.pool, ...merge(old[id] ?? NO_TABLE, table, now),
    }]));
}

/** Newest last, each once. */
export function mergeEvents(old: Event[], fresh: Event[]): Event[] {
    if (!fresh.length) {
        return old;
    }
    const known = new Set(fresh.map(keyOf));
    return [...old.filter((event) => !known.has(keyOf(event))), ...fresh]
        .sort((a, b) => a.time - b.time || a.id - b.id).slice(-MOST_EVENTS);
}

function keyOf(event: Event): string {
    return `${event.id} ${event.time}`;
}

/** The named columns as a chart wants them, times first, with a hole where rows are missing. */
export function columnsOf(table: Table, names: string[]): Value[][] {
    const places = names.map((name) => table.columns.indexOf(name));
    const found: Value[][] = [[], ...names.map((): Value[] => [])];
    let before = Infinity;
    for (const row of table.rows) {
        const time = timeOf(row);
        if (time - before > GAP_SECONDS) {
            found.forEach((column, place) => column.push(place ? null : (before + time) / 2));
        }
        before = time;
        found.forEach((column, place) => {
            column.push(place ? row[places[place - 1]!] ?? null : time);
        });
    }
    return found;
}

/** The last value of a column; null where there is none or where it is older than a minute. */
export function lastOf(table: Table, name: string): Value {
    const place = table.columns.indexOf(name);
    const end = timeOf(table.rows[table.rows.length - 1]);
    for (let at = table.rows.length - 1; at >= 0; at -= 1) {
        const row = table.rows[at]!;
        if (end - timeOf(row) > 60) {
            return null;
        }
        const value = row[place];
        if (value !== null && value !== undefined) {
            return value;
        }
    }
    return null;
}
