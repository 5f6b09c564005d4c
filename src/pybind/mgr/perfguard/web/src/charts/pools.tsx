// SPDX-License-Identifier: LGPL-2.1-or-later
import { useRef } from 'preact/hooks';
import { numberText, plural } from '../format';
import type { Pool } from '../types';

export const MOST_POOLS = 4;

interface Props {
    pools: Pool[];
    /** Ids; empty: the busiest. */
    chosen: number[];
    shown: number[];
    onChoose: (ids: number[]) => void;
}

/** Which pools are charted: the busiest one, or up to four chosen ones. */
export function PoolChoice({ pools, chosen, shown, onChoose }: Props) {
    const box = useRef<HTMLDetailsElement>(null);
    const marked = chosen.length ? chosen : shown;
    const toggle = (id: number, on: boolean) => {
        const ids = on ? [...marked, id] : marked.filter((each) => each !== id);
        onChoose(ids.slice(0, MOST_POOLS));
    };
    const close = (event: KeyboardEvent) => {
        if (event.key === 'Escape' && box.current?.open) {
            box.current.open = false;
            box.current.querySelector('summary')?.focus();
        }
    };
    return (
        <details ref={box} class="choice" data-test="pool-choice" onKeyDown={close}>
            <summary class="button small">
                {chosen.length ? plural(chosen.length, 'chosen pool') : 'The busiest pool'}
            </summary>
            <fieldset class="choice-list">
                <legend>Up to {MOST_POOLS} pools</legend>
                <button type="button" class="button small" disabled={!chosen.length}
                    onClick={() => onChoose([])}>The busiest</button>
                {pools.map((pool) => (
                    <label key={pool.id} class="check" title={pool.pool}>
                        <input type="checkbox" checked={marked.includes(pool.id)}
                            disabled={!marked.includes(pool.id) && marked.length >= MOST_POOLS}
                            onChange={(event) => toggle(pool.id, event.currentTarget.checked)} />
                        <span class="name">{pool.pool}</span>
                        <span class="muted">{numberText(pool.read_rate + pool.write_rate)}/s</span>
                    </label>
                ))}
            </fieldset>
        </details>
    );
}
