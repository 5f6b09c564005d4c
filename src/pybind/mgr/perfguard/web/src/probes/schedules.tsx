// SPDX-License-Identifier: LGPL-2.1-or-later
import { useRef } from 'preact/hooks';
import { useKept } from '../kept';
import { Action } from '../parts/action';
import { Failure } from '../parts/dialog';
import type { Store } from '../store';
import type { May, Osd, Pool, Schedule } from '../types';
import { ProbeFields } from './form';
import { bodyOf, fieldsOf } from './results';
import { useTask } from './task';

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

interface Props {
    store: Store;
    schedules: Schedule[];
    may: May;
    pools: Pool[];
    osds: Osd[];
}

export function Schedules({ store, schedules, may, pools, osds }: Props) {
    const { rows, keep } = useKept(schedules, ({ name }) => name, ['remove']);
    return (
        <div class="schedules" data-test="schedules">
            <h3>Schedules</h3>
            {rows.length === 0 && <p class="muted">No probes are scheduled.</p>}
            <ul>
                {rows.map((each) => (
                    <li key={each.name}>
                        <div>
                            <b>{each.name}</b>: {whatText(each)}, {whenText(each)}
                            {each.refused && (
                                <p class="state-slow">could not begin: {each.refused}</p>
                            )}
                        </div>
                        <Action label={'Remove\u2026'} about={`schedule ${each.name}`}
                            kind="small" test={`schedule-remove-${each.name}`}
                            offered={may.update} onKeep={keep(each, 'remove')}
                            title={`Remove the schedule ${each.name}?`} yes="Remove"
                            onDone={() => store.refresh()}
                            act={() => store.api.post('schedule', { schedule: each.name, rm: true })}>
                            <p>No more of these probes begin. The results of earlier ones are kept.</p>
                        </Action>
                    </li>
                ))}
            </ul>
            {may.update && <NewSchedule store={store} pools={pools} osds={osds} />}
        </div>
    );
}

function whatText({ probe }: Schedule): string {
    return Object.entries(probe).map(([word, text]) => `${word} ${text}`).join(', ') || 'quick';
}

/** Times as HHMM; weekdays from Sunday, 0, with the end excluded. */
export function whenText(each: Schedule): string {
    const all = each.begin_weekday === each.end_weekday;
    const last = (Number(each.end_weekday) + 6) % 7;
    const days = all ? 'every day' : `${DAYS[Number(each.begin_weekday)]} to ${DAYS[last]}`;
    const every = each.every_days === '1' ? '' : `, every ${each.every_days} days`;
    return `${each.begin_time} to ${each.end_time}, ${days}${every}`;
}

function NewSchedule({ store, pools, osds }: { store: Store; pools: Pool[]; osds: Osd[] }) {
    const form = useRef<HTMLFormElement>(null);
    const { busy, error, run } = useTask();
    const add = () => run(async () => {
        await store.api.post('schedule', bodyOf(fieldsOf(form.current!)));
        form.current?.reset();
        store.refresh();
    });
    return (
        <details class="new-schedule">
            <summary>Add a schedule</summary>
            <form ref={form} class="form" data-test="schedule-form" aria-label="Add a schedule"
                onSubmit={(event) => { event.preventDefault(); void add(); }}>
                <label>Name <input name="schedule" required maxLength={64} /></label>
                <ProbeFields pools={pools} osds={osds} />
                <label>From <input name="begin_time" size={5} placeholder="0000" /></label>
                <label>To <input name="end_time" size={5} placeholder="2400" /></label>
                <label>Interval in days
                    <input name="every_days" inputMode="numeric" size={4} placeholder="1" />
                </label>
                <div class="buttons">
                    <button type="submit" class="button" disabled={busy} data-test="schedule-add">
                        Add
                    </button>
                </div>
                <Failure text={error} />
            </form>
        </details>
    );
}
