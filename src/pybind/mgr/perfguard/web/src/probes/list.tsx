// SPDX-License-Identifier: LGPL-2.1-or-later
import { NONE, secondsText, timeText } from '../format';
import { useKept } from '../kept';
import { Action } from '../parts/action';
import { Failure } from '../parts/dialog';
import type { Store } from '../store';
import type { May, ProbeSummary, RunningProbe } from '../types';
import { hasEnded } from './results';
import { useTask } from './task';

interface Props {
    store: Store;
    probes: ProbeSummary[];
    running: RunningProbe | null;
    may: May;
    /** Ids to compare, at most two. */
    marked: number[];
    onMark: (id: number, on: boolean) => void;
    onShow: (id: number, button: Element) => void;
}

export function ProbeList(props: Props) {
    const { rows, keep } = useKept(props.probes, ({ id }) => String(id), ['cancel', 'delete']);
    const newest = [...rows].reverse();
    if (!newest.length) {
        return <p class="muted">No probes yet.</p>;
    }
    return (
        <div class="scroll" role="region" aria-label="List of probes" tabIndex={0}>
            <table data-test="probes">
                <thead>
                    <tr>
                        <th scope="col">Compare</th><th scope="col">Probe</th>
                        <th scope="col">State</th><th scope="col">Profile</th>
                        <th scope="col">Measured</th><th scope="col">Verdict</th>
                        <th scope="col">Started</th><th scope="col">Took</th>
                        <th scope="col"><span class="hidden">Actions</span></th>
                    </tr>
                </thead>
                <tbody>
                    {newest.map((probe) => (
                        <Row key={probe.id} probe={probe} keep={(action) => keep(probe, action)}
                            {...props} />
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function Row({ probe, keep, running, marked, may, store, onMark, onShow }: Props & {
    probe: ProbeSummary;
    keep: (action: string) => (on: boolean) => void;
}) {
    const { id, state } = probe;
    const ended = hasEnded(probe);
    const on = marked.includes(id);
    const took = probe.started && probe.ended ? secondsText(probe.ended - probe.started) : NONE;
    return (
        <tr data-test={`probe-row-${id}`} data-state={state}>
            <td>
                <input type="checkbox" checked={on} aria-label={`Compare probe ${id}`}
                    data-test={`probe-mark-${id}`} disabled={!on && marked.length >= 2}
                    onChange={(event) => onMark(id, event.currentTarget.checked)} />
            </td>
            <th scope="row">{id}</th>
            <td>{state}{running?.id === id && <Progress running={running} />}</td>
            <td>{probe.profile || NONE}</td>
            <td class="wrap">{probe.target}</td>
            <td class={probe.verdict.startsWith('slower') ? 'state-slow' : ''}>
                {ended ? probe.verdict : ''}
                {probe.client_limited && <span class="muted"> (limited by the probe's CPU)</span>}
                {probe.message && <p class="muted wrap">{probe.message}</p>}
            </td>
            <td>{timeText(probe.started)}{probe.trigger !== 'command'
                && <span class="muted"> by {probe.trigger}</span>}</td>
            <td>{took}</td>
            <td class="row-buttons">
                <button type="button" class="button small" aria-label={`Results of probe ${id}`}
                    data-test={`probe-show-${id}`}
                    onClick={(event) => onShow(id, event.currentTarget)}>Results</button>
                <Baseline store={store} probe={probe} may={may} />
                <Action label={'Cancel\u2026'} about={`probe ${id}`} kind="small"
                    offered={!ended && may.update} onKeep={keep('cancel')}
                    test={`probe-cancel-${id}`} title={`Cancel probe ${id}?`}
                    yes="Cancel the probe" onDone={() => store.refresh()}
                    act={() => store.api.post(`probe/${id}/cancel`)}>
                    <p>Stops the probe and removes its objects.</p>
                </Action>
                <Action label={'Delete\u2026'} about={`probe ${id}`} kind="small"
                    offered={ended && may.delete} onKeep={keep('delete')}
                    test={`probe-delete-${id}`} title={`Delete probe ${id}?`} yes="Delete"
                    onDone={() => store.refresh()}
                    act={() => store.api.remove(`probe/${id}`)}>
                    <p>Removes the probe and its results.</p>
                </Action>
            </td>
        </tr>
    );
}

function Progress({ running }: { running: RunningProbe }) {
    return (
        <div class="running" data-test="probe-progress">
            <progress max={1} value={running.share} aria-label={`Progress of probe ${running.id}`} />
            <p class="muted wrap">{running.text}</p>
        </div>
    );
}

function Baseline({ store, probe, may }: { store: Store; probe: ProbeSummary; may: May }) {
    const { busy, error, run } = useTask();
    const { id } = probe;
    if (!may.update || (!probe.baseline && probe.state !== 'done')) {
        return probe.baseline ? <span class="tag">baseline</span> : null;
    }
    const turn = () => run(async () => {
        await store.api.post('baseline', { run: id, rm: probe.baseline });
        store.refresh();
    });
    return (
        <>
            <button type="button" class={`button small ${probe.baseline ? 'pressed' : ''}`}
                aria-pressed={probe.baseline} aria-label={`Probe ${id} is a baseline`}
                data-test={`probe-baseline-${id}`} disabled={busy} onClick={() => void turn()}>
                Baseline
            </button>
            <Failure text={error} />
        </>
    );
}
