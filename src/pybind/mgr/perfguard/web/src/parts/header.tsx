// SPDX-License-Identifier: LGPL-2.1-or-later
import { clockText, zoneText } from '../format';
import type { State, Store } from '../store';
import { storeTheme, type Theme } from '../theme';

interface Props {
    store: Store;
    state: State;
    theme: Theme;
    onTheme: (theme: Theme) => void;
}

const NEXT: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' };
const NAMES: Record<Theme, string> = { auto: 'Auto', light: 'Light', dark: 'Dark' };

export function Header({ store, state, theme, onTheme }: Props) {
    const last = state.model.last;
    const turn = () => {
        storeTheme(NEXT[theme]);
        onTheme(NEXT[theme]);
    };
    return (
        <header class="top">
            <h1>perfguard</h1>
            {last && (
                <ul class="top-facts">
                    {last.fsid && <li title={last.fsid}>cluster <b>{last.fsid.slice(0, 8)}</b></li>}
                    <li>mgr <b>{last.name}</b></li>
                    <li>mitigation <b data-test="mode">{last.status.mode}</b></li>
                    <li>at <b data-test="updated">{clockText(last.now)}</b>{' '}
                        {zoneText(last.now)}</li>
                </ul>
            )}
            <nav aria-label="Dashboard">
                <a class="button small" href={`${store.api.prefix}/`}>Ceph dashboard</a>
            </nav>
            <button type="button" class="button small" data-test="theme-toggle" onClick={turn}
                aria-label={`Colours: ${NAMES[theme]}. Change to ${NAMES[NEXT[theme]]}`}>
                {NAMES[theme]}
            </button>
        </header>
    );
}
