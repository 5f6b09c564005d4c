// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import type { State, Store } from './store';
import { applyTheme, type Theme } from './theme';

export function useStore(store: Store): State {
    const [state, setState] = useState(store.state);
    useEffect(() => {
        const take = () => setState(store.state);
        take();
        return store.subscribe(take);
    }, [store]);
    return state;
}

/** The time in ms, again every so many ms. */
export function useNow(every: number): number {
    const [now, setNow] = useState(Date.now());
    useEffect(() => {
        const timer = setInterval(() => setNow(Date.now()), every);
        return () => clearInterval(timer);
    }, [every]);
    return now;
}

/** Puts the theme in force, also when the system changes its mind; true: it is dark. */
export function useDark(theme: Theme): boolean {
    const [dark, setDark] = useState(() => applyTheme(theme));
    useLayoutEffect(() => {
        const query = window.matchMedia('(prefers-color-scheme: dark)');
        const take = () => setDark(applyTheme(theme));
        take();
        query.addEventListener('change', take);
        return () => query.removeEventListener('change', take);
    }, [theme]);
    return dark;
}
