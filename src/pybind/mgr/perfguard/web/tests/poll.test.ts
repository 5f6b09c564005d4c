// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { delayOf, HIDDEN_MS, MOST_HIDDEN_MS, MOST_MS, Poller } from '../src/poll';

test('failures make it slower, but 10 s after it is back the page is too', () => {
    const delays = [0, 1, 2, 3, 4, 50].map(
        (failures) => delayOf({ interval: 2000, hidden: false, failures }));
    assert.deepEqual(delays, [2000, 4000, 8000, MOST_MS, MOST_MS, MOST_MS]);
    assert.equal(MOST_MS, 10_000);
});

test('a hidden tab asks seldom', () => {
    assert.equal(delayOf({ interval: 2000, hidden: true, failures: 0 }), HIDDEN_MS);
    assert.equal(delayOf({ interval: 2000, hidden: true, failures: 9 }), MOST_HIDDEN_MS);
});

/** Timers that a test fires. */
class FakeClock {
    waiting: { task: () => void; ms: number }[] = [];
    set(task: () => void, ms: number): unknown {
        const timer = { task, ms };
        this.waiting.push(timer);
        return timer;
    }

    clear(handle: unknown): void {
        this.waiting = this.waiting.filter((each) => each !== handle);
    }

    async tick(): Promise<void> {
        this.waiting.shift()?.task();
        await settled();
    }
}

function settled(): Promise<void> {
    return new Promise((resolve) => { setImmediate(resolve); });
}

test('requests do not overlap: a poke during one asks again right after it', async () => {
    const clock = new FakeClock();
    let done = () => {};
    let asked = 0;
    const poller = new Poller(() => {
        asked += 1;
        return new Promise((resolve) => { done = resolve; });
    }, () => 5000, clock);
    poller.poke();
    poller.poke();
    poller.poke();
    assert.equal(asked, 1);
    done();
    await settled();
    assert.deepEqual(clock.waiting.map((each) => each.ms), [0]);
    await clock.tick();
    done();
    await settled();
    assert.equal(asked, 2);
    assert.deepEqual(clock.waiting.map((each) => each.ms), [5000]);
});

test('failures are counted and forgotten with the first success', async () => {
    const clock = new FakeClock();
    let fails = true;
    const poller = new Poller(async () => {
        if (fails) {
            throw new Error('no');
        }
    }, (failures) => 100 + failures, clock);
    poller.poke();
    await settled();
    await clock.tick();
    assert.deepEqual(clock.waiting.map((each) => each.ms), [102]);
    fails = false;
    await clock.tick();
    assert.deepEqual(clock.waiting.map((each) => each.ms), [100]);
});

test('a poke while it waits takes the place of the next request', async () => {
    const clock = new FakeClock();
    const poller = new Poller(async () => {}, () => 5000, clock);
    poller.poke();
    await settled();
    poller.poke();
    await settled();
    assert.equal(clock.waiting.length, 1);
});
