// SPDX-License-Identifier: LGPL-2.1-or-later
// An order to change the cluster, as the API previews it.
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

export interface RulePreview {
    pool: string;
    from: string;
    to: string;
    /** The intermediate rule, and the PGs to pin under it. */
    via: string | null;
    pins: number;
    /** null: all PGs end where the new rule places them. */
    least_moves: {
        shards_by_crush: number; shards_required: number; shards_extra: number; upmaps: number;
    } | null;
}

export interface BalancePreview {
    by: string;
    shards: number;
    wanted_shards: number;
    /** Of the emptiest and the fullest OSD, as shares. */
    load_before: [number, number];
    load_after: [number, number];
    upmaps_before: number;
    upmaps_after: number;
    pools: {
        pool: string; deviation_before: number; deviation_after: number;
        max_avail_before: number | null; max_avail_after: number | null;
    }[];
    left_out: { pool: string; reason: string }[];
}

interface Fill {
    osds: number;
    fill: number | null;
    fullest_fill: number | null;
}

export interface Capacity {
    classes: { class: string; before: Fill; after: Fill }[];
    pools: { pool: string; max_avail_before: number | null; max_avail_after: number | null }[];
}

/** Hosts that do not exist yet. */
export interface WhatIf {
    hosts: number;
    osds: number;
    size_bytes: number;
    under: string[];
    device_class: string;
}

/** What is lost with OSDs, hosts or racks. */
export interface Loss {
    osds: number[];
    total_bytes: number;
    used_bytes: number;
    shards: number;
    bytes: number;
    moved_bytes: number;
    eta_seconds: number | null;
    eta_low_seconds: number | null;
    eta_high_seconds: number | null;
    pools: {
        pool: string; degraded_pgs: number; inactive_pgs: number; unreadable_pgs: number;
        unplaced_pgs: number;
    }[];
    capacity: Capacity;
    nearfull_osds: number[];
    full_osds: number[];
    warnings: string[];
}

export interface OrderPreview {
    /** Of "expand --await", which has nothing else. */
    message?: string;
    /** Of hosts that do not exist yet. */
    what_if?: WhatIf;
    /** Of a change of CRUSH weights. */
    capacity?: Capacity | null;
    /** Of a change of pools. */
    rule?: RulePreview | null;
    pg_num?: { pool: string; from: number; to: number } | null;
    balance?: BalancePreview | null;
    /** Of replace: each OSD and what happens next. Without a drain, replace has nothing else. */
    drains?: Drain[];
    /** "osd.8" -> CRUSH weight. */
    weights: Record<string, number>;
    one_epoch: boolean;
    reason: string;
    pgs: number;
    shards: number;
    bytes: number;
    primaries_moving: number;
    unpinnable_pgs: number;
    moved_by_weights?: Record<string, number>;
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

/** Orders that begin a campaign. */
export const CHANGES = ['expand', 'drain', 'undrain', 'replace', 'balance', 'rule', 'pg_num',
    'crushmap'] as const;
export type ChangeVerb = typeof CHANGES[number];

/** What is only previewed: hosts that do not exist yet, and a loss. */
export const SUPPOSITIONS = ['grow', 'lose'] as const;
export type Supposition = typeof SUPPOSITIONS[number];

/** What is previewed before it is done. */
export type Previewed = ChangeVerb | Supposition | 'rollback';

export function isSupposition(verb: Previewed): verb is Supposition {
    return (SUPPOSITIONS as readonly string[]).includes(verb);
}

/** Fields without which there is nothing to preview. */
const REQUIRED: Record<ChangeVerb | Supposition, string[]> = {
    expand: [], drain: ['what'], undrain: ['what'], replace: ['what'], balance: [],
    rule: ['pool', 'rule'], pg_num: ['pool', 'pg_num'], crushmap: ['crush_map'],
    grow: ['what_if'], lose: ['what'],
};
/** Several words. */
const LISTS = ['what', 'drain', 'under'];
const NUMBERS = ['pg_num'];

/** The request for the filled fields of a form; null: some are missing. */
export function bodyOf(verb: ChangeVerb | Supposition, given: Record<string, string>
    ): Record<string, unknown> | null {
    const filled = Object.entries(given).map(([name, text]) => [name, text.trim()] as const)
        .filter(([, text]) => text);
    if (REQUIRED[verb].some((name) => !given[name]?.trim())) {
        return null;
    }
    return Object.fromEntries(filled.map(([name, text]) => [name,
        LISTS.includes(name) ? text.split(/[\s,]+/).filter(Boolean)
            : NUMBERS.includes(name) && /^\d+$/.test(text) ? Number(text)
                : text === CHECKED ? true : text]));
}

/** The path and the body of the request for a preview. */
export function previewOf(verb: Previewed, body: object): [string, object] {
    return verb === 'rollback' ? ['campaign/rollback', { ...body, dry_run: true }]
        : isSupposition(verb)
            ? ['preview', { ...body, change: verb === 'grow' ? 'expand' : verb }]
            : [verb, { ...body, dry_run: true }];
}

/** The value of a box that is checked. */
export const CHECKED = '\u2713';

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
export function previewLines(order: OrderPreview | Loss): string[] {
    return 'moved_bytes' in order ? lossLines(order) : orderLines(order);
}

function lossLines(loss: Loss): string[] {
    const beyond: [number[], string][] = [[loss.full_osds, 'full'], [loss.nearfull_osds, 'nearfull']];
    return [
        `Lost: ${plural(loss.osds.length, 'OSD')} of ${bytesText(loss.total_bytes)}, `
            + `${bytesText(loss.used_bytes)} used.`,
        `To recover: ${plural(loss.shards, 'shard')}, ${bytesText(loss.bytes)}; `
            + `${bytesText(loss.moved_bytes)} more move. Time to full redundancy: ${etaText(loss)}.`,
        ...loss.pools.slice(0, MOST_NAMES).map((row) => `Pool ${row.pool}: `
            + `${plural(row.degraded_pgs, 'PG')} degraded, ${countText(row.inactive_pgs)} below `
            + `min_size, ${countText(row.unreadable_pgs)} unreadable, `
            + `${countText(row.unplaced_pgs)} not placed again.`),
        ...beyond.filter(([osds]) => osds.length).slice(0, 1).map(([osds, what]) => (
            `${plural(osds.length, 'OSD')} would be above ${what}, such as osd.${osds[0]}.`)),
        ...capacityLines(loss.capacity), ...loss.warnings];
}

function capacityLines({ classes, pools }: Capacity): string[] {
    return [
        ...classes.map(({ class: name, before, after }) => `${name ? `Class ${name}` : 'No class'}: `
            + `${plural(after.osds, 'OSD')} (before ${countText(before.osds)}), fill `
            + `${percentText(after.fill)} (before ${percentText(before.fill)}), fullest OSD `
            + `${percentText(after.fullest_fill)} (before ${percentText(before.fullest_fill)}).`),
        ...pools.slice(0, MOST_NAMES).map((row) => `Pool ${row.pool}: MAX AVAIL `
            + `${sizeText(row.max_avail_after)} (before ${sizeText(row.max_avail_before)}).`)];
}

function sizeText(bytes: number | null): string {
    return bytes === null ? NONE : bytesText(bytes);
}

function orderLines(order: OrderPreview): string[] {
    const drains = order.drains ?? [];
    const next = drains.slice(0, MOST_NAMES).map((row) => `osd.${row.osd}: ${row.next}`);
    const more = drains.length > MOST_NAMES ? [`${plural(drains.length - MOST_NAMES, 'more OSD')}.`]
        : [];
    return [...(order.message ? [order.message] : []),
        ...('weights' in order ? changeLines(order) : []), ...next, ...more];
}

/** What is changed. */
function subject(order: OrderPreview): string[] {
    const { rule, pg_num: pgNum, balance, what_if: hosts } = order;
    if (hosts) {
        return [`${plural(hosts.osds, 'new OSD')} of ${bytesText(hosts.size_bytes)} in `
            + `${plural(hosts.hosts, 'host')} below ${hosts.under.join(', ')}`
            + `${hosts.device_class ? `, class ${hosts.device_class}` : ''}.`];
    }
    if (rule) {
        return ruleLines(rule);
    }
    if (pgNum) {
        return [`Pool ${pgNum.pool} will have ${plural(pgNum.to, 'PG')} instead of `
            + `${countText(pgNum.from)}.`];
    }
    if (balance) {
        return balanceLines(balance);
    }
    const names = Object.keys(order.weights);
    const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
    return [names.length === 0 ? 'The CRUSH map will be replaced.'
        : `CRUSH weights will be set for ${plural(names.length, 'OSD')}: `
            + `${names.slice(0, MOST_NAMES).join(', ')}${more}.`];
}

function ruleLines({ pool, from, to, via, pins, least_moves: least }: RulePreview): string[] {
    return [
        `Pool ${pool} will have the CRUSH rule ${to} instead of ${from}.`,
        ...(via ? [`Until then it has the intermediate rule ${via}, for which `
            + `${plural(pins, 'PG')} will be pinned.`] : []),
        ...(least ? [`The rule does not allow ${plural(least.shards_required, 'shard')} to stay `
            + `(CRUSH alone would move ${countText(least.shards_by_crush)}); `
            + `${countText(least.shards_extra)} more move for the balance. Upmaps keep the others in `
            + `place: ${plural(least.upmaps, 'PG')}.`] : [])];
}

function balanceLines(balance: BalancePreview): string[] {
    const range = ([low, high]: [number, number]) => `${percentText(low)} to ${percentText(high)}`;
    return [
        `${balance.by === 'bytes' ? 'Fill of the OSDs' : 'PGs of the OSDs, of their share'}: `
            + `${range(balance.load_after)} (before ${range(balance.load_before)}). Upmaps: `
            + `${countText(balance.upmaps_after)} (before ${countText(balance.upmaps_before)}).`,
        ...(balance.wanted_shards > balance.shards ? [
            `The maximum movement leaves ${plural(balance.wanted_shards - balance.shards, 'shard')} `
            + 'out.'] : []),
        ...balance.pools.slice(0, MOST_NAMES).map((row) => `Pool ${row.pool}: OSDs end within `
            + `${row.deviation_after.toFixed(2)} PGs of their share (before `
            + `${row.deviation_before.toFixed(2)}); MAX AVAIL ${sizeText(row.max_avail_after)} (before `
            + `${sizeText(row.max_avail_before)}).`),
        ...balance.left_out.slice(0, MOST_NAMES).map((row) => `Pool ${row.pool} is left out: `
            + `${row.reason}.`)];
}

/** How its PGs move. */
function movement(order: OrderPreview): string {
    const copies = `${plural(order.shards, 'shard')} (${bytesText(order.bytes)})`;
    return (order.rule ?? order.pg_num ?? order.balance
        ? `Moves ${plural(order.pgs, 'PG')}: copies ${copies} `
        : `Pins ${plural(order.pgs, 'PG')} in the same epoch, so that no data moves at first. Then `
            + `copies ${copies} `)
        + `as fast as client latency allows. Primaries that move: ${countText(order.primaries_moving)}.`;
}

function changeLines(order: OrderPreview): string[] {
    const remarks = [
        ...(order.left_out ?? []).map((row) => `osd.${row.osd} is left out: it ${row.reason}.`),
        ...(order.warnings ?? []),
        ...(order.risks ?? []).map((risk) => `Refused unless ${risk.code} is accepted: ${risk.text}`)];
    const peering = `While PGs are released: ${order.fast_peering.text}.`;
    if (!order.one_epoch) {
        return [...subject(order), `PGs will be remapped first and pinned afterwards: ${order.reason}.`,
            ...remarks, peering];
    }
    const lines = [...subject(order), movement(order)];
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
    const byWeights = Object.entries(order.moved_by_weights ?? {});
    lines.push(...byWeights.map(([pool, number]) =>
        `${plural(number, 'PG')} of pool ${pool} move by CRUSH weights, a few in each tranche: the `
            + 'mons keep no upmaps under its rule.'));
    const atOnce = order.unpinnable_pgs - byWeights.reduce((sum, [, number]) => sum + number, 0);
    if (atOnce) {
        lines.push(`${plural(atOnce, 'PG')} cannot be pinned and will be remapped at once.`);
    }
    return [...lines, ...(order.capacity ? capacityLines(order.capacity) : []), ...remarks, peering];
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
