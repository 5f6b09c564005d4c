// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inUse, latency, logRange, tailsKnown } from '../src/charts/lines';
import type { Pool, Table, Value } from '../src/types';

const COLUMNS = ['time', 'read_ms', 'write_ms', 'read_p50_ms', 'read_p99_ms', 'write_p50_ms',
    'write_p99_ms'];

function table(...rows: Value[][]): Table {
    return { columns: COLUMNS, rows };
}

const POOL = { read_target_ms: 4, write_target_ms: null } as Pool;

test('p99 is drawn on request where it is known, the mean always', () => {
    const known = table([5, 1, 2, 0.5, 7, null, null], [10, 1, 2, 0.6, 8, null, null]);
    assert.deepEqual(latency(known, POOL).lines.map((line) => line.label),
        ['read mean', 'write mean', 'read limit (mean)']);
    const { lines, data } = latency(known, POOL, null, true);
    assert.deepEqual(lines.map((line) => line.label),
        ['read mean', 'read p99', 'write mean', 'read limit (mean)']);
    assert.deepEqual(data, [[5, 10], [1, 1], [7, 8], [2, 2], [4, 4]]);
});

test('targets go on where rows stop, values do not', () => {
    const { data } = latency(table([5, 1, 2, null, null, null, null]), POOL, 60);
    assert.deepEqual(data, [[5, 60], [1, null], [2, null], [4, 4]]);
});

test('percentiles of a few rows are not the picture', () => {
    const rows = [5, 10, 15].map((time): Value[] => [time, 1, null, null, null, null, null]);
    assert.equal(tailsKnown(table(...rows, [20, 1, null, 1, 2, null, null]), 'read'), false);
    assert.equal(tailsKnown(table(rows[0]!, [20, 1, null, 1, 2, null, null]), 'read'), true);
    assert.equal(tailsKnown(table(), 'read'), false);
});

test('a pool without operations is not in use', () => {
    assert.equal(inUse(table([5, null, null, null, null, null, null])), false);
    assert.equal(inUse(table([5, null, 0.4, null, null, null, null])), true);
});

test('zeros are left out, since the axis may be logarithmic', () => {
    const { data } = latency(table([5, 0, null, null, null, null, null]), undefined);
    assert.deepEqual(data, [[5], [null], [null]]);
});

test('a logarithmic axis begins at one digit, from where uPlot can count', () => {
    for (const [low, least] of [[0.01261, 0.009], [1.3, 1], [13.1, 10], [0.52, 0.4], [129.9, 90]]) {
        const [from, to] = logRange(low!, 50);
        assert.equal(from, least);
        assert.equal(to, 65);
    }
    assert.deepEqual(logRange(null, null), [0.1, 10]);
    assert.deepEqual(logRange(0, 5), [0.1, 10]);
});
