// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
    bodyOf, CHECKED, fillRows, type Loss, mapText, type OrderPreview, previewLines, previewOf,
} from '../src/orders';

const ORDER: OrderPreview = {
    weights: { 'osd.8': 1, 'osd.9': 1 }, one_epoch: true, reason: '',
    pgs: 40, shards: 52, bytes: 3 * 2 ** 30, primaries_moving: 11, unpinnable_pgs: 0,
    balanced: null, fast_peering: { text: 'paxos_propose_interval is 0.1 s' },
};

test('the preview of an expansion names the new OSDs and the bytes to copy', () => {
    const text = previewLines(ORDER).join(' ');
    assert.match(text, /CRUSH weights will be set for 2 OSDs: osd\.8, osd\.9\./);
    assert.match(text, /Pins 40 PGs .* 52 shards \(3\.0 GiB\) .* Primaries that move: 11/);
    assert.doesNotMatch(text, /cannot be pinned/);
});

test('a preview shows the movement for the balance and the interval of the mons', () => {
    const balanced = {
        shards: 61, bytes: 2 ** 31, extra_shards: 9, limit_shards: 104, deviation: 0.875,
        target_deviation: 1, max_extra_movement: 0.5, limited: false,
    };
    const text = previewLines({ ...ORDER, balanced }).join(' ');
    assert.match(text, /61 shards, 2\.0 GiB, move in total \(limit 104\), 9 of them/);
    assert.match(text, /paxos_propose_interval is 0\.1 s/);
    assert.match(text, /within 0\.88 PGs of their share of each pool \(target_deviation 1\)/);
    assert.match(previewLines({ ...ORDER, balanced: { ...balanced, limited: true } }).join(' '),
        /target_deviation 1, limited by max_extra_movement 0\.5\)/);
    assert.doesNotMatch(previewLines({ ...ORDER, balanced: { ...balanced, deviation: null } })
        .join(' '), /share of each pool/);
    assert.doesNotMatch(previewLines(ORDER).join(' '), /in total/);
});

test('a preview shows tranches, the time and the borrowed settings', () => {
    const text = previewLines({
        ...ORDER, tranches: 3, pin_limit: 6800, eta_seconds: 7200, eta_low_seconds: 5400,
        eta_high_seconds: 10800, eta_basis: 'earlier campaigns',
        borrowed: [{ what: 'flag norebalance', put: 'set' }, { what: 'balancer', put: 'off' }],
    }).join(' ');
    assert.match(text, /in about 3 tranches of at most 6,800 pins \(max_pins\)/);
    assert.match(text, /Estimated time: 2\.0 h \(90 min to 3\.0 h\) \(speed: earlier campaigns\)/);
    assert.match(text, /Borrowed settings: flag norebalance: set, balancer: off\./);
    assert.doesNotMatch(previewLines({ ...ORDER, tranches: 1 }).join(' '), /tranche|time|Borrowed/);
});

test('a preview shows what clones of snapshots share, if they do', () => {
    const text = previewLines({ ...ORDER, clone_bytes: 2 ** 30 }).join(' ');
    assert.match(text, /Up to 1\.0 GiB more are stored afterwards: clones of snapshots/);
    assert.doesNotMatch(previewLines({ ...ORDER, clone_bytes: 0 }).join(' '), /clones/);
});

test('a preview shows what will be remapped at once', () => {
    assert.match(previewLines({ ...ORDER, unpinnable_pgs: 1 })[2]!, /1 PG cannot be pinned/);
    assert.match(previewLines({ ...ORDER, one_epoch: false, reason: 'osdmaptool is missing' })[1]!,
        /remapped first and pinned afterwards: osdmaptool is missing/);
});

test('a replacement says what happens next to each OSD, also where nothing moves', () => {
    const drains = [{ osd: 7, next: 'destroy it' }];
    assert.equal(previewLines({ ...ORDER, drains }).at(-1), 'osd.7: destroy it');
    assert.deepEqual(previewLines({ drains } as OrderPreview), ['osd.7: destroy it']);
    const many = Array.from({ length: 10 }, (_, osd) => ({ osd, next: 'wait' }));
    assert.equal(previewLines({ drains: many } as OrderPreview).at(-1), '2 more OSDs.');
});

test('many OSDs are not all named', () => {
    const weights = Object.fromEntries(Array.from({ length: 20 }, (_, osd) => [`osd.${osd}`, 1]));
    assert.match(previewLines({ ...ORDER, weights })[0]!, /osd\.7 and 12 more\./);
});

test('what is filled in becomes what is sent', () => {
    assert.deepEqual(bodyOf('expand', { weight: ' ', what: '' }), {});
    assert.deepEqual(bodyOf('expand', { weight: ' 1.5 ' }), { weight: '1.5' });
    assert.deepEqual(bodyOf('expand', { awaited: CHECKED }), { awaited: true });
    assert.deepEqual(bodyOf('drain', { what: 'host3, osd.7' }), { what: ['host3', 'osd.7'] });
    assert.equal(bodyOf('undrain', { what: '  ' }), null);
    assert.deepEqual(bodyOf('crushmap', { crush_map: '# begin crush map' }),
        { crush_map: '# begin crush map' });
    assert.equal(bodyOf('crushmap', {}), null);
    assert.deepEqual(bodyOf('balance', { what: 'ssd', by: 'bytes', max_movement: '2%' }),
        { what: ['ssd'], by: 'bytes', max_movement: '2%' });
    assert.deepEqual(bodyOf('balance', {}), {});
    assert.equal(bodyOf('rule', { pool: 'rbd' }), null);
    assert.deepEqual(bodyOf('rule', { pool: 'rbd', rule: 'fast' }), { pool: 'rbd', rule: 'fast' });
    assert.equal(bodyOf('pg_num', { pool: 'rbd' }), null);
    assert.deepEqual(bodyOf('expand', { what: 'host9', drain: 'host3,osd.7' }),
        { what: ['host9'], drain: ['host3', 'osd.7'] });
    assert.equal(bodyOf('grow', { under: 'rack2' }), null);
    assert.deepEqual(previewOf('grow', bodyOf('grow', { what_if: '4x12x16T', under: 'rack2' })!),
        ['preview', { change: 'expand', what_if: '4x12x16T', under: ['rack2'] }]);
    assert.deepEqual(previewOf('lose', bodyOf('lose', { what: 'host3' })!),
        ['preview', { change: 'lose', what: ['host3'] }]);
    assert.deepEqual(previewOf('rollback', {}), ['campaign/rollback', { dry_run: true }]);
    assert.deepEqual(previewOf('drain', bodyOf('drain', { what: 'host3' })!),
        ['drain', { what: ['host3'], dry_run: true }]);
    assert.deepEqual(bodyOf('pg_num', { pool: 'rbd', pg_num: '128' }), { pool: 'rbd', pg_num: 128 });
    // The API says what is wrong with it.
    assert.deepEqual(bodyOf('pg_num', { pool: 'rbd', pg_num: 'x' }), { pool: 'rbd', pg_num: 'x' });
});

test('the preview of another rule says which shards must move', () => {
    const rule = {
        pool: 'rbd', from: 'slow', to: 'fast', via: 'both', pins: 64,
        least_moves: { shards_by_crush: 90, shards_required: 40, shards_extra: 3, upmaps: 50 },
    };
    const text = previewLines({ ...ORDER, weights: {}, rule }).join(' ');
    assert.match(text, /^Pool rbd will have the CRUSH rule fast instead of slow\. Until then .* both,/);
    assert.match(text, /allow 40 shards to stay \(CRUSH alone would move 90\); 3 more .* 50 PGs\./);
    assert.match(text, /Moves 40 PGs: copies 52 shards \(3\.0 GiB\) as fast/);
    assert.doesNotMatch(text, /CRUSH map|same epoch/);
    assert.equal(previewLines({ ...ORDER, weights: {}, rule: { ...rule, via: null, least_moves: null } })
        .findIndex((line) => line.startsWith('Moves')), 1);
});

test('the preview of another pg_num names both', () => {
    const text = previewLines({ ...ORDER, weights: {}, pg_num: { pool: 'rbd', from: 64, to: 128 } });
    assert.equal(text[0], 'Pool rbd will have 128 PGs instead of 64.');
});

test('the preview of a balance shows the loads, the pools and what is left out', () => {
    const pool = {
        pool: 'rbd', deviation_before: 5, deviation_after: 1, max_avail_before: 2 ** 40,
        max_avail_after: 2 ** 41,
    };
    const balance = {
        by: 'bytes', shards: 16, wanted_shards: 23, load_before: [0.32, 0.62] as [number, number],
        load_after: [0.45, 0.46] as [number, number], upmaps_before: 8, upmaps_after: 18,
        pools: [pool, { ...pool, pool: 'data', max_avail_before: null, max_avail_after: null }],
        left_out: [{ pool: 'old', reason: 'it has upmaps' }],
    };
    const lines = previewLines({ ...ORDER, weights: {}, balance });
    assert.equal(lines[0], 'Fill of the OSDs: 45.0 % to 46.0 % (before 32.0 % to 62.0 %). Upmaps: 18 '
        + '(before 8).');
    assert.equal(lines[1], 'The maximum movement leaves 7 shards out.');
    assert.match(lines[2]!, /Pool rbd: .* 1\.00 PGs .*\(before 5\.00\); MAX AVAIL 2\.0 TiB \(before 1\.0 TiB\)/);
    assert.match(lines[3]!, /MAX AVAIL \u2013 \(before \u2013\)/);
    assert.equal(lines[4], 'Pool old is left out: it has upmaps.');
    assert.match(previewLines({ ...ORDER, balance: { ...balance, by: 'pgs', wanted_shards: 16 } })
        .join(' '), /^PGs of the OSDs, of their share: 45\.0 % .*\. Pool rbd/);
});

const CAPACITY = {
    classes: [{
        class: 'ssd', before: { osds: 8, fill: 0.6, fullest_fill: 0.7 },
        after: { osds: 12, fill: 0.4, fullest_fill: null },
    }],
    pools: [{ pool: 'rbd', max_avail_before: 2 ** 40, max_avail_after: null }],
};
const CAPACITY_LINES = ['Class ssd: 12 OSDs (before 8), fill 40.0 % (before 60.0 %), fullest OSD '
    + '\u2013 (before 70.0 %).', 'Pool rbd: MAX AVAIL \u2013 (before 1.0 TiB).'];

test('hosts that do not exist yet are described with the capacity that they bring', () => {
    const hosts = {
        hosts: 2, osds: 4, size_bytes: 2 ** 44, under: ['rack1', 'rack2'], device_class: 'ssd',
    };
    const lines = previewLines({ ...ORDER, what_if: hosts, capacity: CAPACITY });
    assert.equal(lines[0], '4 new OSDs of 16.0 TiB in 2 hosts below rack1, rack2, class ssd.');
    assert.deepEqual(lines.slice(2, 4), CAPACITY_LINES);
    assert.doesNotMatch(previewLines({ ...ORDER, what_if: { ...hosts, device_class: '' } })[0]!,
        /class/);
});

test('a loss shows what is degraded, what cannot be read, and what will be full', () => {
    const loss: Loss = {
        osds: [1, 2], total_bytes: 2 ** 44, used_bytes: 2 ** 42, shards: 23, bytes: 2 ** 41,
        moved_bytes: 2 ** 30, eta_seconds: 7200, eta_low_seconds: 5400, eta_high_seconds: 10800,
        pools: [{ pool: 'rbd', degraded_pgs: 12, inactive_pgs: 3, unreadable_pgs: 1, unplaced_pgs: 2 }],
        capacity: CAPACITY, nearfull_osds: [4, 5], full_osds: [5], warnings: ['noout is set'],
    };
    assert.deepEqual(previewLines(loss), [
        'Lost: 2 OSDs of 16.0 TiB, 4.0 TiB used.',
        'To recover: 23 shards, 2.0 TiB; 1.0 GiB more move. Time to full redundancy: 2.0 h (90 min to '
            + '3.0 h).',
        'Pool rbd: 12 PGs degraded, 3 below min_size, 1 unreadable, 2 not placed again.',
        '1 OSD would be above full, such as osd.5.', ...CAPACITY_LINES, 'noout is set']);
    assert.match(previewLines({ ...loss, full_osds: [], eta_seconds: null }).join(' '),
        /not known yet\. .* 2 OSDs would be above nearfull, such as osd\.4\./);
    assert.doesNotMatch(previewLines({ ...loss, full_osds: [], nearfull_osds: [] }).join(' '), /above/);
});

test('a wait for new OSDs is described by its message', () => {
    assert.deepEqual(previewLines({ message: 'OSDs that boot start with CRUSH weight 0' } as OrderPreview),
        ['OSDs that boot start with CRUSH weight 0']);
});

test('a CRUSH map is sent as text, or in base64 if it is compiled', () => {
    const text = '# begin crush map\nhost r\u00e9seau { }\n';
    assert.equal(mapText(new TextEncoder().encode(text)), text);
    assert.equal(mapText(new Uint8Array([0, 0, 1, 0])), 'AAABAA==');
    assert.equal(mapText(new Uint8Array([0x10, 0xff])), 'EP8=');
    assert.equal(mapText(new Uint8Array([])), '');
});

test('a CRUSH map that sets no weight replaces the map', () => {
    assert.equal(previewLines({ ...ORDER, weights: {} })[0], 'The CRUSH map will be replaced.');
});

test('a preview names OSDs that are left out, and warnings', () => {
    const odd = { left_out: [{ osd: 4, reason: 'was drained' }], warnings: ['osd.9 is small'] };
    for (const order of [ORDER, { ...ORDER, one_epoch: false, reason: 'osdmaptool is missing' }]) {
        const text = previewLines({ ...order, ...odd });
        assert.ok(text.includes('osd.4 is left out: it was drained.'));
        assert.ok(text.includes('osd.9 is small'));
    }
});

test('the fullest OSD in the end is the first, what is not known the last', () => {
    const rows = fillRows([
        { osd: 9, pgs_before: 0, pgs_after: 98, fill_before: null, fill_after: null },
        { osd: 1, pgs_before: 120, pgs_after: 96, fill_before: 0.8, fill_after: 0.64 },
        { osd: 2, pgs_before: 130, pgs_after: 99, fill_before: 0.84, fill_after: 0.66 }]);
    assert.deepEqual(rows.map(([osd]) => osd), ['osd.2', 'osd.1', 'osd.9']);
    assert.deepEqual(rows[0], ['osd.2', '130', '99', '84.0 %', '66.0 %']);
    assert.deepEqual(rows[2], ['osd.9', '0', '98', '\u2013', '\u2013']);
});
