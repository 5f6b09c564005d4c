// SPDX-License-Identifier: LGPL-2.1-or-later

/** The focus, to what had it before; that may have gone with the phase it was for. */
export function giveBack(before: Element | null): void {
    setTimeout(() => {
        const there = before?.isConnected && !before.matches(':disabled') ? before
            : document.getElementById('main');
        (there as HTMLElement | null)?.focus();
    });
}
