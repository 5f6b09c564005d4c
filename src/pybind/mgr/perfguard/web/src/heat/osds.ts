// SPDX-License-Identifier: LGPL-2.1-or-later
// What the heat map shows of each OSD.
import { msText, NONE, numberText, plural, secondsText, timeText } from '../format';
import type { Osd, Suspect } from '../types';

export type OsdState = 'ok' | 'warm' | 'slow';

export interface Cell {
    osd: Osd;
    state: OsdState;
    /** Of colour: "none", "0" (as fast as its peers) to "4", "slow". */
    level: string;
    /** A letter beside the colour, for those who cannot tell colours apart. */
    mark: string;
    /** Why it is marked. */
    why: string;
    label: string;
}

export interface Host {
    name: string;
    cells: Cell[];
}

/** A score from here on is warm, even if it is not proven slow. */
export const WARM = 1.5;
const STEPS = [1.1, 1.3, WARM, 2];

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
    return [...byHost].map(([name, cells]) => ({ name, cells }))
        .sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
}

export function cellOf(osd: Osd, suspect: Suspect | null): Cell {
    const state = stateOf(osd, suspect);
    const silent = osd.silent_seconds !== null;
    const mark = suspect ? 'L' : osd.slow ? 'S' : silent ? '?' : '';
    const why = [osd.slow ? osd.why : '', suspect ? `suspect for laggy PGs: ${suspect.why}` : '']
        .filter(Boolean).join('; ');
    const level = state === 'slow' ? 'slow' : osd.score === null ? 'none' : String(
        STEPS.filter((step) => osd.score! >= step).length);
    return { osd, state, level, mark, why, label: labelOf(osd, state, why) };
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

function pinTexts(osd: Osd): string[] {
    return [...(osd.pgs_in ? [`${plural(osd.pgs_in, 'pinned PG')} to move in`] : []),
        ...(osd.pgs_out ? [`${plural(osd.pgs_out, 'pinned PG')} to move out`] : [])];
}

const MOST_NAMES = 6;

/** Who is slow, and who is only suspected. */
export function summaryOf(osds: Osd[], suspect: Suspect | null): string {
    const slow = osds.filter((osd) => osd.slow).map((osd) => `osd.${osd.osd}`);
    const more = slow.length > MOST_NAMES ? ` and ${slow.length - MOST_NAMES} more` : '';
    return [
        slow.length ? `${plural(slow.length, 'slow OSD')}: ${slow.slice(0, MOST_NAMES).join(', ')}`
            + more : '',
        suspect ? `suspect for laggy PGs: osd.${suspect.osd}` : '',
    ].filter(Boolean).join('; ');
}

/** Name and value of all that is known. */
export function detailsOf({ osd, why }: Cell): [string, string][] {
    const trouble = Object.entries(osd.pgs).map(([name, count]) => `${count} ${name}`).join(', ');
    return [
        ['Slowdown', osd.score === null ? 'not known' : `${numberText(osd.score)} times its peers`],
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

/** Where an arrow key leads from a cell: along the host, or to the same place of the next host. */
export function neighbour(hosts: Host[], from: number, key: string): number | null {
    const row = hosts.findIndex((host) => host.cells.some((cell) => cell.osd.osd === from));
    const cells = hosts[row]?.cells;
    if (!cells) {
        return hosts[0]?.cells[0]?.osd.osd ?? null;
    }
    const place = cells.findIndex((cell) => cell.osd.osd === from);
    const to = target(hosts, row, place, key);
    return to?.osd.osd ?? null;
}

function target(hosts: Host[], row: number, place: number, key: string): Cell | undefined {
    const cells = hosts[row]!.cells;
    const across = (other: Host | undefined) =>
        other?.cells[Math.min(place, other.cells.length - 1)];
    switch (key) {
        case 'ArrowRight':
            return cells[place + 1] ?? hosts[row + 1]?.cells[0];
        case 'ArrowLeft':
            return cells[place - 1] ?? hosts[row - 1]?.cells.slice(-1)[0];
        case 'ArrowDown':
            return across(hosts[row + 1]);
        case 'ArrowUp':
            return across(hosts[row - 1]);
        case 'Home':
            return cells[0];
        case 'End':
            return cells[cells.length - 1];
        default:
            return undefined;
    }
}
