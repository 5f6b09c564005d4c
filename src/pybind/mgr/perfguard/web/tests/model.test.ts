// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
    absorb, columnsOf, EMPTY, lastOf, lateOf, merge, mergeEvents, presentOf, rangeOf, sinceOf,
} from '../src/model';
import type { Event, Overview, Pool, Table, Value } from '../src/types';
import { overview } from './fake/data';

const NOW = 1790000000;

function table(...times: number[]): Table {
    return { columns: ['time', 'read_ms'], rows: times.map((time) => [NOW + time, time]) };
}

function times({ rows }: Table): number[] {
    return rows.map((row) => row[0]! - NOW);
}

test('new rows come after the old ones, each time once', () => {
    const joined = merge(table(-20, -15, -10), table(-10, -5, 0), NOW);
    assert.deepEqual(times(joined), [-20, -15, -10, -5, 0]);
});

test('rows of more than an hour ago go', () => {
    const joined = merge(table(-3601, -3599), table(0), NOW);
    assert.deepEqual(times(joined), [-3599, 0]);
});

test('rows that have not changed stay the same object, so that nothing is drawn again', () => {
    const old = table(-10, -5);
    assert.equal(merge(old, table(), NOW).rows, old.rows);
});

test('after a failover to an mgr that begins anew, the page keeps what it has', () => {
    const joined = merge(table(-60, -55, -50), table(-3, 2), NOW + 2);
    assert.deepEqual(times(joined), [-60, -55, -50, -3, 2]);
});

test('an mgr whose clock is behind is believed', () => {
    const joined = merge(table(-10, -5, 0), { columns: ['time', 'read_ms'], rows: [] }, NOW - 7);
    assert.deepEqual(times(joined), [-10]);
});

test('rows of the future and of a clock that was set back go: times are sorted', () => {
    const joined = merge(table(-30, -20, 40), table(-25, -15, -5, 50, -12, -7, 2), NOW);
    assert.deepEqual(times(joined), [-30, -25, -15, -12, -7]);
});

test('columns may be in another order, or new', () => {
    const fresh: Table = { columns: ['time', 'write_ms', 'read_ms'], rows: [[NOW, 7, 8]] };
    assert.deepEqual(merge(table(-5), fresh, NOW).rows, [[NOW - 5, null, -5], [NOW, 7, 8]]);
});

test('a chart has a hole where rows are missing', () => {
    const [x, y] = columnsOf(table(-100, -95, -20, -15), ['read_ms']) as [Value[], Value[]];
    assert.deepEqual(y, [-100, -95, null, -20, -15]);
    assert.deepEqual(x.map((time) => time! - NOW), [-100, -95, -57.5, -20, -15]);
});

test('a column that the mgr does not know is empty', () => {
    assert.deepEqual(columnsOf(table(-5, 0), ['nonsense'])[1], [null, null]);
});

/** Rows of so many seconds each. */
function slow(seconds: number, ...ends: number[]): Table {
    return { columns: ['time', 'seconds', 'a'], rows: ends.map((end) => [NOW + end, seconds, end]) };
}

test('rows of a loop that comes round once a minute are no holes', () => {
    assert.deepEqual(columnsOf(slow(60, -120, -60, 0), ['a'])[1], [-120, -60, 0]);
    assert.deepEqual(columnsOf(slow(60, -300, -60, 0), ['a'])[1], [-300, null, -60, 0]);
    assert.deepEqual(columnsOf(slow(5, -60, -20), ['a'])[1], [-60, null, -20]);
});

test('a row that stands for an interruption does not hide it', () => {
    const table = { ...slow(5, -200), rows: [[NOW - 200, 5, 1], [NOW, 200, 2]] };
    assert.deepEqual(columnsOf(table, ['a'])[1], [1, null, 2]);
});

test('the last value is not older than a few rows', () => {
    const rows: Value[][] = [[NOW - 50, 5, 1], [NOW - 20, 5, 2], [NOW, 5, null]];
    const of = (...found: Value[][]) => lastOf({ ...slow(5), rows: found }, 'a', NOW);
    assert.equal(of(...rows), 2);
    assert.equal(of(rows[0]!, rows[2]!), null);
    assert.equal(of(), null);
    assert.equal(lastOf(slow(5, -31), 'a', NOW), null);
    assert.equal(lastOf(slow(60, -170), 'a', NOW), -170);
    assert.equal(lastOf(slow(60, -190), 'a', NOW), null);
});

test('where rows stop while answers come, charts end now and without a value', () => {
    assert.equal(lateOf(slow(5, -29), NOW), null);
    assert.equal(lateOf(slow(5, -31), NOW), NOW);
    assert.equal(lateOf(slow(60, -170), NOW), null);
    assert.equal(lateOf(slow(5), NOW), null);
    const [x, y] = columnsOf(slow(5, -605, -600), ['a'], NOW) as [Value[], Value[]];
    assert.deepEqual(y, [-605, -600, null]);
    assert.equal(x[2], NOW);
    const last = answer(0, [1]);
    assert.deepEqual(rangeOf({ ...EMPTY, last, cluster: slow(5, -900, -600) }, 300),
        [NOW - 900, NOW]);
    assert.deepEqual(rangeOf({ ...EMPTY, last, cluster: slow(5, -5) }, 300), [NOW - 300, NOW]);
    assert.deepEqual(rangeOf({ ...EMPTY, last }, 300), [NOW - 300, NOW]);
    // Rows may be ahead by so much as is rounded.
    assert.deepEqual(rangeOf({ ...EMPTY, last, cluster: slow(5, 0.5) }, 300),
        [NOW - 299.5, NOW + 0.5]);
});

function event(id: number, time: number): Event {
    return { id, time, kind: 'a', what: 'b', why: '' };
}

test('events are kept once and in order, also when their ids begin anew', () => {
    const old = [event(8, 100), event(9, 110)];
    const joined = mergeEvents(old, [event(9, 110), event(1, 120)]);
    assert.deepEqual(joined.map((each) => each.id), [8, 9, 1]);
    assert.equal(mergeEvents(old, []), old);
});

const SCENARIO = { phase: 'RELEASING', osds: 6, may: true } as const;

function answer(since: number, pools: number[], now = NOW): Overview {
    return overview(SCENARIO, since, pools, now);
}

test('everything is asked for first, then what is newer than the last row', () => {
    assert.equal(sinceOf(EMPTY), 0);
    const model = absorb(EMPTY, answer(0, [1]), 0, 1000);
    assert.equal(model.cluster.rows.length, 720);
    assert.equal(sinceOf(model), NOW);
    const next = absorb(model, answer(NOW, [1], NOW + 7), NOW, 3000);
    assert.equal(next.cluster.rows.length, 720);
    assert.equal(sinceOf(next), NOW + 5);
});

test('what is asked for is never in the future of the mgr', () => {
    const model = absorb(EMPTY, answer(0, [1]), 0, 1000);
    const back = absorb(model, answer(NOW, [1], NOW - 100), NOW, 3000);
    assert.equal(sinceOf(back), NOW - 100);
    assert.equal(sinceOf({ ...model, last: answer(NOW, [1], NOW - 0.5) }), NOW - 0.5);
});

test('another mgr is asked for everything, once: its clock may be behind', () => {
    const first = absorb(EMPTY, answer(0, [1]), 0, 1000);
    const taken = absorb(first, { ...answer(NOW, [1], NOW + 7), name: 'other' }, NOW, 3000);
    assert.equal(sinceOf(taken), 0);
    const missed = event(7, NOW - 3);
    const whole = absorb(taken, { ...answer(0, [1], NOW + 9), name: 'other', events: [missed] }, 0,
        5000);
    assert.equal(sinceOf(whole), NOW + 5);
    assert.ok(whole.events.includes(missed));
    // It may be the first answer, or everything was asked for already.
    assert.equal(absorb({ ...first, whole: true }, { ...answer(0, [1]), name: 'other' }, 0,
        3000).whole, false);
});

test('a pool that is new among the busiest is asked for whole, but not all the time', () => {
    const first = absorb(EMPTY, answer(0, [1]), 0, 1000);
    const soon = absorb(first, answer(NOW, [1, 2]), NOW, 3000);
    assert.equal(soon.whole, false);
    assert.deepEqual(soon.incomplete, ['2']);
    // It is no longer new then, but still without its past.
    const later = absorb(soon, answer(NOW, [1, 2], NOW + 60), NOW, 60_000);
    assert.equal(sinceOf(later), 0);
    const whole = absorb(later, answer(0, [1, 2], NOW + 62), 0, 62_000);
    assert.equal(whole.whole, false);
    assert.deepEqual(whole.incomplete, []);
    assert.equal(whole.pools['2']!.rows.length, 720);
});

test('a pool that falls out of the busiest has its past when it comes back', () => {
    const first = absorb(EMPTY, answer(0, [1, 2]), 0, 1000);
    const without = absorb(first, answer(NOW, [2], NOW + 20), NOW, 3000);
    assert.deepEqual(Object.keys(without.pools), ['2']);
    const back = absorb(without, answer(NOW + 20, [1, 2], NOW + 40), NOW + 20, 5000);
    assert.deepEqual(times(back.pools['1']!).slice(-6), [-5, 0, 25, 30, 35, 40]);
    assert.deepEqual([back.incomplete, Object.keys(back.spare)], [['1'], []]);
});

test('of the pools that fell out the last ones are kept, for an hour', () => {
    const pools = Object.fromEntries(Array.from({ length: 40 }, (_, id) => [
        String(id), { pool: 'p', ...table(id - 40) }]));
    const later = (seconds: number) => absorb({ ...EMPTY, pools }, answer(0, [1], NOW + seconds),
        0, 1000);
    assert.deepEqual(Object.keys(later(0).spare), Array.from({ length: 16 }, (_, at) =>
        String(24 + at)));
    assert.deepEqual(Object.keys(later(3600 - 3).spare), ['38', '39']);
});

test('a chosen pool that was deleted is not chosen any more', () => {
    const pools = [{ id: 1 }, { id: 3 }] as Pool[];
    assert.deepEqual(presentOf([1, 2], pools), [1]);
    assert.deepEqual(presentOf([2], pools), []);
    assert.deepEqual(presentOf([1, 2], []), [1, 2]);
});
