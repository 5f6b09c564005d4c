// SPDX-License-Identifier: LGPL-2.1-or-later
import { useId, useRef, useState } from 'preact/hooks';
import { bytesText, plural, secondsText } from '../format';
import { Failure } from '../parts/dialog';
import type { Store } from '../store';
import type { Osd, Pool } from '../types';
import { bodyOf, fieldsOf } from './results';
import { useTask } from './task';

interface Props {
    store: Store;
    pools: Pool[];
    osds: Osd[];
}

interface Preview {
    target: string;
    seconds: number;
    objects: number;
    stored_bytes: number;
    refusals: string[];
}

/** Starts a probe, or shows what it would do. */
export function ProbeForm({ store, pools, osds }: Props) {
    const form = useRef<HTMLFormElement>(null);
    const [preview, setPreview] = useState<Preview | null>(null);
    const [begun, setBegun] = useState('');
    const { busy, error, run } = useTask();
    const send = (dry: boolean) => run(async () => {
        setPreview(null);
        setBegun('');
        const body = bodyOf(fieldsOf(form.current!));
        if (dry) {
            setPreview(await store.api.post<Preview>('probe', { ...body, dry_run: true }));
            return;
        }
        const { id } = await store.api.post<{ id: number }>('probe', body);
        setBegun(`Probe ${id} has begun.`);
        store.refresh();
    });
    return (
        <form ref={form} class="form" data-test="probe-form" aria-label="Start a probe"
            onSubmit={(event) => { event.preventDefault(); void send(false); }}>
            <ProbeFields pools={pools} osds={osds} />
            <label>Seconds per job
                <input name="runtime" inputMode="numeric" size={5} placeholder="profile's" />
            </label>
            <label>Repetitions
                <input name="repeat" inputMode="numeric" size={5} placeholder="3" />
            </label>
            <label class="check">
                <input type="checkbox" name="during_campaign" /> also during a campaign
            </label>
            <div class="buttons">
                <button type="submit" class="button primary" data-test="probe-start" disabled={busy}>
                    {busy ? 'Waiting\u2026' : 'Start'}
                </button>
                <button type="button" class="button" data-test="probe-preview" disabled={busy}
                    onClick={() => void send(true)}>Preview</button>
            </div>
            <Failure text={error} />
            {begun && <p role="status">{begun}</p>}
            {preview && <PreviewText preview={preview} />}
        </form>
    );
}

/** The common fields of probes and schedules. */
export function ProbeFields({ pools, osds }: { pools: Pool[]; osds: Osd[] }) {
    const id = useId();
    const hosts = [...new Set(osds.map((osd) => osd.host))];
    return (
        <>
            <label>Profile
                <select name="profile">
                    <option value="quick">quick</option>
                    <option value="latency">latency</option>
                    <option value="iops">iops</option>
                    <option value="throughput">throughput</option>
                    <option value="curve">curve</option>
                </select>
            </label>
            <Suggested id={`${id}p`} label="Pool" name="pool" hint="its own pool"
                names={pools.map((pool) => pool.pool)} />
            <Suggested id={`${id}o`} label="OSDs" name="osd" hint="3,4 or all"
                names={['all', ...osds.map((osd) => `osd.${osd.osd}`)]} />
            <Suggested id={`${id}h`} label="Host" name="host" hint="any" names={hosts} />
        </>
    );
}

interface SuggestedProps {
    id: string;
    label: string;
    name: string;
    hint: string;
    names: string[];
}

function Suggested({ id, label, name, hint, names }: SuggestedProps) {
    return (
        <label>{label}
            <input name={name} list={id} placeholder={hint} autocomplete="off" />
            <datalist id={id}>{names.map((each) => <option key={each} value={each} />)}</datalist>
        </label>
    );
}

function PreviewText({ preview }: { preview: Preview }) {
    return (
        <div class="preview" role="status" data-test="probe-preview-text">
            <p>
                On {preview.target}: about {secondsText(preview.seconds)}, writes{' '}
                {plural(preview.objects, 'object')} ({bytesText(preview.stored_bytes)}), and removes
                them.
            </p>
            {preview.refusals.map((text) => <p key={text} class="state-slow">Refused: {text}</p>)}
        </div>
    );
}
