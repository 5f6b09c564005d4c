// SPDX-License-Identifier: LGPL-2.1-or-later
// An order to change CRUSH, as the API previews it.
import { bytesText, countText, plural } from './format';

export interface OrderPreview {
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
}

const MOST_NAMES = 8;

/** What an expansion will do. */
export function previewLines(order: OrderPreview): string[] {
    if (order.waits_for_change) {
        return ['No OSD of CRUSH weight 0 is up and in, so there is nothing to expand to yet. '
            + 'Going on prepares a campaign, and what you change in CRUSH then is pinned and '
            + 'released.'];
    }
    const names = Object.keys(order.weights);
    const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
    const who = `${plural(names.length, 'OSD')} of CRUSH weight 0 get their weight: `
        + `${names.slice(0, MOST_NAMES).join(', ')}${more}.`;
    if (!order.one_epoch) {
        return [who, `PGs will be remapped first and pinned then: ${order.reason}.`];
    }
    const lines = [who, `${plural(order.pgs, 'PG')} are pinned in the same epoch, so that nothing `
        + `moves at first. Then ${plural(order.shards, 'shard')}, ${bytesText(order.bytes)}, are `
        + `copied as fast as clients allow; ${countText(order.primaries_moving)} primaries move.`];
    return order.unpinnable_pgs ? [...lines,
        `${plural(order.unpinnable_pgs, 'PG')} cannot be pinned and will be remapped at once.`]
        : lines;
}
