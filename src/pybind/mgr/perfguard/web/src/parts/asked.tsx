// SPDX-License-Identifier: LGPL-2.1-or-later
// What is asked for only when it is opened: borrowed settings, and what has limited the campaign.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { percentText, timeText } from '../format';
import { failureOf, type Store } from '../store';
import type { Borrowed, Cause } from '../types';
import { reasonText } from '../words';

const AGAIN_MS = 5000;

interface Props<T> {
    store: Store;
    title: string;
    test: string;
    path: string;
    query?: Record<string, string>;
    children: (answer: T) => ComponentChildren;
}

/** Asks when it is opened, and again while it is open. */
export function Asked<T>({ store, title, test, path, query = {}, children }: Props<T>) {
    const [open, setOpen] = useState(false);
    const [answer, setAnswer] = useState<T | null>(null);
    const [error, setError] = useState('');
    useEffect(() => {
        if (!open) {
            return undefined;
        }
        let wanted = true;
        let timer = 0;
        const ask = async () => {
            try {
                const found = await store.api.get<T>(path, query);
                if (wanted) {
                    setAnswer(found);
                    setError('');
                }
            } catch (thrown) {
                if (wanted) {
                    setError(failureOf(thrown).message);
                }
            }
            if (wanted) {
                timer = window.setTimeout(() => void ask(), AGAIN_MS);
            }
        };
        void ask();
        return () => {
            wanted = false;
            clearTimeout(timer);
        };
    }, [open]);
    return (
        <details class="asked" data-test={test}
            onToggle={(event) => setOpen(event.currentTarget.open)}>
            <summary>{title}</summary>
            {error && <p class="error" role="status">{error}</p>}
            {!error && answer === null && open && <p class="muted">Loading{'\u2026'}</p>}
            {answer !== null && children(answer)}
        </details>
    );
}

/** Each borrowed setting with the command that restores it without perfguard. */
export function BorrowedSettings({ store }: { store: Store }) {
    return (
        <Asked<{ held: Borrowed[] }> store={store} title="Borrowed settings" test="held" path="held">
            {({ held }) => (held.length === 0
                ? <p class="muted">Nothing is borrowed.</p>
                : (
                    <div class="scroll" role="region" aria-label="Borrowed settings" tabIndex={0}>
                        <table>
                            <thead>
                                <tr>
                                    <th scope="col">setting</th><th scope="col">owner</th>
                                    <th scope="col">before</th>
                                    <th scope="col">now</th><th scope="col">since</th>
                                    <th scope="col">command that restores it by hand</th>
                                </tr>
                            </thead>
                            <tbody>
                                {held.map((row) => (
                                    <tr key={row.what}>
                                        <th scope="row" class="wrap">{row.what}</th>
                                        <td>{row.owner}</td>
                                        <td class="wrap">{row.found ?? 'not set'}</td>
                                        <td class="wrap">{row.put}</td>
                                        <td>{timeText(row.since)}</td>
                                        <td class="wrap"><code>{row.restore}</code></td>
                                    </tr>
                                ))}
                            </tbody>
                        </table>
                    </div>
                ))}
        </Asked>
    );
}

/** Reasons by their share of the campaign's time. */
export function Limits({ store }: { store: Store }) {
    return (
        <Asked<{ causes: Cause[] }> store={store} title="What has limited the campaign"
            test="limits" path="why" query={{ what: 'campaign' }}>
            {({ causes }) => (
                <ul class="limits">
                    {causes.map(({ code, text, next, share }) => (
                        <li key={`${code} ${text}`}>
                            <b>{share === null ? '\u2013' : percentText(share)}</b>
                            <span class="share" aria-hidden="true">
                                <span style={{ width: `${100 * (share ?? 0)}%` }} />
                            </span>
                            <span>{reasonText({ text, next })}</span>
                        </li>
                    ))}
                </ul>
            )}
        </Asked>
    );
}
