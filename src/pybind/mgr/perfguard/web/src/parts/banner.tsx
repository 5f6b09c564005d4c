// SPDX-License-Identifier: LGPL-2.1-or-later
import { secondsText, timeText } from '../format';
import { staleness, type Staleness } from '../freshness';
import { useNow } from '../hooks';
import type { State, Store } from '../store';

/** What restricts the page: data that are stale, or a user who may only read. */
export function Banner({ store, state }: { store: Store; state: State }) {
    const now = useNow(1000);
    const { last, received } = state.model;
    const stale = staleness({
        last, received: last ? received : state.opened, interval: store.interval,
        shownAt: state.shownAt, failure: state.failure,
    }, now);
    const readOnly = last && !last.may.update && !last.may.create && !last.may.delete;
    return (
        <>
            {stale && (
                <div class="banner stale" role="alert" data-test="banner-stale">
                    <b>{stale.since ? 'Stale' : 'No data'}</b>
                    <span>{sentence(stale)}</span>
                    {/* Seconds that count up are not for screen readers. */}
                    {stale.since > 0 && (
                        <span class="muted" aria-hidden="true">
                            {secondsText(Math.max(0, now - stale.since) / 1000)} ago
                        </span>
                    )}
                    <Remedy store={store} remedy={stale.remedy} />
                </div>
            )}
            {readOnly && (
                <p class="banner quiet" data-test="banner-readonly">
                    {last.user} has read-only access and cannot make changes.
                </p>
            )}
        </>
    );
}

function sentence({ since, why }: Staleness): string {
    const reason = `${why.slice(0, 1).toUpperCase()}${why.slice(1)}.`;
    return since ? `The data shown is from ${timeText(since / 1000)}. ${reason}` : reason;
}

/** Opens another tab: this one keeps its content, and continues after the login. */
function Remedy({ store, remedy }: { store: Store; remedy: Staleness['remedy'] }) {
    if (remedy === 'none') {
        return null;
    }
    const [path, test, text] = remedy === 'login'
        ? ['/#/login', 'link-login', 'Log in (new tab)']
        : ['/', 'link-active', 'Open the active mgr (new tab)'];
    return (
        <a href={`${store.api.prefix}${path}`} target="_blank" rel="noopener" data-test={test}>
            {text}
        </a>
    );
}
