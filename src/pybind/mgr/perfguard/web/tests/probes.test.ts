// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barsOf, barText, endOf } from '../src/probes/bars';
import { curveXy, scalingXy, share } from '../src/probes/curves';
import { bodyOf, growing, listedOf, rowsOf } from '../src/probes/results';
import { whenText } from '../src/probes/schedules';
import {
    comparison, CURVES, details, PROBES, SCALINGS, SCHEDULES,
} from './fake/data';

test('streams of a job are one row: speeds add up, the highest percentile counts', () => {
    const job = details(1)!.jobs[0]!;
    const slower = structuredClone(job);
    slower.write.clat_ns.percentile = { '50.000000': 4e6, '99.000000': 9e6 };
    const [row, ...rest] = rowsOf([job, { ...slower, stream: 't', errors: 2 }]);
    assert.deepEqual(rest, []);
    assert.equal(row!.iops, 1640);
    assert.deepEqual([row!.p50Ms, row!.p99Ms, row!.errors], [4, 9, 2]);
    assert.equal(row!.meanMs!.toFixed(3), '1.200');
});

test('each OSD that was probed has a row', () => {
    const job = details(1)!.jobs[0]!;
    const rows = rowsOf([{ ...job, osd: 1 }, { ...job, osd: 2 }]);
    assert.deepEqual(rows.map((row) => row.osd), [1, 2]);
});

test('an order holds what was filled in', () => {
    const box = { name: 'during_campaign', type: 'checkbox', value: 'on' };
    const fields = [
        { name: 'profile', type: 'select-one', value: 'quick' },
        { name: 'pool', type: 'text', value: ' a "b" <c> ' },
        { name: 'osd', type: 'text', value: '  ' }, { name: '', type: 'submit', value: 'x' }];
    assert.deepEqual(bodyOf([...fields, { ...box, checked: true }]),
        { profile: 'quick', pool: 'a "b" <c>', during_campaign: true });
    assert.deepEqual(bodyOf([...fields, { ...box, checked: false }]),
        { profile: 'quick', pool: 'a "b" <c>' });
});

test('a pool may be called "on"', () => {
    assert.deepEqual(bodyOf([{ name: 'pool', type: 'text', value: 'on', checked: false }]),
        { pool: 'on' });
});

test('marks of probes that are not listed any more are gone', () => {
    assert.deepEqual(listedOf([2, 4, 8], PROBES), [2, 8]);
});

test('results are asked for again until the probe has ended', () => {
    const running = { ...PROBES[4]!, state: 'running' };
    assert.equal(growing(running, PROBES), true);
    assert.equal(growing(PROBES[4]!, PROBES), false);
    assert.equal(growing({ ...running, id: 4 }, PROBES), false);
});

test('bars of two probes have a common axis that no interval can blow up', () => {
    const jobs = barsOf(comparison(1, 2));
    assert.deepEqual(jobs.map((job) => job.bars.length), [4, 4, 2]);
    assert.ok(endOf(jobs) > 1.9 * 1.15 && endOf(jobs) < 2.4);
    jobs[0]!.bars[0]!.high = 1e9;
    assert.equal(endOf(jobs), 5);
    assert.equal(endOf([]), 1.25);
});

test('a bar is text too', () => {
    assert.equal(barText(barsOf(comparison(1, 2))[0]!.bars[0]!),
        'operations per second: 820 before, 566 after, 0.69 times (0.59 to 0.79), slower');
});

test('the window of a schedule is shown in words', () => {
    assert.deepEqual(SCHEDULES.map(whenText), ['0200 to 0400, every day',
        '0000 to 2400, Saturday to Saturday, every 7 days']);
});

test('a curve names its knee and the price of the last tenth', () => {
    const xy = curveXy(CURVES[0]!);
    assert.equal(xy.text, 'Knee at depth 4: 10,000 operations per second at 0.40 ms. The last 10 % '
        + 'of the throughput raise latency 2.50 times, from 1.36 ms to 3.40 ms.');
    assert.deepEqual(xy.points.map((point) => point.marked),
        [false, false, true, false, false, false, false]);
    assert.deepEqual(xy.x.ticks, [0, 5000, 10000, 15000, 20000]);
    assert.deepEqual(xy.y.ticks, [0.1, 0.3, 1, 3]);
    for (const { x, y } of xy.points) {
        for (const value of [x.low, x.high]) {
            assert.ok(value >= xy.x.low && value <= xy.x.high);
        }
        for (const value of [y.low, y.high]) {
            assert.ok(value >= xy.y.low && value <= xy.y.high);
        }
    }
});

test('throughput by OSDs is compared with a line through the first point', () => {
    const xy = scalingXy(SCALINGS[0]!);
    assert.deepEqual(xy.reference, [[1, 800], [4, 3200]]);
    assert.deepEqual(xy.x.ticks, [1, 2, 4]);
    assert.equal(xy.text, '4 OSDs: 2,592 operations per second, 81.0 % of linear (dashed).');
});

test('axes end where their range does', () => {
    const [line, power] = [false, true].map((log) => (
        { name: 'x', low: log ? 0.1 : 0, high: 10, log, ticks: [] }));
    assert.deepEqual([-1, 0, 5, 10, 20].map((value) => share(line!, value)), [0, 0, 0.5, 1, 1]);
    assert.deepEqual([0.1, 1, 10].map((value) => share(power!, value)), [0, 0.5, 1]);
});
