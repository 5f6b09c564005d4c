// SPDX-License-Identifier: LGPL-2.1-or-later
// Rows with an open question, or a refusal that was not read yet, stay.
import { useRef, useState } from 'preact/hooks';

/** The names of what is kept, with this one or without it. */
export function turned<T>(kept: T[], name: T, on: boolean): T[] {
    return kept.includes(name) === on ? kept
        : on ? [...kept, name] : kept.filter((each) => each !== name);
}

/** What is listed, and what was shown before and has to stay, at its old place: a dialog does not
 * survive that its row is moved. */
export function withKept<T>(shown: T[], listed: T[], keyOf: (each: T) => string,
    stays: (each: T) => boolean): T[] {
    const found = [...listed];
    let place = 0;
    for (const each of shown) {
        const at = found.findIndex((other) => keyOf(other) === keyOf(each));
        if (at >= 0) {
            place = at + 1;
        } else if (stays(each)) {
            found.splice(place, 0, each);
            place += 1;
        }
    }
    return found;
}

interface Kept<T> {
    rows: T[];
    /** For the action of this name in a row: whether the row has to stay because of it. */
    keep: (each: T, action: string) => (on: boolean) => void;
}

/** The rows of a list that is reported again and again. */
export function useKept<T>(listed: T[], keyOf: (each: T) => string, actions: string[]): Kept<T> {
    const [kept, setKept] = useState<string[]>([]);
    const shown = useRef<T[]>([]);
    const nameOf = (each: T, action: string) => `${action} ${keyOf(each)}`;
    shown.current = withKept(shown.current, listed, keyOf,
        (each) => actions.some((action) => kept.includes(nameOf(each, action))));
    return {
        rows: shown.current,
        keep: (each, action) => (on) => setKept((now) => turned(now, nameOf(each, action), on)),
    };
}
