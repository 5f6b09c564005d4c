// SPDX-License-Identifier: LGPL-2.1-or-later
// The data of the page, and how an answer changes it. Nothing here is changed in place.
import type { Event, Overview, Pool, PoolTable, Table, Value } from './types';

const HOUR_SECONDS = 3600;
const MOST_ROWS = 760;
export const MOST_EVENTS = 200;
/** Rows may be missing for so long, or for so many times what a row stands for. */
const LEAST_GAP_SECONDS = 30;
const GAP_ROWS = 3;
/** Minimum interval of requests for all rows, which a newly charted pool needs. */
const WHOLE_SECONDS = 30;
/** Rows are of the past; allowance for rounding. */
const AHEAD_SECONDS = 1;
/** Maximum number of remembered pools that are no longer charted: they may reappear. */
const MOST_SPARE = 16;

export interface Model {
    /** The newest answer; its series and events are not the page's, see below. */
    last: Overview | null;
    /** When it came, by the browser's clock, in ms. */
    received: number;
    cluster: Table;
    /** Those that are charted now. */
    pools: Record<string, PoolTable>;
    /** Those that were charted within the last hour. */
    spare: Record<string, PoolTable>;
    /** Charted pools of which rows may be missing: they were not charted all the time. */
    incomplete: string[];
    events: Event[];
    /** Ask for everything next time. */
    whole: boolean;
    /** When everything was last asked for, in ms. */
    wholeAt: number;
}

const NO_TABLE: Table = { columns: [], rows: [] };

export const EMPTY: Model = {
    last: null, received: 0, cluster: NO_TABLE, pools: {}, spare: {}, incomplete: [], events: [],
    whole: true, wholeAt: 0,
};

/** For the next request: time of the newest row; 0: request everything.
 *
 * Never in the future of the mgr, where it would have no rows for long.
 */
export function sinceOf(model: Model): number {
    return model.whole ? 0 : Math.min(endOf(model.cluster), model.last?.now ?? 0);
}

function endOf(table: Table): number {
    return timeOf(table.rows[table.rows.length - 1]);
}

function timeOf(row: Value[] | undefined): number {
    return row?.[0] ?? 0;
}

/** The model after an answer to a request for rows after `since`. */
export function absorb(model: Model, answer: Overview, since: number, received: number): Model {
    const { cluster, pools } = answer.series;
    const known = { ...model.spare, ...model.pools };
    const incomplete = since === 0 ? [] : Object.keys(pools).filter(
        (id) => !(id in model.pools) || model.incomplete.includes(id));
    const wholeAt = since === 0 ? received : model.wholeAt;
    // `since` is a time of another mgr's clock: events of this one may be earlier.
    const another = since !== 0 && model.last !== null && model.last.name !== answer.name;
    return {
        last: answer, received, incomplete, wholeAt,
        pools: mergePools(known, pools, answer.now),
        spare: spareOf(known, pools, answer.now),
        cluster: merge(model.cluster, cluster, answer.now),
        events: mergeEvents(model.events, answer.events),
        whole: another || (incomplete.length > 0 && received - wholeAt >= WHOLE_SECONDS * 1000),
    };
}

/** Of the pools that were chosen, those that still exist. */
export function presentOf(chosen: number[], pools: Pool[]): number[] {
    // Before the loop's first turn nothing is known of any pool.
    return pools.length ? chosen.filter((id) => pools.some((pool) => pool.id === id)) : chosen;
}

/** Old and new rows of the last hour, in the columns of the new ones, one row per time.
 *
 * After a failover another mgr answers. Its rows may begin anew, and its clock may be behind; a
 * clock may also be set back. Rows of the mgr's future are dropped, because no row would ever be
 * newer.
 */
export function merge(old: Table, fresh: Table, now: number): Table {
    const columns = fresh.columns.length ? fresh.columns : old.columns;
    const begin = now - HOUR_SECONDS;
    const added = between(fresh.rows, begin, now + AHEAD_SECONDS);
    const before = inColumns(old, columns);
    const kept = between(before, begin, added.length ? timeOf(added[0]) : now + AHEAD_SECONDS);
    if (!added.length && kept.length === before.length) {
        // The charts draw nothing if the rows are identical.
        return { columns, rows: before };
    }
    return { columns, rows: [...kept, ...added].slice(-MOST_ROWS) };
}

/** Rows within these times. Where times run backwards, the later row counts. */
function between(rows: Value[][], begin: number, end: number): Value[][] {
    const found: Value[][] = [];
    let next = end;
    for (let at = rows.length - 1; at >= 0; at -= 1) {
        const time = timeOf(rows[at]);
        if (time > begin && time < next) {
            found.push(rows[at]!);
            next = time;
        }
    }
    return found.reverse();
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

function mergePools(old: Record<string, PoolTable>, fresh: Record<string, PoolTable>,
    now: number): Record<string, PoolTable> {
    return Object.fromEntries(Object.entries(fresh).map(([id, table]) => [id, {
        pool: table.pool, ...merge(old[id] ?? NO_TABLE, table, now),
    }]));
}

/** Rows of pools that are not charted now, the most recently charted first. */
function spareOf(known: Record<string, PoolTable>, charted: Record<string, PoolTable>,
    now: number): Record<string, PoolTable> {
    const spare = Object.entries(known).filter(([id]) => !(id in charted))
        .map(([id, table]): [string, PoolTable] => [
            id, { pool: table.pool, ...merge(table, NO_TABLE, now) }])
        .filter(([, table]) => table.rows.length)
        .sort(([, a], [, b]) => endOf(b) - endOf(a));
    return Object.fromEntries(spare.slice(0, MOST_SPARE));
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

/** Seconds for which there may be no other row: the interval of the loop may be long. */
function reachOf(row: Value[], secondsAt: number): number {
    return Math.max(LEAST_GAP_SECONDS, GAP_ROWS * (row[secondsAt] ?? 0));
}

/** `now` if rows are overdue since the last one; else null. */
export function lateOf(table: Table, now: number): Value {
    const row = table.rows[table.rows.length - 1];
    const reach = row ? reachOf(row, table.columns.indexOf('seconds')) : Infinity;
    return now - timeOf(row) > reach ? now : null;
}

/** The named columns for a chart, times first, with a hole where rows are missing.
 *
 * `late`: until when they are missing at the end, so that old values do not look current.
 */
export function columnsOf(table: Table, names: string[], late: Value = null): Value[][] {
    const secondsAt = table.columns.indexOf('seconds');
    const places = names.map((name) => table.columns.indexOf(name));
    const found: Value[][] = [[], ...names.map((): Value[] => [])];
    const hole = (time: number) => found.forEach((column, place) => column.push(place ? null : time));
    let before = Infinity;
    let reach = 0;
    for (const row of table.rows) {
        const time = timeOf(row);
        const own = reachOf(row, secondsAt);
        // The first row after an interruption may stand for all of it.
        if (time - before > Math.min(reach, own)) {
            hole((before + time) / 2);
        }
        [before, reach] = [time, own];
        found.forEach((column, place) => {
            column.push(place ? row[places[place - 1]!] ?? null : time);
        });
    }
    if (late !== null) {
        hole(late);
    }
    return found;
}

/** The last value of a column; null where there is none, or none that is current `now`. */
export function lastOf(table: Table, name: string, now: number): Value {
    const place = table.columns.indexOf(name);
    const secondsAt = table.columns.indexOf('seconds');
    for (let at = table.rows.length - 1; at >= 0; at -= 1) {
        const row = table.rows[at]!;
        if (now - timeOf(row) > reachOf(row, secondsAt)) {
            return null;
        }
        const value = row[place];
        if (value !== null && value !== undefined) {
            return value;
        }
    }
    return null;
}

/** The range of the time axis: up to an hour, and at least `least` seconds, so that a few points do
 * not fill the chart. It ends now, even if rows have stopped. */
export function rangeOf({ cluster, last }: Model, least: number): [number, number] {
    const end = Math.max(endOf(cluster), last?.now ?? 0);
    return [Math.min(timeOf(cluster.rows[0]) || end, end - least), end];
}
