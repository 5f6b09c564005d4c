// SPDX-License-Identifier: LGPL-2.1-or-later
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { giveBack } from '../focus';

interface Props {
    title: string;
    yes: string;
    grave?: boolean;
    busy?: boolean;
    error?: string;
    children: ComponentChildren;
    onYes: () => void;
    onNo: () => void;
}

/** Shows what will happen and asks. Escape means no; the browser keeps the focus inside.
 *
 * A browser may close a dialog without asking first, as with the second Escape: that means no too.
 */
export function Confirm({ title, yes, grave, busy, error, children, onYes, onNo }: Props) {
    const dialog = useRef<HTMLDialogElement>(null);
    const id = useId();
    useEffect(() => {
        const before = document.activeElement;
        dialog.current?.showModal();
        return () => giveBack(before);
    }, []);
    return (
        <dialog ref={dialog} class="dialog" aria-labelledby={`${id}t`} aria-describedby={`${id}d`}
            data-test="dialog" onClose={onNo}
            onCancel={(event) => { event.preventDefault(); onNo(); }}>
            <h2 id={`${id}t`}>{title}</h2>
            <div id={`${id}d`} class="dialog-text">{children}</div>
            <Failure text={error} />
            <div class="dialog-buttons">
                <button type="button" class="button" data-test="confirm-no" onClick={onNo}>
                    {yes ? 'Cancel' : 'Close'}
                </button>
                {yes && (
                    <button type="button" class={`button ${grave ? 'grave' : 'primary'}`}
                        data-test="confirm-yes" disabled={busy} aria-busy={busy} onClick={onYes}>
                        {busy ? 'Sending\u2026' : yes}
                    </button>
                )}
            </div>
        </dialog>
    );
}

/** The reason of a refusal by the API. */
export function Failure({ text }: { text: string | undefined }) {
    return text ? <p class="error" role="alert" data-test="error">{text}</p> : null;
}
