// SPDX-License-Identifier: LGPL-2.1-or-later
// The theme (light, dark, or that of the system), and other remembered choices.

export type Theme = 'auto' | 'light' | 'dark';

const THEME = 'perfguard-theme';

/** Storage may be forbidden, then nothing is remembered. */
export function recall(key: string): string | null {
    try {
        return window.localStorage.getItem(key);
    } catch {
        return null;
    }
}

export function remember(key: string, value: string): void {
    try {
        window.localStorage.setItem(key, value);
    } catch {
        // It holds until the page is closed.
    }
}

export function storedTheme(): Theme {
    const found = recall(THEME);
    return found === 'light' || found === 'dark' ? found : 'auto';
}

/** Put it in force; true: it is dark. */
export function applyTheme(theme: Theme): boolean {
    const dark = theme === 'dark'
        || (theme === 'auto' && window.matchMedia('(prefers-color-scheme: dark)').matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    return dark;
}

export function storeTheme(theme: Theme): void {
    remember(THEME, theme);
}

/** Of the stylesheet, as it is in force now. */
export function color(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
