// SPDX-License-Identifier: LGPL-2.1-or-later
// Saved plans, and their approval after a look at what they do.
import { useEffect, useRef, useState } from 'preact/hooks';
import { bytesText, countText, NONE, secondsText, timeText } from '../format';
import { useKept } from '../kept';
import { type OrderPreview } from '../orders';
import { failureOf, type Store } from '../store';
import type { SavedPlan } from '../types';
import { Action } from './action';
import { Asked } from './asked';
import { OrderText } from './expand';

interface Props {
    store: Store;
    may: boolean;
}

export function Plans({ store, may }: Props) {
    return (
        <Asked<{ plans: SavedPlan[] }> store={store} title="Saved plans" test="plans"
            path="plan">
            {({ plans }) => <PlanTable store={store} may={may} plans={plans} />}
        </Asked>
    );
}

function PlanTable({ store, may, plans }: Props & { plans: SavedPlan[] }) {
    const { rows, keep } = useKept(plans, ({ plan }) => plan, ['approve']);
    if (!rows.length) {
        return (
            <p class="muted">No plan is saved; <code>ceph perfguard plan save</code>
                {' '}saves one.</p>
        );
    }
    return (
        <div class="scroll" role="region" aria-label="Saved plans" tabIndex={0}>
            <table>
                <thead>
                    <tr>
                        <th scope="col">plan</th><th scope="col">saved</th>
                        <th scope="col">change</th><th scope="col" class="number">PGs</th>
                        <th scope="col" class="number">bytes</th><th scope="col">time</th>
                        <th scope="col">accepted</th><th scope="col">state</th>
                        {may && <th scope="col">action</th>}
                    </tr>
                </thead>
                <tbody>
                    {rows.map((row) => (
                        <tr key={row.plan} data-test={`plan-${row.plan}`}>
                            <th scope="row" class="wrap">{row.plan}</th>
                            <td>{timeText(row.saved)}</td>
                            <td class="wrap">{row.change}</td>
                            <td class="number">{countText(row.pgs)}</td>
                            <td class="number">{bytesText(row.bytes)}</td>
                            <td>{secondsText(row.eta_seconds)}</td>
                            <td class="wrap">{row.accepted.join(', ') || NONE}</td>
                            <td class="wrap">{[row.state, row.refused, ...row.changed]
                                .filter(Boolean).join('; ')}</td>
                            {may && (
                                <td><Approve store={store} row={row} onKeep={keep(row, 'approve')} /></td>
                            )}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

interface ApproveProps {
    store: Store;
    row: SavedPlan;
    onKeep: (keep: boolean) => void;
}

function Approve({ store, row: { plan, state, token }, onKeep }: ApproveProps) {
    const path = `plan/${encodeURIComponent(plan)}`;
    // Of the plan that was looked at: another one of this name may be saved meanwhile.
    const shown = useRef(token);
    return (
        <Action label={'Approve\u2026'} about={plan} test={`button-approve-${plan}`} kind="small"
            title={`Carry out plan ${plan}?`} yes="Approve" offered={state === 'ready'}
            onKeep={onKeep}
            act={() => store.api.post(`${path}/approve`, { token: shown.current })}
            onDone={() => store.refresh()}>
            <p>It begins now, or after the active campaign, unless the cluster has changed by then.</p>
            <PlanText store={store} path={path} onShown={(seen) => { shown.current = seen; }} />
        </Action>
    );
}

/** What the plan does, as it was saved. */
function PlanText({ store, path, onShown }:
    { store: Store; path: string; onShown: (token: string) => void }) {
    const [preview, setPreview] = useState<OrderPreview | string>('Loading the plan\u2026');
    const [accepted, setAccepted] = useState('');
    useEffect(() => {
        let shown = true;
        store.api.get<SavedPlan & { preview: OrderPreview }>(path).then((plan) => {
            onShown(plan.token);
            setAccepted(plan.accepted.join(', '));
            return plan.preview;
        }, (error: unknown) => failureOf(error).message)
            .then((found) => { if (shown) { setPreview(found); } });
        return () => { shown = false; };
    }, []);
    return (
        <>
            {accepted && <p data-test="plan-accepted">Accepted risks: {accepted}</p>}
            <OrderText preview={preview} test="plan-preview" />
        </>
    );
}
