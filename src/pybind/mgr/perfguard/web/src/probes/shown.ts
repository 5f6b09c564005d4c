// SPDX-License-Identifier: LGPL-2.1-or-later
// What a button of a probe has opened.
import { useEffect, useRef, useState } from 'preact/hooks';
import { giveBack } from '../focus';
import type { Store } from '../store';
import type { Overview, ProbeDetails } from '../types';
import { growing } from './results';

interface Shown<T> {
    value: T | null;
    open: (value: T, button: Element) => void;
    /** The same, as it is now. */
    change: (change: (old: T | null) => T | null) => void;
    close: () => void;
}

/** Something that gives the focus back to its button when it is closed. */
export function useShown<T extends object>(): Shown<T> {
    const [value, change] = useState<T | null>(null);
    const opener = useRef<Element | null>(null);
    return {
        value, change,
        open: (opened, button) => {
            opener.current = button;
            change(opened);
        },
        close: () => {
            change(null);
            giveBack(opener.current);
        },
    };
}

/** Results of an active probe are asked for again with each overview. */
export function useGrowing(store: Store, overview: Overview, shown: Shown<ProbeDetails>): void {
    const asking = useRef(false);
    const { value, change } = shown;
    useEffect(() => {
        if (asking.current || !value || !growing(value, overview.probe.probes)) {
            return;
        }
        asking.current = true;
        store.api.get<ProbeDetails>(`probe/${value.id}`)
            .then((newer) => change((old) => (old?.id === newer.id ? newer : old)))
            // The next overview asks again, or the banner says why there is none.
            .catch(() => undefined)
            .finally(() => { asking.current = false; });
    }, [overview.now]);
}
