// SPDX-License-Identifier: LGPL-2.1-or-later
// What the heat map shows of each OSD, or of each host.
import { msText, NONE, numberText, plural, secondsText, timeText } from '../format';
import type { Osd, Suspect } from '../types';

export type OsdState = 'ok' | 'warm' | 'slow';

/** One field of the map. */
export interface Tile {
    /** No other tile of the map has it. */
    id: string;
    test: string;
    text: string;
    title: string;
    /** What it is part of. */
    place: string;
    state: OsdState;
    /** Of colour: "none", "0" (as fast as its peers) to "4", "slow". */
    level: string;
    /** A letter beside the colour, for users who cannot distinguish colours. */
    mark: string;
    label: string;
    /** Pinned PGs are to move in, and out. */
    comes: boolean;
    leaves: boolean;
    /** Name and value of all that is known. */
    details: () => [string, string][];
}

export interface Cell extends Tile {
    osd: Osd;
    /** Why it is marked. */
    why: string;
}

/** One row of the map. */
export interface Row<T extends Tile = Tile> {
    name: string;
    tiles: T[];
}

export interface Host extends Row<Cell> {
    rack: string;
}

/** A score from here on is warm, even if it is not proven slow. */
export const WARM = 1.5;
const STEPS = [1.1, 1.3, WARM, 2];
/** From the best to the worst. */
const LEVELS = ['none', '0', '1', '2', '3', '4', 'slow'];
const MARKS = ['', '?', 'S', 'L'];

/** By host, in the order of the names and of the OSDs' numbers.
 *
 * `suspect`: the OSD that most likely is the cause of laggy PGs.
 */
export function hostsOf(osds: Osd[], suspect: Suspect | null): Host[] {
    const byHost = new Map<string, Cell[]>();
    for (const osd of osds) {
        const cells = byHost.get(osd.host) ?? [];
        cells.push(cellOf(osd, suspect?.osd === osd.osd ? suspect : null));
        byHost.set(osd.host, cells);
    }
    return [...byHost].map(([name, tiles]) => ({ name, tiles, rack: tiles[0]!.osd.rack }))
        .sort(byName);
}

function byName(a: { name: string }, b: { name: string }): number {
    return a.name.localeCompare(b.name, 'en', { numeric: true });
}

/** One tile for each host, one row for each rack. */
export function racksOf(hosts: Host[]): Row[] {
    const byRack = new Map<string, Tile[]>();
    for (const host of hosts) {
        byRack.set(host.rack, [...byRack.get(host.rack) ?? [], hostTile(host)]);
    }
    return [...byRack].map(([name, tiles]) => ({ name: name || 'no rack', tiles })).sort(byName);
}

/** As bad as the worst of its OSDs. */
export function hostTile({ name, rack, tiles }: Host): Tile {
    const osds = tiles.map(({ osd }) => osd);
    const worst = <T>(order: T[], of: (cell: Cell) => T) => order[Math.max(
        ...tiles.map((cell) => order.indexOf(of(cell))))]!;
    const trouble = tiles.filter(({ mark }) => mark !== '')
        .map(({ title, mark }) => `${title} ${MARK_WORDS[mark]!}`);
    const marked = [...trouble.slice(0, MOST_NAMES),
        ...(trouble.length > MOST_NAMES ? [`${trouble.length - MOST_NAMES} more`] : [])];
    const score = Math.max(-1, ...osds.map((osd) => osd.score ?? -1));
    const slowdown = score < 0 ? 'no slowdown known' : `slowdown up to ${numberText(score)}`;
    const pins = pinTexts({ pgs_in: sum(osds, 'pgs_in'), pgs_out: sum(osds, 'pgs_out') });
    return {
        id: name, test: `heat-host-${name}`, text: name, title: name, place: rack,
        state: worst(['ok', 'warm', 'slow'], ({ state }) => state),
        level: worst(LEVELS, ({ level }) => level), mark: worst(MARKS, ({ mark }) => mark),
        label: [name, ...(rack ? [rack] : []), plural(osds.length, 'OSD'), slowdown, ...marked,
            ...pins].join(', '),
        comes: osds.some((osd) => osd.pgs_in > 0), leaves: osds.some((osd) => osd.pgs_out > 0),
        details: () => [
            ['OSDs', String(osds.length)],
            ['Slowdown', score < 0 ? 'not known' : `up to ${numberText(score)}`],
            ...pair(marked.join(', '), 'Trouble'),
            ['Reads', `${numberText(sum(osds, 'read_rate'))}/s`],
            ['Writes', `${numberText(sum(osds, 'write_rate'))}/s`],
            ...pair(pins.join(', '), 'Campaign')],
    };
}

const MARK_WORDS: Record<string, string> = { L: 'suspect', S: 'slow', '?': 'silent' };

function sum(osds: Osd[], name: 'pgs_in' | 'pgs_out' | 'read_rate' | 'write_rate'): number {
    return osds.reduce((total, osd) => total + osd[name], 0);
}

export function cellOf(osd: Osd, suspect: Suspect | null): Cell {
    const state = stateOf(osd, suspect);
    const silent = osd.silent_seconds !== null;
    const mark = suspect ? 'L' : osd.slow ? 'S' : silent ? '?' : '';
    const why = [osd.slow ? osd.why : '', suspect ? `suspect for laggy PGs: ${suspect.why}` : '']
        .filter(Boolean).join('; ');
    const level = state === 'slow' ? 'slow' : osd.score === null ? 'none' : String(
        STEPS.filter((step) => osd.score! >= step).length);
    return {
        id: String(osd.osd), test: `heat-osd-${osd.osd}`, text: String(osd.osd),
        title: `osd.${osd.osd}`, place: osd.host, osd, state, level, mark, why,
        label: labelOf(osd, state, why), comes: osd.pgs_in > 0, leaves: osd.pgs_out > 0,
        details: () => detailsOf(osd, why),
    };
}

function stateOf(osd: Osd, suspect: Suspect | null): OsdState {
    if (osd.slow || suspect) {
        return 'slow';
    }
    return osd.silent_seconds !== null || (osd.score ?? 0) >= WARM ? 'warm' : 'ok';
}

function labelOf(osd: Osd, state: OsdState, why: string): string {
    const parts = [`osd.${osd.osd}`, osd.host,
        osd.score === null ? 'no slowdown known' : `slowdown ${numberText(osd.score)}`];
    if (state === 'slow') {
        parts.push(osd.slow ? `slow: ${why}` : why);
    } else if (osd.silent_seconds !== null) {
        parts.push(`no report for ${secondsText(osd.silent_seconds)}`);
    } else if (state === 'warm') {
        parts.push('slower than its peers');
    }
    return [...parts, ...pinTexts(osd)].join(', ');
}

function pinTexts(osd: Pick<Osd, 'pgs_in' | 'pgs_out'>): string[] {
    return [...(osd.pgs_in ? [`${plural(osd.pgs_in, 'pinned PG')} to move in`] : []),
        ...(osd.pgs_out ? [`${plural(osd.pgs_out, 'pinned PG')} to move out`] : [])];
}

const MOST_NAMES = 6;

/** The slow OSDs, and those that are only suspected. */
export function summaryOf(osds: Osd[], suspect: Suspect | null): string {
    const slow = osds.filter((osd) => osd.slow).map((osd) => `osd.${osd.osd}`);
    const more = slow.length > MOST_NAMES ? ` and ${slow.length - MOST_NAMES} more` : '';
    return [
        slow.length ? `${plural(slow.length, 'slow OSD')}: ${slow.slice(0, MOST_NAMES).join(', ')}`
            + more : '',
        suspect ? `suspect for laggy PGs: osd.${suspect.osd}` : '',
    ].filter(Boolean).join('; ');
}

function detailsOf(osd: Osd, why: string): [string, string][] {
    const trouble = Object.entries(osd.pgs).map(([name, count]) => `${count} ${name}`).join(', ');
    return [
        ['Slowdown', osd.score === null ? 'not known' : numberText(osd.score)],
        ...pair(why, 'Why'),
        ...pair(osd.since ? timeText(osd.since) : '', 'Slow since'),
        ['Reads', flowText(osd.read_ms, osd.read_p99_ms, osd.read_rate)],
        ['Writes', flowText(osd.write_ms, osd.write_p99_ms, osd.write_rate)],
        ['Store', msText(osd.store_ms)],
        ['Heartbeat', msText(osd.ping_ms)],
        ...pair(osd.silent_seconds === null ? '' : secondsText(osd.silent_seconds), 'No report for'),
        ...pair(trouble, 'PGs'),
        ...pair(pinTexts(osd).join(', '), 'Campaign'),
        ['Class', osd.device_class || NONE],
    ];
}

function pair(text: string, name: string): [string, string][] {
    return text ? [[name, text]] : [];
}

function flowText(ms: number | null, p99: number | null, rate: number): string {
    if (ms === null) {
        return 'none';
    }
    const tail = p99 === null ? '' : `, p99 ${msText(p99)}`;
    return `${msText(ms)}${tail}, ${numberText(rate)}/s`;
}

/** Where an arrow key leads from a tile: along the row, or to the same place of the next row. */
export function neighbour(rows: Row[], from: string, key: string): string | null {
    const row = rows.findIndex(({ tiles }) => tiles.some(({ id }) => id === from));
    const tiles = rows[row]?.tiles;
    if (!tiles) {
        return rows[0]?.tiles[0]?.id ?? null;
    }
    const place = tiles.findIndex(({ id }) => id === from);
    return target(rows, row, place, key)?.id ?? null;
}

function target(rows: Row[], row: number, place: number, key: string): Tile | undefined {
    const tiles = rows[row]!.tiles;
    const across = (other: Row | undefined) =>
        other?.tiles[Math.min(place, other.tiles.length - 1)];
    switch (key) {
        case 'ArrowRight':
            return tiles[place + 1] ?? rows[row + 1]?.tiles[0];
        case 'ArrowLeft':
            return tiles[place - 1] ?? rows[row - 1]?.tiles.slice(-1)[0];
        case 'ArrowDown':
            return across(rows[row + 1]);
        case 'ArrowUp':
            return across(rows[row - 1]);
        case 'Home':
            return tiles[0];
        case 'End':
            return tiles[tiles.length - 1];
        default:
            return undefined;
    }
}
