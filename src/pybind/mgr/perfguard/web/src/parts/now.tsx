// SPDX-License-Identifier: LGPL-2.1-or-later
import type { Store } from '../store';
import type { Overview } from '../types';
import { checkText, headline, reasonText, toneOf } from '../words';
import { BorrowedSettings, Limits } from './asked';
import { CampaignBar, CampaignButtons } from './campaign';
import { Plans } from './plans';

/** What is happening and why, and what can be done about it. */
export function Now({ store, overview }: { store: Store; overview: Overview }) {
    const { status, rebalance } = overview;
    return (
        <section class="card now" aria-labelledby="now-title">
            <div class="now-head">
                <span class={`phase ${toneOf(status.phase)}`} data-test="phase"
                    data-paused={String(rebalance.paused ?? false)}>{status.phase}</span>
                <h2 id="now-title">{headline(status.phase, rebalance)}</h2>
                <CampaignButtons store={store} overview={overview} />
            </div>
            <Health codes={status.health} />
            <ul class="reasons" data-test="reasons">
                {status.limits.map((reason, place) => <li key={place}>{reasonText(reason)}</li>)}
            </ul>
            {rebalance.id ? <CampaignBar campaign={rebalance} /> : null}
            {rebalance.id ? <Limits store={store} /> : null}
            <Plans store={store} may={overview.may.update} />
            <BorrowedSettings store={store} />
        </section>
    );
}

function Health({ codes }: { codes: string[] }) {
    if (!codes.length) {
        return null;
    }
    return (
        <ul class="health" aria-label="Health warnings" data-test="health">
            {codes.map((code) => (
                <li key={code} title={code} data-code={code}>
                    <span aria-hidden="true">!</span> {checkText(code)}
                </li>
            ))}
        </ul>
    );
}
