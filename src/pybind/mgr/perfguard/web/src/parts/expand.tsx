// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import { bodyOf, type CrushVerb, type OrderPreview, previewLines } from '../orders';
import { failureOf, type Store } from '../store';
import { Action } from './action';

interface Words {
    label: string;
    title: string;
    yes: string;
    field: string;
    placeholder: string;
    kind: 'primary' | 'plain';
}

const WORDS: Record<CrushVerb, Words> = {
    expand: {
        label: 'Expand\u2026', title: 'Expand to new OSDs?', yes: 'Expand', kind: 'primary',
        field: 'CRUSH weight of each OSD', placeholder: 'its size',
    },
    drain: {
        label: 'Drain\u2026', title: 'Empty OSDs, hosts or racks?', yes: 'Drain', kind: 'plain',
        field: 'OSDs, hosts or racks', placeholder: 'host3 osd.7',
    },
    undrain: {
        label: 'Undrain\u2026', title: 'Fill drained OSDs, hosts or racks again?', yes: 'Undrain',
        kind: 'plain', field: 'OSDs, hosts or racks', placeholder: 'host3 osd.7',
    },
};

interface Props {
    store: Store;
    verb: CrushVerb;
    onKeep: (keep: boolean) => void;
}

/** Changes CRUSH weights, after it has shown what that will move. */
export function CrushOrder({ store, verb, onKeep }: Props) {
    const [given, setGiven] = useState('');
    const words = WORDS[verb];
    const body = bodyOf(verb, given);
    return (
        <Action label={words.label} test={`button-${verb}`} kind={words.kind}
            title={words.title} yes={words.yes} onKeep={onKeep}
            onDone={() => store.refresh()}
            act={() => store.api.post(`rebalance/${verb}`, body ?? {})}>
            <label>{words.field}{' '}
                <input value={given} placeholder={words.placeholder}
                    size={verb === 'expand' ? 10 : 24}
                    inputMode={verb === 'expand' ? 'decimal' : 'text'}
                    data-test={verb === 'expand' ? 'expand-weight' : `${verb}-what`}
                    onInput={(event) => setGiven(event.currentTarget.value)} />
            </label>
            {body && <Preview store={store} verb={verb} body={body} key={given} />}
        </Action>
    );
}

interface PreviewProps {
    store: Store;
    verb: CrushVerb;
    body: object;
}

/** Asks a moment after the last key: each preview is work for perfguard. */
function Preview({ store, verb, body }: PreviewProps) {
    const [lines, setLines] = useState(['Loading the preview\u2026']);
    useEffect(() => {
        let wanted = true;
        const timer = setTimeout(async () => {
            try {
                const answer = await store.api.post<OrderPreview>(`rebalance/${verb}`,
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
        <div role="status" class="order" data-test={`${verb}-preview`}>
            {lines.map((line) => <p key={line}>{line}</p>)}
        </div>
    );
}
