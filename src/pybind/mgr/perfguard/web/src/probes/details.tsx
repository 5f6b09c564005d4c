// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useRef } from 'preact/hooks';
import { bytesText, countText, NONE, numberText } from '../format';
import type { ProbeDetails } from '../types';
import { Charts } from './measured';
import { hasEnded, rowsOf, type ResultRow } from './results';

const MOST_ROWS = 200;

/** What one probe has measured. */
export function Details({ details, onClose }: {
    details: ProbeDetails;
    onClose: () => void;
}) {
    const title = useRef<HTMLHeadingElement>(null);
    useEffect(() => title.current?.focus(), [details.id]);
    const rows = rowsOf(details.jobs);
    const osds = rows.some((row) => row.osd !== null);
    return (
        <div class="panel" data-test="probe-details">
            <div class="section-head">
                <h3 ref={title} tabIndex={-1}>
                    Probe {details.id}: {details.target},{' '}
                    {hasEnded(details) ? details.verdict : details.state}
                </h3>
                <button type="button" class="button small right" onClick={onClose}>Close</button>
            </div>
            <Texts details={details} />
            <Charts details={details} />
            {rows.length === 0 ? <p class="muted">No measurements{hasEnded(details) ? '' : ' yet'}.</p> : (
                <div class="scroll" role="region" aria-label="Results" tabIndex={0}>
                    <table>
                        <thead>
                            <tr>
                                <th scope="col">Job</th>
                                {osds && <th scope="col">OSD</th>}
                                <th scope="col">Direction</th>
                                <th scope="col" class="number">Operations per second</th>
                                <th scope="col" class="number">Bytes per second</th>
                                <th scope="col" class="number">Mean ms</th>
                                <th scope="col" class="number">p50 ms</th>
                                <th scope="col" class="number">p99 ms</th>
                                <th scope="col" class="number">Errors</th>
                            </tr>
                        </thead>
                        <tbody>
                            {rows.slice(0, MOST_ROWS).map((row, place) => (
                                <Row key={place} row={row} osds={osds} />
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
            {rows.length > MOST_ROWS && (
                <p class="muted">and {countText(rows.length - MOST_ROWS)} more: "ceph perfguard probe
                    show {details.id}" lists all</p>
            )}
        </div>
    );
}

function Texts({ details }: { details: ProbeDetails }) {
    const texts = [...details.findings, ...details.messages,
        ...details.conditions.map((text) => `disturbed by ${text}`)];
    return texts.length === 0 ? null : (
        <ul class="reasons">{texts.map((text) => <li key={text}>{text}</li>)}</ul>
    );
}

function Row({ row, osds }: { row: ResultRow; osds: boolean }) {
    return (
        <tr>
            <th scope="row">{row.job}{row.part && ` (${row.part})`}</th>
            {osds && <td>{row.osd === null ? NONE : `osd.${row.osd}`}</td>}
            <td>{row.direction}</td>
            <td class="number">{numberText(row.iops)}</td>
            <td class="number">{bytesText(row.bytesPerSecond)}</td>
            <td class="number">{numberText(row.meanMs)}</td>
            <td class="number">{numberText(row.p50Ms)}</td>
            <td class="number">{numberText(row.p99Ms)}</td>
            <td class={`number ${row.errors ? 'state-slow' : ''}`}>{countText(row.errors)}</td>
        </tr>
    );
}
