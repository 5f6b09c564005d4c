// SPDX-License-Identifier: LGPL-2.1-or-later
import { useState } from 'preact/hooks';
import { failureOf } from '../store';

interface Task {
    busy: boolean;
    error: string;
    run: (act: () => Promise<void>) => Promise<void>;
}

/** Something that takes a while and may fail; the error stands until the next try. */
export function useTask(): Task {
    const [busy, setBusy] = useState(false);
    const [error, setError] = useState('');
    const run = async (act: () => Promise<void>) => {
        setBusy(true);
        setError('');
        try {
            await act();
        } catch (thrown) {
            setError(failureOf(thrown).message);
        }
        setBusy(false);
    };
    return { busy, error, run };
}
