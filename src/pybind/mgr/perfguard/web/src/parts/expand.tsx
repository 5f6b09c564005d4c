// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import {
    bodyOf, type ChangeVerb, CHECKED, fillRows, isSupposition, type Loss, mapText, type OrderPreview,
    type Previewed, previewLines, previewOf, type Supposition,
} from '../orders';
import { failureOf, type Store } from '../store';
import { Action } from './action';

interface FieldWords {
    name: string;
    label: string;
    placeholder?: string;
    size?: number;
    /** The only values; the first is the default. */
    choices?: string[];
    kind?: 'text' | 'decimal' | 'box' | 'file';
}

interface Words {
    label: string;
    title: string;
    /** Empty for what is only previewed. */
    yes: string;
    fields: FieldWords[];
    kind?: 'primary' | 'plain';
}

const WHAT: FieldWords = { name: 'what', label: 'OSDs, hosts or racks', placeholder: 'host3 osd.7' };
const WORDS: Record<ChangeVerb | Supposition, Words> = {
    expand: {
        label: 'Expand\u2026', title: 'Expand to new OSDs?', yes: 'Expand', kind: 'primary',
        fields: [
            { ...WHAT, placeholder: 'all new ones' },
            { name: 'weight', label: 'CRUSH weight of each OSD', placeholder: 'its size', size: 10,
                kind: 'decimal' },
            { ...WHAT, name: 'drain', label: 'OSDs, hosts or racks to drain' },
            { name: 'awaited', label: 'The OSDs that boot from now on', kind: 'box' }],
    },
    drain: {
        label: 'Drain\u2026', title: 'Empty OSDs, hosts or racks?', yes: 'Drain', fields: [WHAT],
    },
    undrain: {
        label: 'Undrain\u2026', title: 'Fill drained OSDs, hosts or racks again?', yes: 'Undrain',
        fields: [WHAT],
    },
    replace: {
        label: 'Replace\u2026', title: 'Replace the devices of OSDs or hosts?', yes: 'Replace',
        fields: [{ ...WHAT, label: 'OSDs or hosts', placeholder: 'osd.7' }],
    },
    balance: {
        label: 'Balance\u2026', title: 'Move PGs until each OSD has its share?', yes: 'Balance',
        fields: [
            { name: 'what', label: 'Pools, device classes or CRUSH roots', placeholder: 'all pools' },
            { name: 'by', label: 'By', choices: ['pgs', 'bytes'] },
            { name: 'deviation', label: 'Deviation in PGs', placeholder: '1', size: 6,
                kind: 'decimal' },
            { name: 'max_movement', label: 'Maximum movement', placeholder: '5%', size: 6 }],
    },
    rule: {
        label: 'Rule\u2026', title: 'Give a pool another CRUSH rule?', yes: 'Change the rule',
        fields: [{ name: 'pool', label: 'Pool' }, { name: 'rule', label: 'CRUSH rule' }],
    },
    pg_num: {
        label: 'pg_num\u2026', title: 'Split or merge the PGs of a pool?', yes: 'Change pg_num',
        fields: [
            { name: 'pool', label: 'Pool' },
            { name: 'pg_num', label: 'Number of PGs', size: 10, kind: 'decimal' }],
    },
    crushmap: {
        label: 'CRUSH map\u2026', title: 'Set a new CRUSH map?', yes: 'Set',
        fields: [{ name: 'crush_map', label: 'CRUSH map, as text or compiled', kind: 'file' }],
    },
    grow: {
        label: 'New hosts\u2026', title: 'What would new hosts add?', yes: '',
        fields: [
            { name: 'what_if', label: 'Hosts \u00d7 OSDs of each \u00d7 size', placeholder: '4x12x16T',
                size: 14 },
            { name: 'under', label: 'Below the CRUSH buckets', placeholder: 'those of the others' },
            { name: 'device_class', label: 'Device class', placeholder: 'that of the others',
                size: 16 }],
    },
    lose: {
        label: 'Loss\u2026', title: 'What would be lost with OSDs, hosts or racks?', yes: '', fields: [WHAT],
    },
};

interface Props {
    store: Store;
    verb: ChangeVerb | Supposition;
    onKeep: (keep: boolean) => void;
}

/** Begins a change, after it has shown what that will move, or only shows it. */
export function ChangeOrder({ store, verb, onKeep }: Props) {
    const [given, setGiven] = useState<Record<string, string>>({});
    const words = WORDS[verb];
    const body = bodyOf(verb, given);
    // What was filled in is forgotten with the question.
    const keep = (on: boolean) => {
        if (!on) {
            setGiven({});
        }
        onKeep(on);
    };
    return (
        <Action label={words.label} test={`${isSupposition(verb) ? 'ask' : 'button'}-${verb}`}
            kind={words.kind ?? 'plain'} title={words.title} yes={words.yes} onKeep={keep}
            onDone={() => store.refresh()}
            act={() => store.api.post(verb, body ?? {})}>
            {words.fields.map((field) => (
                <Input key={field.name} field={field} test={`${verb}-${field.name}`}
                    value={given[field.name] ?? ''}
                    onGiven={(text) => setGiven((now) => ({ ...now, [field.name]: text }))} />
            ))}
            {body && <Preview store={store} verb={verb} body={body} key={JSON.stringify(body)} />}
        </Action>
    );
}

interface InputProps {
    field: FieldWords;
    test: string;
    value: string;
    onGiven: (text: string) => void;
}

function Input({ field, test, value, onGiven }: InputProps) {
    const { label, placeholder, size = 24, choices, kind = 'text' } = field;
    if (kind === 'box') {
        return (
            <label class="check">
                <input type="checkbox" checked={value === CHECKED} data-test={test}
                    onChange={(event) => onGiven(event.currentTarget.checked ? CHECKED : '')} />
                {' '}{label}
            </label>
        );
    }
    return (
        <label>{label}{' '}
            {kind === 'file' ? <MapFile onChosen={onGiven} />
                : choices ? (
                    <select value={value} data-test={test}
                        onChange={(event) => onGiven(event.currentTarget.value)}>
                        {choices.map((choice) => <option key={choice}>{choice}</option>)}
                    </select>
                ) : (
                    <input value={value} placeholder={placeholder} size={size} inputMode={kind}
                        data-test={test}
                        onInput={(event) => onGiven(event.currentTarget.value)} />
                )}
        </label>
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
    verb: Previewed;
    body: object;
}

/** Asks a moment after the last key: each preview is work for perfguard. */
export function Preview({ store, verb, body }: PreviewProps) {
    const [preview, setPreview] = useState<OrderPreview | Loss | string>('Loading the preview\u2026');
    useEffect(() => {
        let wanted = true;
        const timer = setTimeout(async () => {
            try {
                const answer = await store.api.post<OrderPreview | Loss>(
                    ...previewOf(verb, body));
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
export function OrderText({ preview, test }:
    { preview: OrderPreview | Loss | string; test: string }) {
    const lines = typeof preview === 'string' ? [preview] : previewLines(preview);
    const fills = typeof preview === 'string' || 'moved_bytes' in preview ? []
        : fillRows(preview.osds ?? []);
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
