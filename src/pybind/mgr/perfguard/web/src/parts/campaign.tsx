// SPDX-License-Identifier: LGPL-2.1-or-later
import { useState } from 'preact/hooks';
import {
    billFacts, confirmationOf, etaText, extraFacts, limitText, movedText, partsOf, type Verb, verbsOf,
} from '../campaign';
import { countText, percentText, plural, shownText, timeText } from '../format';
import { turned } from '../kept';
import { CHANGES, type ChangeVerb, SUPPOSITIONS } from '../orders';
import type { Store } from '../store';
import type { Campaign, Overview } from '../types';
import { Action } from './action';
import { ChangeOrder, Preview } from './expand';

const LABELS: Record<Verb, string> = {
    prepare: 'Prepare\u2026', pin: 'Pin\u2026', start: 'Start\u2026', pause: 'Pause\u2026',
    resume: 'Resume\u2026', abort: 'Abort\u2026', finish: 'Finish\u2026',
    rollback: 'Roll back\u2026',
};
const GRAVE: ReadonlySet<Verb> = new Set(['abort', 'rollback']);
const FIRST: ReadonlySet<Verb> = new Set(['pin', 'start', 'pause', 'resume']);

export function CampaignButtons({ store, overview }: { store: Store; overview: Overview }) {
    const [kept, setKept] = useState<(Verb | ChangeVerb)[]>([]);
    if (!overview.may.update) {
        return null;
    }
    const { rebalance } = overview;
    const allowed = verbsOf(overview.status.phase, rebalance);
    // A question stays until it is answered, also when the phase changes meanwhile.
    const keep = (verb: Verb | ChangeVerb) => (on: boolean) =>
        setKept((now) => turned(now, verb, on));
    const isVerb = (verb: Verb | ChangeVerb): verb is Verb => (
        !(CHANGES as readonly string[]).includes(verb));
    const verbs = [...allowed, ...kept.filter(isVerb).filter((verb) => !allowed.includes(verb))];
    return (
        <div class="buttons" role="group" aria-label="Campaign">
            {CHANGES.filter((verb) => allowed.includes('prepare') || kept.includes(verb))
                .map((verb) => (
                    <ChangeOrder key={verb} store={store} verb={verb} onKeep={keep(verb)} />
                ))}
            {verbs.map((verb) => {
                const question = confirmationOf(verb, rebalance);
                return (
                    <Action key={verb} label={question.label ?? LABELS[verb]} test={`button-${verb}`}
                        title={question.title} yes={question.yes}
                        kind={GRAVE.has(verb) ? 'grave' : FIRST.has(verb) ? 'primary' : 'plain'}
                        onKeep={keep(verb)}
                        act={() => store.api.post(`campaign/${verb}`, question.body)}
                        onDone={() => store.refresh()}>
                        {question.text.map((line) => <p key={line}>{line}</p>)}
                        {verb === 'rollback' && <Preview store={store} verb={verb} body={{}} />}
                    </Action>
                );
            })}
            {SUPPOSITIONS.map((verb) => (
                <ChangeOrder key={verb} store={store} verb={verb} onKeep={() => undefined} />
            ))}
        </div>
    );
}

/** The bar, and the numbers below it. */
export function CampaignBar({ campaign }: { campaign: Partial<Campaign> }) {
    const parts = partsOf(campaign);
    const share = campaign.done_ratio ?? 0;
    const words = parts.map(({ name, count }) => `${countText(count)} ${name}`).join(', ');
    return (
        <div class="campaign">
            <div class="bar" role="progressbar" aria-label="Campaign" aria-valuemin={0}
                aria-valuemax={100} aria-valuenow={Math.round(100 * share)}
                aria-valuetext={`${percentText(share)}: ${words}`} data-test="campaign-bar">
                {parts.map(({ name, share: width }) => (
                    <span key={name} class={`part ${name.replace(' ', '-')}`}
                        style={{ width: `${100 * width}%` }} />
                ))}
            </div>
            <ul class="bar-legend">
                {parts.map(({ name, count }) => (
                    <li key={name}>
                        <span class={`swatch ${name.replace(' ', '-')}`} aria-hidden="true" />
                        <b>{countText(count)}</b> {name}
                    </li>
                ))}
                <li class="of">of {plural(campaign.total ?? 0, 'PG')}</li>
            </ul>
            <dl class="facts">
                <Fact name="Done" value={percentText(share)} test="percent" />
                <Fact name="Copied" value={movedText(campaign)} test="bytes" />
                {!campaign.ended && (
                    <>
                        <Fact name="Time left" value={etaText(campaign)} test="eta" />
                        <Fact name="In flight at once" test="limit" value={limitText(campaign)} />
                    </>
                )}
                <Fact name="Began" value={timeText(campaign.started ?? null)} test="began" />
                {campaign.ended
                    ? <Fact name="Ended" value={timeText(campaign.ended)} test="ended" /> : null}
                <Fact name="OSDMap epochs" value={countText(campaign.epochs ?? null)} test="epochs" />
                {extraFacts(campaign).map(([name, value]) => (
                    <Fact key={name} name={name} value={value} test={name.toLowerCase()} />
                ))}
            </dl>
            {campaign.ended && campaign.bill ? (
                <dl class="facts" data-test="bill">
                    {billFacts(campaign.bill).map(([name, value]) => (
                        <Fact key={name} name={name} value={value} test={`bill-${name}`} />
                    ))}
                </dl>
            ) : null}
            <Unpinnable campaign={campaign} />
        </div>
    );
}

function Fact({ name, value, test }: { name: string; value: string; test: string }) {
    return <div><dt>{name}</dt><dd data-test={test}>{value}</dd></div>;
}

function Unpinnable({ campaign }: { campaign: Partial<Campaign> }) {
    const found = campaign.unpinnable ?? [];
    const count = campaign.unpinnable_count ?? 0;
    if (!count) {
        return null;
    }
    return (
        <details class="unpinnable">
            <summary>{plural(count, 'PG')} cannot be pinned{shownText(found.length, count)}</summary>
            <ul>
                {found.map(({ pgid, reason }) => (
                    <li key={pgid}><code>{pgid}</code> {reason}</li>
                ))}
            </ul>
        </details>
    );
}
