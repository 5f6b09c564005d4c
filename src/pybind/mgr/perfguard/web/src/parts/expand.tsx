// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import {
    bodyOf, type CrushVerb, fillRows, mapText, type OrderPreview, previewLines,
} from '../orders';
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
    replace: {
        label: 'Replace\u2026', title: 'Replace the devices of OSDs or hosts?', yes: 'Replace',
        kind: 'plain', field: 'OSDs or hosts', placeholder: 'osd.7',
    },
    crushmap: {
        label: 'CRUSH map\u2026', title: 'Set a new CRUSH map?', yes: 'Set', kind: 'plain',
        field: 'CRUSH map, as text or compiled', placeholder: '',
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

/** Changes CRUSH, after it has shown what that will move. */
export function CrushOrder({ store, verb, onKeep }: Props) {
    const [given, setGiven] = useState('');
    const words = WORDS[verb];
    const body = bodyOf(verb, given);
    return (
        <Action label={words.label} test={`button-${verb}`} kind={words.kind}
            title={words.title} yes={words.yes} onKeep={onKeep}
            onDone={() => store.refresh()}
            act={() => store.api.post(verb, body ?? {})}>
            <label>{words.field}{' '}
                {verb === 'crushmap' ? (
                    <MapFile onChosen={setGiven} />
                ) : (
                    <input value={given} placeholder={words.placeholder}
                        size={verb === 'expand' ? 10 : 24}
                        inputMode={verb === 'expand' ? 'decimal' : 'text'}
                        data-test={verb === 'expand' ? 'expand-weight' : `${verb}-what`}
                        onInput={(event) => setGiven(event.currentTarget.value)} />
                )}
            </label>
            {body && <Preview store={store} verb={verb} body={body} key={given} />}
        </Action>
    );
}

/** A CRUSH map is read again each time it is chosen, as it may have been edited meanwhile. */
function MapFile({ onChosen }: { onChosen: (text: string) => void }) {
    useEffect(() => onChosen(''), []);
    return (
        <input type="file" data-test="crushmap-what"
            onClick={(event) => {
                // Browsers do not report that the same file was chosen again.
                event.currentTarget.value = '';
                onChosen('');
            }}
            onChange={(event) => void read(event.currentTarget.files?.[0]).then(onChosen)} />
    );
}

/** Nothing where the file cannot be read. */
async function read(file: File | undefined): Promise<string> {
    try {
        return file ? mapText(new Uint8Array(await file.arrayBuffer())) : '';
    } catch {
        return '';
    }
}

interface PreviewProps {
    store: Store;
    verb: CrushVerb;
    body: object;
}

/** Asks a moment after the last key: each preview is work for perfguard. */
function Preview({ store, verb, body }: PreviewProps) {
    const [preview, setPreview] = useState<OrderPreview | string>('Loading the preview\u2026');
    useEffect(() => {
        let wanted = true;
        const timer = setTimeout(async () => {
            try {
                const answer = await store.api.post<OrderPreview>(verb,
                    { ...body, dry_run: true });
                if (wanted) {
                    setPreview(answer);
                }
            } catch (error) {
                if (wanted) {
                    setPreview(failureOf(error).message);
                }
            }
        }, 400);
        return () => {
            wanted = false;
            clearTimeout(timer);
        };
    }, []);
    return <OrderText preview={preview} test={`${verb}-preview`} />;
}

/** `preview`: or a text in its place. */
export function OrderText({ preview, test }: { preview: OrderPreview | string; test: string }) {
    const lines = typeof preview === 'string' ? [preview] : previewLines(preview);
    const fills = typeof preview === 'string' ? [] : fillRows(preview.osds ?? []);
    return (
        <div role="status" class="order" data-test={test}>
            {lines.map((line) => <p key={line}>{line}</p>)}
            {fills.length > 0 && <Fills rows={fills} />}
        </div>
    );
}

function Fills({ rows }: { rows: string[][] }) {
    const columns = ['PGs before', 'after', 'fill before', 'after'];
    return (
        <details data-test="fills">
            <summary>Fill of each OSD</summary>
            <div class="scroll" role="region" aria-label="Fill of each OSD" tabIndex={0}>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">OSD</th>
                            {columns.map((name, place) => (
                                <th key={place} scope="col" class="number">{name}</th>
                            ))}
                        </tr>
                    </thead>
                    <tbody>
                        {rows.map(([osd, ...values]) => (
                            <tr key={osd}>
                                <th scope="row">{osd}</th>
                                {values.map((value, place) => (
                                    <td key={place} class="number">{value}</td>
                                ))}
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </details>
    );
}
