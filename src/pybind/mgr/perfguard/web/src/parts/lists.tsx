// SPDX-License-Identifier: LGPL-2.1-or-later
// Events, mitigations, laggy PGs with their suspects, and what pools use of what they serve.
import { percentText, plural, secondsText, shownText, timeText } from '../format';
import { useKept } from '../kept';
import type { Store } from '../store';
import type { CapacityRow, Event, Laggy, Mitigation, Rung } from '../types';
import { Action } from './action';

const MOST = 100;
const MOST_PGS = 20;

export function Events({ events }: { events: Event[] }) {
    const newest = events.slice(-MOST).reverse();
    return (
        <section class="card" aria-labelledby="events-title">
            <div class="section-head"><h2 id="events-title">Events</h2></div>
            {newest.length === 0 && <p class="muted">No events yet.</p>}
            <div class="scroll" role="region" aria-label="List of events" tabIndex={0}>
                <ol class="events" data-test="events">
                    {newest.map((event) => (
                        <li key={`${event.id} ${event.time}`}>
                            <time class="muted">{timeText(event.time)}</time>
                            <span class="kind">{event.kind}</span>
                            <span>{event.what}
                                {event.why && <span class="muted">{` \u2014 ${event.why}`}</span>}
                            </span>
                        </li>
                    ))}
                </ol>
            </div>
        </section>
    );
}

/** As in the table of "mitigation ls". */
const STATES: Record<string, string> = {
    held: 'in force', would: 'not taken (mode observe)', idle: 'not needed',
    undoing: 'being undone',
};

interface MitigationProps {
    store: Store;
    mitigation: Mitigation;
    may: boolean;
}

/** Rungs that nothing was done on have no id, and are listed once. */
function keyOf({ id, rung }: Rung): string {
    return String(id ?? rung);
}

export function Mitigations({ store, mitigation, may }: MitigationProps) {
    const { rows, keep } = useKept(mitigation.rungs, keyOf, ['revert']);
    return (
        <section class="card" aria-labelledby="mitigation-title">
            <div class="section-head">
                <h2 id="mitigation-title">Mitigation</h2>
                <span class="muted">mode: {mitigation.mode}</span>
            </div>
            <ul class="rungs" data-test="mitigation">
                {rows.map((rung) => (
                    <li key={keyOf(rung)} data-state={rung.state}>
                        <span class={`dot ${rung.state}`} aria-hidden="true" />
                        <div class="rung">
                            <b>{rung.rung}</b> {rung.subject}{' '}
                            <span class="muted">{STATES[rung.state] ?? rung.state}
                                {rung.since ? ` since ${timeText(rung.since)}` : ''}</span>
                            {rung.why && <p>{rung.why}</p>}
                            <Settings rung={rung} />
                        </div>
                        {rung.id !== null && (
                            <Revert store={store} rung={rung} id={rung.id}
                                offered={may && rung.state === 'held'}
                                onKeep={keep(rung, 'revert')} />
                        )}
                    </li>
                ))}
            </ul>
        </section>
    );
}

function Settings({ rung }: { rung: Rung }) {
    return (
        <>
            {rung.settings.map((each) => (
                <p key={`${each.what} ${each.who}`} class="muted">
                    {each.what}{each.who && ` of ${each.who}`}: {each.found ?? 'not set'}
                    {' \u2192 '}{each.put}
                </p>
            ))}
            {rung.note && <p class="muted">{rung.note}</p>}
        </>
    );
}

interface RevertProps {
    store: Store;
    rung: Rung;
    id: number;
    offered: boolean;
    onKeep: (keep: boolean) => void;
}

function Revert({ store, rung, id, offered, onKeep }: RevertProps) {
    return (
        <Action label={'Revert\u2026'} about={rung.rung} test={`button-revert-${id}`} kind="small"
            title={`Undo "${rung.rung}"?`} yes="Undo" offered={offered} onKeep={onKeep}
            onDone={() => store.refresh()}
            act={() => store.api.post(`mitigation/${id}/revert`)}>
            <p>Gives back its settings. It is not repeated until its cause has cleared.</p>
            {rung.why && <p>Reason: {rung.why}</p>}
        </Action>
    );
}

/** Only while there is something to say. */
export function LaggyPgs({ laggy }: { laggy: Laggy }) {
    if (!laggy.laggy_pgs && !laggy.wait_pgs && !laggy.suspects.length) {
        return null;
    }
    const shown = laggy.pgs.slice(0, MOST_PGS);
    return (
        <section class="card laggy" aria-labelledby="laggy-title" data-test="laggy">
            <div class="section-head">
                <h2 id="laggy-title">Laggy PGs</h2>
                <span class="state-slow">{plural(laggy.laggy_pgs, 'laggy PG')}
                    {laggy.wait_pgs ? `, ${plural(laggy.wait_pgs, 'PG')} waiting` : ''}
                    {laggy.since ? `, since ${timeText(laggy.since)}` : ''}</span>
            </div>
            <ol class="suspects" aria-label="Suspects, the most likely first">
                {laggy.suspects.map((suspect) => (
                    <li key={suspect.osd}>
                        <b>osd.{suspect.osd}</b>
                        {suspect.mechanism !== 'unknown'
                            && ` (${suspect.mechanism.replace('_', ' ')})`}: {suspect.why}
                        {suspect.advice && <p><code>{suspect.advice}</code></p>}
                    </li>
                ))}
            </ol>
            {shown.length > 0 && (
                <p class="muted">
                    {shown.map((pg) => `${pg.pgid} on ${pg.acting.join(',')}`).join('; ')}
                    {shownText(shown.length, laggy.pgs_count)}
                </p>
            )}
        </section>
    );
}

/** Only of pools that a probe has measured. */
export function Capacity({ rows }: { rows: CapacityRow[] }) {
    if (!rows.length) {
        return null;
    }
    return (
        <section class="card" aria-labelledby="capacity-title" data-test="capacity">
            <div class="section-head"><h2 id="capacity-title">Capacity</h2></div>
            <ul class="suspects">
                {rows.map((row) => (
                    <li key={row.pool}>
                        <b>{row.pool}</b>: {capacityText(row)}
                        {!row.certain && <p class="muted">
                            {row.remarks.map((remark) => remark.text).join('; ')}
                        </p>}
                    </li>
                ))}
            </ul>
        </section>
    );
}

function capacityText({ used, busiest, p99_ms, full_seconds }: CapacityRow): string {
    const full = full_seconds === null ? '' : `; at this growth full in ${secondsText(full_seconds)}`;
    return `uses ${percentText(used.median)} (${percentText(used.low)} to `
        + `${percentText(used.high)}) of the operations that it serves at p99 ${p99_ms} ms; `
        + `busiest hour ${percentText(busiest)}${full}`;
}
