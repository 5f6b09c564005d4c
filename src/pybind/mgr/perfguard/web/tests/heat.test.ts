// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellOf, hostsOf, hostTile, neighbour, racksOf, summaryOf } from '../src/heat/osds';
import type { Osd } from '../src/types';
import { HOSTILE, osds } from './fake/data';

const ALL = osds({ phase: 'RELEASING', osds: 630, may: true }, 1790000000);
const PLAIN: Osd = {
    ...ALL[0]!, osd: 4, host: 'h1', rack: 'r1', score: 1, slow: false, why: '', since: null,
    silent_seconds: null, pgs: {}, pgs_in: 0, pgs_out: 0,
};

test('colour follows the score, and slow is what was proven', () => {
    const table: [Partial<Osd>, string, string, string][] = [
        [{}, 'ok', '0', ''], [{ score: 1.35 }, 'ok', '2', ''], [{ score: 1.6 }, 'warm', '3', ''],
        [{ score: 9 }, 'warm', '4', ''], [{ score: 2, slow: true }, 'slow', 'slow', 'S'],
        [{ score: null }, 'ok', 'none', ''],
        [{ score: null, silent_seconds: 40 }, 'warm', 'none', '?']];
    for (const [changes, state, level, mark] of table) {
        const cell = cellOf({ ...PLAIN, ...changes }, null);
        assert.deepEqual([cell.state, cell.level, cell.mark], [state, level, mark]);
    }
});

test('the first suspect for laggy PGs is red, with any score', () => {
    const suspect = { osd: 4, score: 0.9, why: 'in all of them', advice: '', mechanism: 'unknown' };
    const cell = cellOf(PLAIN, suspect);
    assert.deepEqual([cell.state, cell.mark], ['slow', 'L']);
    assert.match(cell.label, /slowdown 1\.00, suspect for laggy PGs: in all of them/);
    assert.match(cellOf({ ...PLAIN, slow: true, why: 'late' }, suspect).label,
        /slow: late; suspect for laggy PGs/);
});

test('a suspect is not counted as slow', () => {
    const suspect = { osd: 4, score: 0.9, why: '', advice: '', mechanism: 'unknown' };
    assert.equal(summaryOf([PLAIN], null), '');
    assert.equal(summaryOf([PLAIN], suspect), 'suspect for laggy PGs: osd.4');
    const slow = [1, 2, 3, 4, 5, 6, 7, 8].map((osd) => ({ ...PLAIN, osd, slow: true }));
    assert.equal(summaryOf(slow, suspect), '8 slow OSDs: osd.1, osd.2, osd.3, osd.4, osd.5, osd.6 '
        + 'and 2 more; suspect for laggy PGs: osd.4');
});

test('a label names all that colour and marks show', () => {
    const cell = cellOf({ ...PLAIN, score: 1.7, pgs_in: 3, pgs_out: 1 }, null);
    assert.equal(cell.label, 'osd.4, h1, slowdown 1.70, slower than its peers, '
        + '3 pinned PGs to move in, 1 pinned PG to move out');
});

test('details leave out what there is not', () => {
    const names = cellOf(PLAIN, null).details().map(([name]) => name);
    assert.equal(names.includes('Why'), false);
    assert.equal(names.includes('Silent for'), false);
});

test('hosts are in the order of their names', () => {
    const hosts = hostsOf([{ ...PLAIN, host: 'h10' }, { ...PLAIN, osd: 5, host: 'h9' }], null);
    assert.deepEqual(hosts.map((host) => host.name), ['h9', 'h10']);
    assert.equal(hostsOf(ALL, null).some((host) => host.name.includes(HOSTILE)), true);
});

test('a host is as bad as the worst of its OSDs, and says which', () => {
    const [host] = hostsOf([
        PLAIN, { ...PLAIN, osd: 5, score: 1.35, pgs_in: 2 },
        { ...PLAIN, osd: 6, score: 2.5, slow: true, pgs_in: 1 },
        { ...PLAIN, osd: 7, score: null, silent_seconds: 40 }], null);
    const tile = hostTile(host!);
    assert.deepEqual([tile.state, tile.level, tile.mark], ['slow', 'slow', 'S']);
    assert.equal(tile.label, 'h1, r1, 4 OSDs, slowdown up to 2.50, osd.6 slow, osd.7 silent, '
        + '3 pinned PGs to move in');
    assert.deepEqual([tile.comes, tile.leaves], [true, false]);
    const quiet = hostTile(hostsOf([{ ...PLAIN, score: null }], null)[0]!);
    assert.deepEqual([quiet.state, quiet.level, quiet.mark], ['ok', 'none', '']);
    assert.match(quiet.label, /no slowdown known/);
});

test('racks have their hosts, and what is in no rack is shown too', () => {
    const racks = racksOf(hostsOf([
        { ...PLAIN, host: 'h2', rack: 'r10' }, { ...PLAIN, osd: 5, host: 'h3', rack: 'r9' },
        { ...PLAIN, osd: 6, host: 'h1', rack: 'r10' }, { ...PLAIN, osd: 7, host: 'h4', rack: '' },
    ], null));
    assert.deepEqual(racks.map(({ name, tiles }) => [name, ...tiles.map(({ id }) => id)]),
        [['no rack', 'h4'], ['r9', 'h3'], ['r10', 'h1', 'h2']]);
});

test('arrow keys reach every OSD and stay inside', () => {
    const hosts = hostsOf([
        { ...PLAIN, osd: 1, host: 'a' }, { ...PLAIN, osd: 2, host: 'a' },
        { ...PLAIN, osd: 3, host: 'b' }], null);
    const table: [number, string, number | null][] = [
        [1, 'ArrowRight', 2], [2, 'ArrowRight', 3], [3, 'ArrowLeft', 2], [2, 'ArrowDown', 3],
        [3, 'ArrowUp', 1], [1, 'ArrowUp', null], [3, 'ArrowRight', null], [2, 'Home', 1],
        [1, 'End', 2], [1, 'x', null], [99, 'ArrowRight', 1]];
    for (const [from, key, to] of table) {
        assert.equal(neighbour(hosts, String(from), key), to === null ? null : String(to),
            `${from} ${key}`);
    }
});

test('a slowdown is a number, as in the table of "osds"', () => {
    assert.deepEqual(cellOf(PLAIN, null).details()[0], ['Slowdown', '1.00']);
    const host = hostTile({ name: 'h1', rack: 'r1', tiles: [cellOf(PLAIN, null)] });
    assert.deepEqual(host.details()[1], ['Slowdown', 'up to 1.00']);
});
