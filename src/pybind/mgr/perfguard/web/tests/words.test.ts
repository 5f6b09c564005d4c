// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
    bytesText, numberText, percentText, plural, secondsText, shownText, timeText,
} from '../src/format';
import type { Overview } from '../src/types';
import { announcement, checkText, headline, titleOf } from '../src/words';
import { overview } from './fake/data';

function seen(changes: Partial<Overview['status']>): Overview {
    const answer = overview({ phase: 'RELEASING', osds: 6, may: true }, 0, [], 1790000000);
    return { ...answer, status: { ...answer.status, ...changes } };
}

test('a screen reader hears of changes only', () => {
    const before = seen({ health: ['PERFGUARD_SLOW_OSD'] });
    assert.equal(announcement(before, seen({ health: ['PERFGUARD_SLOW_OSD'] })), '');
    assert.equal(announcement(before, seen({ phase: 'HOLDING', health: ['PERFGUARD_LAGGY_PGS'] })),
        'HOLDING: Holding: releases are stopped. Warning: laggy PGs. '
        + 'Cleared: slow OSD.');
});

test('health checks are announced when the page is opened, the phase is not', () => {
    assert.equal(announcement(null, seen({ health: ['PERFGUARD_LATENCY'] })),
        'Warning: client latency far above its baseline.');
});

test('a check that the page does not know is announced by its code', () => {
    assert.equal(checkText('PERFGUARD_NEW'), 'PERFGUARD_NEW');
});

test('that everything is pinned is only said where it is', () => {
    assert.match(headline('PINNED', { unpinnable_count: 0 }), /no data moves/);
    assert.equal(headline('PINNED', { unpinnable_count: 812 }),
        'Pinned; 812 PGs cannot be pinned');
});

test('the tab shows the progress of the campaign', () => {
    assert.equal(titleOf('RELEASING', { total: 200, done_ratio: 0.4951 }),
        'RELEASING 49 % - perfguard');
    assert.equal(titleOf('IDLE', {}), 'IDLE - perfguard');
});

test('numbers as people read them', () => {
    assert.deepEqual([0, 0.0042, 0.5, 12.34, 1234567, null].map(numberText),
        ['0', '0.004', '0.50', '12.3', '1,234,567', '\u2013']);
    assert.deepEqual([0, 512, 1536, 200 * 1024, 5 * 2 ** 50].map(bytesText),
        ['0 B', '512 B', '1.5 KiB', '200 KiB', '5.0 PiB']);
    assert.deepEqual([5, 119, 600, 7200, 200000, null].map(secondsText),
        ['5 s', '119 s', '10 min', '2.0 h', '2.3 days', 'not known yet']);
    assert.deepEqual([0, 0.0123, 0.5, 1].map(percentText), ['0 %', '1.23 %', '50.0 %', '100 %']);
    assert.equal(plural(1, 'PG'), '1 PG');
    assert.equal(shownText(50, 1812), ' (50 of 1,812 shown)');
    assert.equal(shownText(50, 50), '');
});

test('times are those of the browser, with their zone', () => {
    const before = process.env.TZ;
    process.env.TZ = 'Europe/Berlin';
    try {
        // Midnight of New Year's Eve, and a summer day, in UTC.
        assert.equal(timeText(1767225600, 1767225600e3), '01:00:00 CET');
        assert.equal(timeText(1783000000, 1767225600e3), '2026-07-02 15:46:40 CEST');
        assert.equal(timeText(null), '\u2013');
    } finally {
        process.env.TZ = before ?? '';
    }
});
