// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether what the page shows can be relied on, and if not, since when and why.
import type { ApiError } from './api';
import { OSDS_MS } from './poll';
import type { Overview } from './types';

/** So many answers may be missing. */
const MISSED = 3;
const LEAST_MS = 10_000;
/** What the dashboard says by itself is believed at once. */
const CERTAIN = new Set(['login', 'elsewhere', 'forbidden', 'down']);

export interface Staleness {
    /** In ms since the epoch by the browser's clock; 0: there never was an answer. */
    since: number;
    why: string;
    remedy: 'login' | 'elsewhere' | 'none';
}

export interface Seen {
    last: Overview | null;
    /** When it came, in ms; when the page was opened, if nothing came. */
    received: number;
    /** ms between two requests. */
    interval: number;
    failure: ApiError | null;
}

/** null: all is well. */
export function staleness(seen: Seen, now: number): Staleness | null {
    const age = now - seen.received;
    const { failure, last } = seen;
    if (failure && (CERTAIN.has(failure.trouble) || age > patience(seen))) {
        return { since: last ? seen.received : 0, why: whyOf(failure), remedy: remedyOf(failure) };
    }
    if (age > patience(seen)) {
        return { since: last ? seen.received : 0, why: 'no answer', remedy: 'none' };
    }
    if (last && last.turned && last.now - last.turned > last.stale_after) {
        return {
            since: seen.received - 1000 * (last.now - last.turned), remedy: 'none',
            why: 'the manager answers, but perfguard\'s loop does not come round: '
                + 'see the log of the manager',
        };
    }
    return null;
}

/** What is wrong with OSDs that came at `received`, in ms; null: nothing. */
export function osdsStaleness(received: number, failure: ApiError | null,
    now: number): string | null {
    return now - received > MISSED * OSDS_MS ? failure?.message ?? 'no answer' : null;
}

function patience(seen: Seen): number {
    return Math.max(LEAST_MS, MISSED * seen.interval);
}

function whyOf(failure: ApiError): string {
    switch (failure.trouble) {
        case 'login':
            return `${failure.message}; once you have logged in, this page goes on by itself`;
        case 'down':
            return `perfguard does not run: ${failure.message}`;
        default:
            return failure.message;
    }
}

function remedyOf(failure: ApiError): Staleness['remedy'] {
    const { trouble } = failure;
    return trouble === 'login' || trouble === 'elsewhere' ? trouble : 'none';
}
