// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
    billFacts, confirmationOf, etaText, extraFacts, limitText, partsOf, isActive, verbsOf,
} from '../src/campaign';
import type { Bill, Campaign, Phase } from '../src/types';

const CAMPAIGN: Partial<Campaign> = {
    id: 7, phase: 'RELEASING', paused: false, total: 200, released: 90, kept: 10, in_flight: 20,
    pinned: 80, bytes_total: 2 ** 40, bytes_done: 2 ** 39, eta_seconds: 600, eta_low_seconds: 540,
    eta_high_seconds: 675, limit: 20,
};

interface Row extends Pick<Campaign, 'id' | 'paused' | 'held'> {
    phase: Phase;
    /** By the command line. */
    accepted: string;
    /** By the page. */
    offered: string;
}
const VERBS: Row[] = JSON.parse(readFileSync('tests/verbs.json', 'utf8'));

test('buttons are those that perfguard does not refuse', () => {
    // tests/web/test_verbs.py checks what is accepted.
    for (const { phase, accepted, offered, ...campaign } of VERBS) {
        const verbs = verbsOf(phase, campaign);
        assert.equal(verbs.join(' '), offered, JSON.stringify({ phase, ...campaign }));
        assert.deepEqual(verbs.filter((verb) => !accepted.split(' ').includes(verb)), []);
    }
});

test('the wait for new OSDs can be ended while no campaign is active', () => {
    const limits = [{ code: 'AWAITS_OSDS', text: 'waiting for OSDs', next: '' }];
    for (const [phase, id] of [['IDLE', null], ['DONE', 7], ['ABORTED', 7]] as [Phase, number | null][]) {
        assert.deepEqual(verbsOf(phase, { id, limits }), ['prepare', 'abort']);
        const question = confirmationOf('abort', { phase, id, limits });
        assert.equal(question.label, 'End wait\u2026');
        assert.match(question.text[0]!, /osd_crush_initial_weight/);
    }
    // Then "abort" is about the campaign.
    assert.equal(confirmationOf('abort', { ...CAMPAIGN, limits }).yes, 'Abort');
    assert.deepEqual(verbsOf('FINISHING', { id: 7, limits }), ['abort']);
    assert.deepEqual(verbsOf('IDLE', { id: 7, limits }), ['finish', 'abort']);
});

test('finish keeps the pins only if there are some, and says so', () => {
    const kept = confirmationOf('finish', CAMPAIGN);
    assert.deepEqual(kept.body, { keep: true });
    assert.match(kept.text.join(' '), /80 PGs .* ordinary upmaps/);
    const last = confirmationOf('finish', { ...CAMPAIGN, pinned: 0 });
    assert.deepEqual(last.body, {});
    assert.doesNotMatch(last.text.join(' '), /upmaps/);
});

test('an aborted campaign that holds PGs back has three ways out', () => {
    assert.equal(verbsOf('ABORTED', { held: true }).join(' '), 'resume rollback finish prepare');
    const asked = confirmationOf('rollback', CAMPAIGN);
    assert.equal(asked.grave, true);
    assert.match(asked.text.join(' '), /from before the campaign .* 20 PGs in flight/);
});

test('abort names what is lost', () => {
    const asked = confirmationOf('abort', CAMPAIGN);
    assert.equal(asked.grave, true);
    assert.match(asked.text[0]!, /Pins back 20 PGs in flight/);
});

test('rollback and abort name PGs in flight only if there are some', () => {
    const asked = (verb: 'rollback' | 'abort', flying: number) =>
        confirmationOf(verb, { ...CAMPAIGN, in_flight: flying }).text.join(' ');
    assert.match(asked('rollback', 1), / 1 PG in flight is pinned back\. PGs that have moved /);
    assert.match(asked('rollback', 20), / 20 PGs in flight are pinned back\. /);
    for (const verb of ['rollback', 'abort'] as const) {
        assert.doesNotMatch(asked(verb, 0), /in flight/);
    }
});

test('the bar is as long as the total', () => {
    const parts = partsOf(CAMPAIGN);
    assert.deepEqual(parts.map((part) => part.share), [0.45, 0.05, 0.1, 0.4]);
});

test('the bar is never longer than its box', () => {
    const parts = partsOf({
        phase: 'RELEASING', total: 10, released: 8, kept: 4, in_flight: 3, pinned: 1 });
    assert.equal(parts.reduce((sum, part) => sum + part.share, 0), 1);
});

test('what an aborted campaign has kept is not shown as pinned once more', () => {
    const parts = partsOf({ phase: 'ABORTED', total: 108, released: 24, kept: 84, pinned: 84 });
    assert.deepEqual(parts.map((part) => part.count), [24, 84, 0, 0]);
});

test('an empty campaign has an empty bar', () => {
    assert.deepEqual(partsOf({}).map((part) => part.share), [0, 0, 0, 0]);
});

test('time left is shown with its range, or not at all', () => {
    // Commands and the progress event have the same texts (tests/rebalance/test_time_left.py).
    for (const { text, ...times } of JSON.parse(readFileSync('tests/times.json', 'utf8'))) {
        assert.equal(etaText({ ...CAMPAIGN, ...times }), text);
    }
});

test('a limit of nothing is said in words', () => {
    assert.equal(limitText(CAMPAIGN), 'up to 20 PGs');
    assert.equal(limitText({ limit: 0 }), 'none for now');
});

test('a campaign that has ended is not active', () => {
    assert.deepEqual((['IDLE', 'DONE', 'ABORTED', 'PINNED', 'HOLDING'] as Phase[]).map(isActive),
        [false, false, false, true, true]);
});

test('tranches, the end of a pause and own options are shown where there are any', () => {
    assert.deepEqual(extraFacts(CAMPAIGN), []);
    const facts = extraFacts({
        ...CAMPAIGN, tranche: 2, tranches: 5, paused_until: 1767225600,
        settings: { latency_factor: '2', max_pgs_in_flight: '8' },
    });
    assert.deepEqual(facts[0], ['Tranche', '2 of about 5']);
    assert.match(facts[1]![1], /^2026-01-01 \d\d:00:00 \S+$|^2025-12-31 \d\d:00:00 \S+$/);
    assert.deepEqual(facts[2], ['Settings', 'latency_factor=2, max_pgs_in_flight=8']);
});

const BILL: Bill = {
    bytes_moved: 3 * 2 ** 30, bytes_required: 2 ** 30,
    phase_seconds: { PINNING: 9, RELEASING: 400, HOLDING: 0 },
    latency_before: { read_p50_ms: 0.5, read_p99_ms: 2 },
    latency_while_moving: { read_p50_ms: 0.6, read_p99_ms: 3 },
    operations: 12000, counted_ratio: 1,
    over_100_ms: { total: 31, movement: 22, others: 8, unknown: 1 },
    over_1_s: { total: 0, movement: 0, others: 0, unknown: 0 },
    settings: [{ what: 'flag norebalance', put: 'set', seconds: 9, state: 'given back' }],
};

test('the bill of a campaign', () => {
    const facts = Object.fromEntries(billFacts(BILL));
    assert.equal(facts['The change required'], '1.0 GiB');
    assert.equal(facts.Time, 'RELEASING 7 min, PINNING 9 s');
    assert.match(facts.Reads ?? '', /^p50 0.60 ms \(before 0.50 ms\), p99 3.00 ms \(before 2.00 ms\)$/);
    assert.match(facts.Writes ?? '', /^p50 \u2013 /);
    assert.equal(facts['Over 100 ms'],
        '31 of 12,000 operations: movement explains 22, not 8, unknown 1');
    assert.equal(facts['Over 1 s'], '0 of 12,000 operations');
    assert.equal(facts.Settings, '1 borrowed and given back');
});

test('what a bill does not know, and what is left', () => {
    const facts = Object.fromEntries(billFacts({
        ...BILL, bytes_required: null, counted_ratio: 0.5, settings: [
            { what: 'balancer', put: 'false', seconds: 9, state: 'borrowed' }],
    }));
    assert.equal(facts['The change required'], 'not known');
    assert.match(facts['Over 1 s'] ?? '', /50.0 % of them counted/);
    assert.equal(facts.Settings, 'balancer: borrowed');
    assert.equal(Object.fromEntries(billFacts({ ...BILL, counted_ratio: null }))['Over 1 s'],
        'not measured');
});
