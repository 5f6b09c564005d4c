// SPDX-License-Identifier: LGPL-2.1-or-later
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { failureOf } from '../store';
import { Confirm, Failure } from './dialog';

interface Props {
    label: string;
    test: string;
    title: string;
    /** Empty: there is nothing to confirm. */
    yes: string;
    /** The subject, if the label does not contain it ("Delete" of which probe?). */
    about?: string;
    kind?: 'primary' | 'grave' | 'small' | 'plain';
    /** If not, only an action in progress is shown, until it has ended. */
    offered?: boolean;
    children: ComponentChildren;
    act: () => Promise<unknown>;
    onDone: () => void;
    /** Called with whether a question, a request or a refusal must stay visible. */
    onKeep?: (keep: boolean) => void;
}

/** A button that asks before it acts, and shows the result. */
export function Action({ label, test, title, yes, about, kind = 'plain', offered = true, children,
    act, onDone, onKeep }: Props) {
    const [open, setOpen] = useState(false);
    const [busy, setBusy] = useState(false);
    const [error, setError] = useState('');
    const keep = open || busy || error !== '';
    useEffect(() => onKeep?.(keep), [keep]);
    const turn = (on: boolean) => {
        setError('');
        setOpen(on);
    };
    const go = async () => {
        setBusy(true);
        setError('');
        try {
            await act();
            turn(false);
        } catch (thrown) {
            setError(failureOf(thrown).message);
        }
        setBusy(false);
        onDone();
    };
    if (!offered && !keep) {
        return null;
    }
    return (
        <>
            <button type="button" class={`button ${kind}`} data-test={test}
                aria-label={about ? `${label} ${about}` : undefined}
                onClick={() => turn(true)}>
                {label}
            </button>
            {open && (
                <Confirm title={title} yes={yes} grave={kind === 'grave'} busy={busy}
                    error={error} onYes={() => void go()} onNo={() => turn(false)}>
                    {children}
                </Confirm>
            )}
            {/* What was asked for is answered also when the question was left meanwhile. */}
            {!open && <Failure text={error} />}
        </>
    );
}
