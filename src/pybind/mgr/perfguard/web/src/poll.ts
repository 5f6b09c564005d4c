// SPDX-License-Identifier: LGPL-2.1-or-later
// When to ask next, and a loop that never asks twice at a time.

const SECOND = 1000;
export const BUSY_MS = 2 * SECOND;
export const QUIET_MS = 5 * SECOND;
export const OSDS_MS = 10 * SECOND;
/** A tab in the background. */
export const HIDDEN_MS = 30 * SECOND;
/** Failures make it slower up to here: only a little while a user waits for the next mgr. */
export const MOST_MS = 10 * SECOND;
export const MOST_HIDDEN_MS = 60 * SECOND;

export interface Pace {
    /** What is asked for changes quickly. */
    interval: number;
    hidden: boolean;
    /** Requests in a row that failed. */
    failures: number;
}

/** Milliseconds until the next request. */
export function delayOf({ interval, hidden, failures }: Pace): number {
    const least = hidden ? Math.max(interval, HIDDEN_MS) : interval;
    const most = hidden ? MOST_HIDDEN_MS : MOST_MS;
    return Math.min(Math.max(least, most), least * 2 ** Math.min(failures, 10));
}

export interface Clock {
    set(task: () => void, ms: number): unknown;
    clear(handle: unknown): void;
}

const CLOCK: Clock = {
    set: (task, ms) => setTimeout(task, ms),
    clear: (handle) => clearTimeout(handle as ReturnType<typeof setTimeout>),
};

/** Runs a task again and again. A task that throws has failed. */
export class Poller {
    failures = 0;
    private handle: unknown;
    private running = false;
    private again = false;

    constructor(
        private readonly task: () => Promise<void>,
        private readonly delay: (failures: number) => number,
        private readonly clock: Clock = CLOCK,
    ) {}

    /** Ask now; while an answer is waited for: right after it. */
    poke(): void {
        if (this.running) {
            this.again = true;
            return;
        }
        this.clock.clear(this.handle);
        void this.run();
    }

    private async run(): Promise<void> {
        this.running = true;
        try {
            await this.task();
            this.failures = 0;
        } catch {
            this.failures += 1;
        }
        this.running = false;
        const wait = this.again ? 0 : this.delay(this.failures);
        this.again = false;
        this.handle = this.clock.set(() => void this.run(), wait);
    }
}
