// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, type Trouble } from '../src/api';
import { osdsStaleness, staleness, type Asked, type Seen } from '../src/freshness';
import { HIDDEN_MS, OSDS_MS } from '../src/poll';
import { overview } from './fake/data';

const AT = 1790000000;
const LAST = overview({ phase: 'IDLE', osds: 6, may: true }, AT, [], AT);
const SEEN: Seen = {
    last: LAST, received: 1000 * AT, interval: 2000, shownAt: 0, failure: null,
};

function after(seconds: number, changes: Partial<Seen> = {}) {
    return staleness({ ...SEEN, ...changes }, 1000 * (AT + seconds));
}

function failed(trouble: Trouble) {
    return new ApiError(trouble, 'so it is');
}

test('fresh data need no banner', () => {
    assert.equal(after(5), null);
    assert.equal(after(5, { failure: failed('unreachable') }), null);
});

test('without answers for a while the data are stale since the last one', () => {
    assert.deepEqual(after(11, { failure: failed('unreachable') }),
        { since: 1000 * AT, why: 'so it is', remedy: 'none' });
    assert.equal(after(11)?.why, 'no answer');
    assert.equal(after(11, { interval: 5000 }), null);
});

test('what the dashboard says is believed at once, with a way out', () => {
    const table: [Trouble, string, RegExp][] = [
        ['login', 'login', /so it is; .* continues automatically/],
        ['elsewhere', 'elsewhere', /so it is/],
        ['down', 'none', /is not running: so it is/], ['forbidden', 'none', /so it is/]];
    for (const [trouble, remedy, why] of table) {
        const found = after(1, { failure: failed(trouble) });
        assert.equal(found?.remedy, remedy, trouble);
        assert.match(found!.why, why);
    }
});

test('OSDs are stale after three polls, with the reason', () => {
    const seen: Asked = {
        received: 50_000, interval: OSDS_MS, shownAt: 0, failure: failed('down'),
    };
    assert.equal(osdsStaleness(seen, 80_000), null);
    assert.equal(osdsStaleness(seen, 80_001), 'so it is');
    assert.equal(osdsStaleness({ ...seen, failure: null }, 80_001), 'no answer');
    assert.equal(osdsStaleness({ ...seen, interval: HIDDEN_MS }, 80_001), null);
    assert.equal(osdsStaleness({ ...seen, failure: null, shownAt: 80_000 }, 80_001), null);
});

test('a hidden tab, which asks seldom, waits longer', () => {
    assert.equal(after(89, { interval: HIDDEN_MS }), null);
    assert.equal(after(91, { interval: HIDDEN_MS })?.why, 'no answer');
});

test('who turns to a tab is not alarmed before a request has had its time', () => {
    const shownAt = 1000 * (AT + 60);
    assert.equal(after(60, { shownAt }), null);
    assert.equal(after(69, { shownAt }), null);
    // The computer may have slept.
    assert.equal(after(9001, { shownAt: 1000 * (AT + 9000) }), null);
    assert.equal(after(70, { shownAt })?.why, 'no answer');
    // One request that failed while it was hidden is not much, but silence for long is.
    const failure = failed('unreachable');
    assert.equal(after(61, { shownAt, failure }), null);
    assert.equal(after(70, { shownAt, failure })?.why, 'so it is');
    assert.equal(after(91, { shownAt: 1000 * (AT + 90), failure })?.why, 'so it is');
    assert.equal(after(61, { shownAt, failure: failed('login') })?.remedy, 'login');
});

test('a page that never got an answer says so', () => {
    const found = after(1, { last: null, failure: failed('login') });
    assert.equal(found?.since, 0);
});

test('a loop that hangs makes the data stale', () => {
    const found = after(1, { last: { ...LAST, turned: AT - 100 } });
    assert.equal(found?.since, 1000 * (AT - 100));
    assert.match(found!.why, /loop hangs/);
    assert.equal(after(1, { last: { ...LAST, turned: AT - 19 } }), null);
});
