// SPDX-License-Identifier: LGPL-2.1-or-later
// An order to change CRUSH, as the API previews it.
import { etaText } from './campaign';
import { bytesText, countText, NONE, percentText, plural } from './format';

export interface OsdFill {
    osd: number;
    pgs_before: number;
    pgs_after: number;
    /** Shares of the OSD's size; null: not known. */
    fill_before: number | null;
    fill_after: number | null;
}

export interface Drain {
    osd: number;
    next: string;
}

export interface OrderPreview {
    /** Of replace: each OSD and what happens next. Without a drain, replace has nothing else. */
    drains?: Drain[];
    waits_for_change: boolean;
    /** "osd.8" -> CRUSH weight. */
    weights: Record<string, number>;
    one_epoch: boolean;
    reason: string;
    pgs: number;
    shards: number;
    bytes: number;
    primaries_moving: number;
    unpinnable_pgs: number;
    warnings?: string[];
    risks?: { code: string; text: string }[];
    left_out?: { osd: number; reason: string }[];
    /** What target=balanced moves in all; null where that is not the target or not known. */
    balanced: {
        shards: number; bytes: number; extra_shards: number; limit_shards: number;
        /** PGs of a pool by which an OSD differs from its share in the end; null: not known. */
        deviation: number | null; target_deviation: number;
        max_extra_movement: number; limited: boolean;
    } | null;
    /** Parts of a change that needs more than pin_limit pins. */
    tranches?: number;
    pin_limit?: number;
    eta_seconds?: number | null;
    eta_low_seconds?: number | null;
    eta_high_seconds?: number | null;
    eta_basis?: string;
    /** What the campaign changes until it ends. */
    borrowed?: { what: string; put: string }[];
    /** What may be stored in addition, because clones of snapshots share it now. */
    clone_bytes?: number;
    /** Each OSD that the change concerns. */
    osds?: OsdFill[];
    /** The mons' proposal interval while PGs are released. */
    fast_peering: { text: string };
}

const MOST_NAMES = 8;

/** Orders that change CRUSH. */
export const CRUSH_VERBS = ['expand', 'drain', 'undrain', 'replace', 'crushmap'] as const;
export type CrushVerb = typeof CRUSH_VERBS[number];

/** The request for the input, or for the chosen CRUSH map; null: the input is incomplete. */
export function bodyOf(verb: CrushVerb, given: string): Record<string, unknown> | null {
    if (verb === 'crushmap') {
        return given ? { crush_map: given } : null;
    }
    const words = given.split(/[\s,]+/).filter(Boolean);
    if (verb === 'expand') {
        return words.length ? { weight: given.trim() } : {};
    }
    return words.length ? { what: words } : null;
}

/** A CRUSH map as the API takes it: its text, or, if it is compiled, in base64. */
export function mapText(bytes: Uint8Array): string {
    try {
        const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
        if (!text.includes('\0')) {
            return text;
        }
    } catch {
        // Compiled.
    }
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}

/** What an order will do. */
export function previewLines(order: OrderPreview): string[] {
    const drains = order.drains ?? [];
    const next = drains.slice(0, MOST_NAMES).map((row) => `osd.${row.osd}: ${row.next}`);
    const more = drains.length > MOST_NAMES ? [`${plural(drains.length - MOST_NAMES, 'more OSD')}.`]
        : [];
    return [...('weights' in order ? changeLines(order) : []), ...next, ...more];
}

function changeLines(order: OrderPreview): string[] {
    if (order.waits_for_change) {
        return ['No new OSD of CRUSH weight 0 is up and in. '
            + 'If you continue, perfguard prepares a campaign, and pins and releases the PGs that '
            + 'your CRUSH change remaps.'];
    }
    const names = Object.keys(order.weights);
    const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
    const who = names.length === 0 ? 'The CRUSH map will be replaced.'
        : `CRUSH weights will be set for ${plural(names.length, 'OSD')}: `
            + `${names.slice(0, MOST_NAMES).join(', ')}${more}.`;
    const remarks = [
        ...(order.left_out ?? []).map((row) => `osd.${row.osd} is left out: it ${row.reason}.`),
        ...(order.warnings ?? []),
        ...(order.risks ?? []).map((risk) => `Refused unless ${risk.code} is accepted: ${risk.text}`)];
    const peering = `While PGs are released: ${order.fast_peering.text}.`;
    if (!order.one_epoch) {
        return [who, `PGs will be remapped first and pinned afterwards: ${order.reason}.`,
            ...remarks, peering];
    }
    const lines = [who, `Pins ${plural(order.pgs, 'PG')} in the same epoch, so that no data moves `
        + `at first. Then copies ${plural(order.shards, 'shard')} (${bytesText(order.bytes)}) as fast `
        + `as client latency allows. Primaries that move: ${countText(order.primaries_moving)}.`];
    if (order.balanced) {
        lines.push(`With target=balanced ${plural(order.balanced.shards, 'shard')}, `
            + `${bytesText(order.balanced.bytes)}, move in total (limit `
            + `${countText(order.balanced.limit_shards)}), `
            + `${countText(order.balanced.extra_shards)} of them only for the balance.`,
        ...deviationLines(order.balanced));
    }
    if ((order.tranches ?? 1) > 1) {
        lines.push(`The change comes in about ${plural(order.tranches!, 'tranche')} of at most `
            + `${plural(order.pin_limit ?? 0, 'pin')} (max_pins).`);
    }
    if (order.eta_basis) {
        lines.push(`Estimated time: ${etaText(order)} (speed: ${order.eta_basis}).`);
    }
    if (order.borrowed?.length) {
        lines.push(`Borrowed settings: ${order.borrowed.map(({ what, put }) => `${what}: ${put}`)
            .join(', ')}.`);
    }
    if (order.clone_bytes) {
        lines.push(`Up to ${bytesText(order.clone_bytes)} more are stored afterwards: clones of `
            + 'snapshots share that data now.');
    }
    if (order.unpinnable_pgs) {
        lines.push(`${plural(order.unpinnable_pgs, 'PG')} cannot be pinned and will be remapped at `
            + 'once.');
    }
    return [...lines, ...remarks, peering];
}

function deviationLines(balanced: NonNullable<OrderPreview['balanced']>): string[] {
    const { deviation, target_deviation: target, max_extra_movement: extra } = balanced;
    return deviation === null ? [] : [`OSDs end within ${deviation.toFixed(2)} PGs of their share of `
        + `each pool (target_deviation ${target}`
        + `${balanced.limited ? `, limited by max_extra_movement ${extra}` : ''}).`];
}

/** OSDs listed at most. */
const MOST_FILLS = 50;

/** OSD, and PGs and fill before and after, the fullest in the end first. */
export function fillRows(osds: OsdFill[]): string[][] {
    const share = (fill: number | null) => (fill === null ? NONE : percentText(fill));
    return [...osds].sort((a, b) => (b.fill_after ?? -1) - (a.fill_after ?? -1))
        .slice(0, MOST_FILLS).map((row) => [
            `osd.${row.osd}`, countText(row.pgs_before), countText(row.pgs_after), share(row.fill_before),
            share(row.fill_after)]);
}
