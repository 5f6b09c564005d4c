// SPDX-License-Identifier: LGPL-2.1-or-later
import { numberText } from '../format';
import { lastOf } from '../model';
import type { Pool, PoolTable, Value } from '../types';

interface Props {
    pools: Pool[];
    tables: Record<string, PoolTable>;
    /** By the mgr's clock, in seconds. */
    now: number;
}

/** What the charts end with, as a table; of all pools, also those that are not charted. */
export function LastValues({ pools, tables, now }: Props) {
    return (
        <details class="values-table">
            <summary>Last values of all pools</summary>
            <div class="card scroll" role="region"
                aria-label="Last values of all pools" tabIndex={0}>
                <table data-test="pool-table">
                    <thead>
                        <tr>
                            <th scope="col">Pool</th>
                            {['read', 'write'].flatMap((kind) => [
                                `${kind}s per second`, `${kind} mean ms`, `${kind} limit ms`,
                                `${kind} p50 ms`, `${kind} p99 ms`].map((name) => (
                                <th key={name} scope="col" class="number">{name}</th>
                            )))}
                        </tr>
                    </thead>
                    <tbody>
                        {pools.map((pool) => (
                            <Row key={pool.id} pool={pool} table={tables[String(pool.id)]} now={now} />
                        ))}
                    </tbody>
                </table>
            </div>
        </details>
    );
}

function Row({ pool, table, now }: { pool: Pool; table: PoolTable | undefined; now: number }) {
    const last = (name: string): Value => (table ? lastOf(table, name, now) : null);
    return (
        <tr>
            <th scope="row" class="wrap">{pool.pool}</th>
            {(['read', 'write'] as const).flatMap((kind) => {
                const ms = pool[`${kind}_ms`];
                const slow = pool.slow.includes(`${kind}s`);
                return [
                    <Number key={`${kind}r`} value={pool[`${kind}_rate`]} />,
                    <Number key={`${kind}m`} value={ms} slow={slow} />,
                    <Number key={`${kind}t`} value={pool[`${kind}_target_ms`]} />,
                    <Number key={`${kind}5`} value={last(`${kind}_p50_ms`)} />,
                    <Number key={`${kind}9`} value={last(`${kind}_p99_ms`)} />];
            })}
        </tr>
    );
}

function Number({ value, slow = false }: { value: Value; slow?: boolean }) {
    return (
        <td class={slow ? 'number state-slow' : 'number'}>
            {numberText(value)}{slow && ' (slow)'}
        </td>
    );
}
