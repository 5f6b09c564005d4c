// SPDX-License-Identifier: LGPL-2.1-or-later
import { countText, numberText } from '../format';
import type { Cell, Host } from './osds';

/** The same as the heat map in words and numbers, the slowest first. */
export function OsdTable({ hosts }: { hosts: Host[] }) {
    const cells = hosts.flatMap((host) => host.tiles)
        .sort((a, b) => rank(b) - rank(a) || a.osd.osd - b.osd.osd);
    return (
        <div class="scroll" role="region" aria-label="Table of OSDs" tabIndex={0}>
            <table data-test="osd-table">
                <thead>
                    <tr>
                        <th scope="col">OSD</th><th scope="col">Host</th><th scope="col">Class</th>
                        <th scope="col" class="number">Slowdown</th><th scope="col">State</th>
                        <th scope="col" class="number">Read ms</th>
                        <th scope="col" class="number">Write ms</th>
                        <th scope="col" class="number">Store ms</th>
                        <th scope="col" class="number">PGs in</th>
                        <th scope="col" class="number">PGs out</th>
                        <th scope="col">Why</th>
                    </tr>
                </thead>
                <tbody>{cells.map((cell) => <Row key={cell.osd.osd} cell={cell} />)}</tbody>
            </table>
        </div>
    );
}

function rank({ osd, state }: Cell): number {
    return (state === 'slow' ? 1000 : 0) + (osd.score ?? 0);
}

function Row({ cell: { osd, state, why } }: { cell: Cell }) {
    const words = {
        ok: 'like its peers', warm: 'slower than its peers', slow: osd.slow ? 'slow' : 'suspect',
    };
    return (
        <tr>
            <th scope="row">osd.{osd.osd}</th>
            <td class="wrap">{osd.host}</td>
            <td>{osd.device_class}</td>
            <td class="number">{numberText(osd.score)}</td>
            <td class={`state-${state}`}>
                {osd.silent_seconds !== null ? 'silent' : osd.score === null && state === 'ok'
                    ? 'not known' : words[state]}
            </td>
            <td class="number">{numberText(osd.read_ms)}</td>
            <td class="number">{numberText(osd.write_ms)}</td>
            <td class="number">{numberText(osd.store_ms)}</td>
            <td class="number">{countText(osd.pgs_in)}</td>
            <td class="number">{countText(osd.pgs_out)}</td>
            <td class="wrap">{why}</td>
        </tr>
    );
}
