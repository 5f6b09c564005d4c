// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import { type OrderPreview, previewLines } from '../orders';
import { failureOf, type Store } from '../store';
import { Action } from './action';

/** Takes new OSDs in, after it has told what that will move. */
export function Expand({ store, onKeep }: { store: Store; onKeep: (keep: boolean) => void }) {
    const [weight, setWeight] = useState('');
    const body = weight.trim() ? { weight: weight.trim() } : {};
    return (
        <Action label={'Expand\u2026'} test="button-expand" kind="primary"
            title="Expand to new OSDs?" yes="Expand" onKeep={onKeep}
            onDone={() => store.refresh()}
            act={() => store.api.post('rebalance/expand', body)}>
            <label>CRUSH weight of each OSD{' '}
                <input value={weight} placeholder="its size" size={10} inputMode="decimal"
                    data-test="expand-weight"
                    onInput={(event) => setWeight(event.currentTarget.value)} />
            </label>
            <Preview store={store} body={body} key={weight} />
        </Action>
    );
}

/** Asks a moment after the last key: each preview is work for perfguard. */
function Preview({ store, body }: { store: Store; body: object }) {
    const [lines, setLines] = useState(['Loading the preview\u2026']);
    useEffect(() => {
        let wanted = true;
        const timer = setTimeout(async () => {
            try {
                const answer = await store.api.post<OrderPreview>('rebalance/expand',
                    { ...body, dry_run: true });
                if (wanted) {
                    setLines(previewLines(answer));
                }
            } catch (error) {
                if (wanted) {
                    setLines([failureOf(error).message]);
                }
            }
        }, 400);
        return () => {
            wanted = false;
            clearTimeout(timer);
        };
    }, []);
    return (
        <div role="status" class="order" data-test="expand-preview">
            {lines.map((line) => <p key={line}>{line}</p>)}
        </div>
    );
}
