// SPDX-License-Identifier: LGPL-2.1-or-later
// The campaign: which actions each phase allows, and its progress.
import { bytesText, countText, msText, percentText, plural, secondsText, timeText } from './format';
import type { Bill, Campaign, Phase, SlowOps } from './types';

export type Verb = 'prepare' | 'pin' | 'start' | 'pause' | 'resume' | 'abort' | 'rollback'
    | 'finish';

/** The actions that the page offers, the most likely first. perfguard accepts all of them, but may
 * still refuse a rollback; tests/verbs.json also lists those that only the command line has. */
export function verbsOf(phase: Phase, campaign: Partial<Campaign>): Verb[] {
    const { id, paused, held } = campaign;
    // "abort" also ends the wait for new OSDs.
    const waits: Verb[] = awaitsOsds(phase, campaign) ? ['abort'] : [];
    switch (phase) {
        case 'IDLE':
            // A new campaign is shown as IDLE until its flags are in force.
            return id ? ['finish', 'abort'] : ['prepare', ...waits];
        case 'PREPARED':
            return ['pin', 'finish', 'abort'];
        case 'PINNING':
            return ['abort'];
        case 'PINNED':
            // Too many PGs became unpinnable during the pause: "start" accepts that they move.
            return ['start', ...(paused ? ['resume' as const] : []), 'finish', 'abort',
                'rollback'];
        case 'RELEASING':
        case 'HOLDING':
            return [paused ? 'resume' : 'pause', 'finish', 'abort', 'rollback'];
        case 'FINISHING':
            return ['abort'];
        case 'ABORTING':
            return [];
        case 'ABORTED':
            // The three ways out of PERFGUARD_HELD_PINS.
            return [...(held ? ['resume' as const, 'rollback' as const, 'finish' as const] : []),
                'prepare', ...waits];
        default:
            return ['prepare', ...waits];
    }
}

/** No campaign is active, and "expand --await" waits for OSDs that are still to boot. */
function awaitsOsds(phase: Phase, { id, limits = [] }: Partial<Campaign>): boolean {
    return (!id || !isActive(phase)) && limits.some(({ code }) => code === 'AWAITS_OSDS');
}

export interface Confirmation {
    title: string;
    text: string[];
    yes: string;
    /** Of the button, if it differs from that of the action. */
    label?: string;
    /** The body of the request. */
    body: Record<string, unknown>;
    grave: boolean;
}

/** The question before it is done. */
export function confirmationOf(verb: Verb, campaign: Partial<Campaign>): Confirmation {
    const pinned = campaign.pinned ?? 0;
    const flying = campaign.in_flight ?? 0;
    const pgs = plural(pinned, 'PG');
    switch (verb) {
        case 'prepare':
            return plain('Prepare a campaign?', 'Prepare', [
                'Sets norebalance and stops the balancer and the autoscaler until the campaign '
                + 'ends. No data moves.',
                'Then change CRUSH: add OSDs, change weights or rules.']);
        case 'pin':
            return plain('Pin the remapped PGs?', 'Pin', [
                'Pins every remapped PG where its data is, so that it does not move. PGs that '
                + 'cannot be pinned are listed.']);
        case 'start':
            return plain('Start releasing?', 'Start', [
                `Releases ${pgs} in batches, as fast as client latency allows.`]);
        case 'pause':
            return plain('Pause the movement of data?', 'Pause', [
                `Stops releases and all movement (${plural(flying, 'PG')} in flight). `
                + 'Copied data is kept.']);
        case 'resume':
            return plain('Resume?', 'Resume', [
                `Continues with ${plural(flying, 'PG')} in flight, then releases ${pgs}.`]);
        case 'finish':
            return finish(pinned, pgs);
        case 'rollback':
            return {
                title: 'Roll back?', yes: 'Roll back', body: {}, grave: true,
                text: ['The CRUSH weights or the CRUSH map from before the campaign are restored, '
                    + 'without remapping a PG.', `${pinnedBack(flying)}PGs that have moved are `
                    + 'released to their old places, as fast as clients allow.'],
            };
        default:
            if (awaitsOsds(campaign.phase ?? 'IDLE', campaign)) {
                return {
                    label: 'End wait\u2026', title: 'Stop waiting for new OSDs?', yes: 'End the wait',
                    body: {}, grave: true,
                    text: ['Gives osd_crush_initial_weight back. OSDs that have booted meanwhile keep '
                        + 'CRUSH weight 0; "Expand" fills them.'],
                };
            }
            return {
                title: 'Abort the campaign?', yes: 'Abort', body: {}, grave: true,
                text: [...(flying ? [`Pins back ${plural(flying, 'PG')} in flight: the copied data `
                    + 'is lost.'] : []), `Keeps ${pgs} pinned.`,
                'The balancer and the autoscaler stay off while PGs are pinned.'],
            };
    }
}

function pinnedBack(flying: number): string {
    return flying ? `${plural(flying, 'PG')} in flight ${flying === 1 ? 'is' : 'are'} pinned back. `
        : '';
}

function plain(title: string, yes: string, text: string[]): Confirmation {
    return { title, yes, text, body: {}, grave: false };
}

function finish(pinned: number, pgs: string): Confirmation {
    const restored = 'Gives back flags, balancer and autoscaler.';
    if (!pinned) {
        return plain('Finish the campaign?', 'Finish', [restored]);
    }
    return {
        title: 'Finish with PGs still pinned?', yes: 'Finish and keep', body: { keep: true },
        grave: true,
        text: [`Turns the pins of ${pgs} into ordinary upmaps, which the `
            + 'balancer may change.', restored],
    };
}

export interface Part {
    name: 'released' | 'kept' | 'in flight' | 'pinned';
    count: number;
    /** Of the whole bar. */
    share: number;
}

/** The bar: parts of the total. Pins at the end of a campaign are those that it has kept. */
export function partsOf(campaign: Partial<Campaign>): Part[] {
    const pinned = isActive(campaign.phase ?? 'IDLE') ? campaign.pinned ?? 0 : 0;
    const counts: [Part['name'], number][] = [
        ['released', campaign.released ?? 0], ['kept', campaign.kept ?? 0],
        ['in flight', campaign.in_flight ?? 0], ['pinned', pinned]];
    const sum = counts.reduce((total, [, count]) => total + count, 0);
    const whole = Math.max(campaign.total ?? 0, sum, 1);
    return counts.map(([name, count]) => ({ name, count, share: count / whole }));
}

export function etaText(campaign: Partial<Campaign>): string {
    const { eta_seconds: eta = null, eta_low_seconds: low = null,
        eta_high_seconds: high = null } = campaign;
    if (eta === null) {
        return 'not known yet';
    }
    const [from, to] = [secondsText(low), secondsText(high)];
    const range = low !== null && high !== null && from !== to ? ` (${from} to ${to})` : '';
    return secondsText(eta) + range;
}

export function movedText(campaign: Partial<Campaign>): string {
    return `${bytesText(campaign.bytes_done ?? 0)} of ${bytesText(campaign.bytes_total ?? 0)}`;
}

/** What not every campaign has: name and value. */
export function extraFacts(campaign: Partial<Campaign>): [string, string][] {
    const { tranche = 0, tranches = 0, paused_until: until = null, settings = {} } = campaign;
    const set = Object.entries(settings).map(([name, value]) => `${name}=${value}`).join(', ');
    const facts: [string, string][] = [
        ['Tranche', tranche ? `${tranche} of about ${tranches}` : ''],
        ['Pause ends', until ? timeText(until) : ''], ['Settings', set]];
    return facts.filter(([, value]) => value);
}

/** The bill of a campaign that has ended: name and value. */
export function billFacts(bill: Bill): [string, string][] {
    const required = bill.bytes_required;
    const times = Object.entries(bill.phase_seconds).filter(([, seconds]) => seconds)
        .sort(([, one], [, other]) => other - one);
    return [
        ['The change required', required === null ? 'not known' : bytesText(required)],
        ['Time', times.map(([phase, seconds]) => `${phase} ${secondsText(seconds)}`).join(', ')],
        ['Reads', latencyText(bill, 'read')], ['Writes', latencyText(bill, 'write')],
        ['Over 100 ms', slowText(bill, bill.over_100_ms)],
        ['Over 1 s', slowText(bill, bill.over_1_s)], ['Settings', settingsText(bill)]];
}

function latencyText({ latency_before: before, latency_while_moving: now }: Bill,
    kind: string): string {
    const [p50, p99] = [`${kind}_p50_ms`, `${kind}_p99_ms`];
    return `p50 ${msText(now[p50] ?? null)} (before ${msText(before[p50] ?? null)}), `
        + `p99 ${msText(now[p99] ?? null)} (before ${msText(before[p99] ?? null)})`;
}

function slowText({ operations, counted_ratio: counted }: Bill, slow: SlowOps): string {
    if (!counted) {
        return 'not measured';
    }
    const parts = slow.total ? `: movement explains ${countText(slow.movement)}, not `
        + `${countText(slow.others)}, unknown ${countText(slow.unknown)}` : '';
    const part = counted < 0.995 ? ` (${percentText(counted)} of them counted)` : '';
    return `${countText(slow.total)} of ${countText(operations)} operations${part}${parts}`;
}

function settingsText({ settings }: Bill): string {
    const open = settings.filter(({ state }) => state !== 'given back');
    return open.length ? open.map(({ what, state }) => `${what}: ${state}`).join(', ')
        : `${settings.length} borrowed and given back`;
}

export function limitText({ limit }: Partial<Campaign>): string {
    return limit ? `up to ${plural(limit, 'PG')}` : 'none for now';
}

/** Whether the campaign has not ended. */
export function isActive(phase: Phase): boolean {
    return !['IDLE', 'DONE', 'ABORTED'].includes(phase);
}
