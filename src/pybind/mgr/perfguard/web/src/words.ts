// SPDX-License-Identifier: LGPL-2.1-or-later
// Texts that depend on the state.
import { isActive } from './campaign';
import { plural } from './format';
import type { Campaign, Overview, Phase } from './types';

/** One line: what is happening. */
export function headline(phase: Phase, campaign: Partial<Campaign>): string {
    const name = campaign.id ? `Campaign ${campaign.id}` : 'The campaign';
    switch (phase) {
        case 'PREPARED':
            return 'Ready: change CRUSH now, then pin';
        case 'PINNING':
            return 'Pinning PGs where their data is';
        case 'PINNED':
            return campaign.unpinnable_count
                ? `Pinned; ${plural(campaign.unpinnable_count, 'PG')} cannot be pinned`
                : 'All PGs are pinned, no data moves';
        case 'RELEASING':
            return 'Releasing PGs as fast as client latency allows';
        case 'HOLDING':
            return campaign.paused ? 'Paused by the operator'
                : 'Holding: releases are stopped';
        case 'FINISHING':
            return 'Finishing: giving back borrowed settings';
        case 'ABORTING':
            return 'Aborting: pinning back PGs in flight';
        case 'DONE':
            return `${name} is done`;
        case 'ABORTED':
            return `${name} was aborted`;
        default:
            return 'No campaign is active';
    }
}

/** For the tab of the browser. */
export function titleOf(phase: Phase, campaign: Partial<Campaign>): string {
    return isActive(phase) && campaign.total
        ? `${phase} ${Math.floor(100 * (campaign.done_ratio ?? 0))} % - perfguard` : `${phase} - perfguard`;
}

export type Tone = 'calm' | 'busy' | 'held' | 'bad';

/** How much attention a phase needs. */
export function toneOf(phase: Phase): Tone {
    switch (phase) {
        case 'HOLDING':
            return 'held';
        case 'ABORTING':
            return 'bad';
        case 'IDLE':
        case 'DONE':
        case 'ABORTED':
            return 'calm';
        default:
            return 'busy';
    }
}

const CHECKS: Record<string, string> = {
    PERFGUARD_LAGGY_PGS: 'laggy PGs',
    PERFGUARD_SLOW_OSD: 'slow OSD',
    PERFGUARD_OSD_CHRONIC: 'chronically slow OSD',
    PERFGUARD_LATENCY: 'client latency far above its baseline',
    PERFGUARD_STALLED: 'campaign stalled',
    PERFGUARD_UNPINNABLE: 'PGs that cannot be pinned',
    PERFGUARD_HELD_PINS: 'aborted campaign keeps PGs pinned',
    PERFGUARD_EVACUATION: 'norebalance keeps data on OSDs to be emptied',
    PERFGUARD_LOOP_FAILED: 'the loop of perfguard fails',
    PERFGUARD_PROBE_LEFT: 'clean-up of a probe is incomplete',
    PERFGUARD_PROBE_REGRESSION: 'probe slower than its baseline',
    PERFGUARD_INTERRUPTED: 'state could not be read',
    PERFGUARD_STANDBY_MGR: 'a standby mgr cannot take over',
};

/** A reason with the command that goes on. */
export function reasonText({ text, next }: { text: string; next: string }): string {
    return next ? `${text}: ${next}` : text;
}

export function checkText(code: string): string {
    return CHECKS[code] ?? code;
}

/** What a screen reader announces when it changes, and only then. */
export function announcement(before: Overview | null, after: Overview): string {
    const texts: string[] = [];
    const { phase, health } = after.status;
    if (before && (before.status.phase !== phase
            || before.rebalance.paused !== after.rebalance.paused)) {
        texts.push(`${phase}: ${headline(phase, after.rebalance)}.`);
    }
    const known = new Set(before?.status.health ?? []);
    const now = new Set(health);
    texts.push(...health.filter((code) => !known.has(code))
        .map((code) => `Warning: ${checkText(code)}.`));
    texts.push(...[...known].filter((code) => !now.has(code))
        .map((code) => `Cleared: ${checkText(code)}.`));
    return texts.join(' ');
}
