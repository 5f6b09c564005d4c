// SPDX-License-Identifier: LGPL-2.1-or-later
// Whether the data of the page is current, and if not, since when and why.
import { type ApiError, TIMEOUT_MS } from './api';
import { HIDDEN_MS } from './poll';
import type { Overview } from './types';

/** Number of answers that may be missing. */
const MISSED = 3;
const LEAST_MS = 10_000;
/** A state that the dashboard itself reports is shown at once. */
const CERTAIN = new Set(['login', 'elsewhere', 'forbidden', 'down']);

export interface Staleness {
    /** In ms since the epoch by the browser's clock; 0: there never was an answer. */
    since: number;
    why: string;
    remedy: 'login' | 'elsewhere' | 'none';
}

/** A periodic request. */
export interface Asked {
    /** When the last answer came, in ms; when the page was opened, if nothing came. */
    received: number;
    /** ms between two requests, in a tab that is hidden or not, as it is now. */
    interval: number;
    /** When the tab was last shown, in ms. */
    shownAt: number;
    failure: ApiError | null;
}

export interface Seen extends Asked {
    last: Overview | null;
}

/** null: all is well. */
export function staleness(seen: Seen, now: number): Staleness | null {
    const late = overdue(seen, now);
    const { failure, last } = seen;
    if (failure && (CERTAIN.has(failure.trouble) || late)) {
        return { since: last ? seen.received : 0, why: whyOf(failure), remedy: remedyOf(failure) };
    }
    if (late) {
        return { since: last ? seen.received : 0, why: 'no answer', remedy: 'none' };
    }
    if (last && last.turned && last.now - last.turned > last.stale_after) {
        return {
            since: seen.received - 1000 * (last.now - last.turned), remedy: 'none',
            why: 'the mgr answers, but perfguard\'s loop hangs: '
                + 'see the log of the mgr',
        };
    }
    return null;
}

/** Why the OSDs are out of date; null: they are current. */
export function osdsStaleness(seen: Asked, now: number): string | null {
    return overdue(seen, now) ? seen.failure?.message ?? 'no answer' : null;
}

/** Whether there has been no answer for too long.
 *
 * A hidden tab sends requests rarely. When it is shown again, the longer interval applies until the
 * request that is sent then may have been answered.
 */
function overdue({ received, interval, shownAt, failure }: Asked, now: number): boolean {
    const settling = now - shownAt < TIMEOUT_MS;
    if (settling && !failure) {
        return false;
    }
    const patience = MISSED * (settling ? HIDDEN_MS : interval);
    return now - received > Math.max(LEAST_MS, patience);
}

function whyOf(failure: ApiError): string {
    switch (failure.trouble) {
        case 'login':
            return `${failure.message}; this page continues automatically after you log in`;
        case 'down':
            return `perfguard is not running: ${failure.message}`;
        default:
            return failure.message;
    }
}

function remedyOf(failure: ApiError): Staleness['remedy'] {
    const { trouble } = failure;
    return trouble === 'login' || trouble === 'elsewhere' ? trouble : 'none';
}
