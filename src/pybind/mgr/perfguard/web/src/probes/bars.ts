// SPDX-License-Identifier: LGPL-2.1-or-later
// Two probes as bars: the first is 1, the second so many times the first, with its interval.
import { bytesText, msText, numberText } from '../format';
import type { CompareLine, Comparison, Estimate } from '../types';

export interface Bar {
    quantity: string;
    before: string;
    after: string;
    ratio: number;
    low: number;
    high: number;
    verdict: string;
}

export interface JobBars {
    job: string;
    verdict: string;
    why: string;
    bars: Bar[];
}

type Quantity = 'iops' | 'bandwidth' | 'latency' | 'p99';

const QUANTITIES: [Quantity, string, (value: number) => string][] = [
    ['iops', 'operations per second', numberText],
    ['bandwidth', 'bytes per second', (value) => `${bytesText(value)}/s`],
    ['latency', 'mean latency', (value) => msText(value / 1e6)],
    ['p99', 'p99 latency', (value) => msText(value / 1e6)],
];
/** The axis ends there, however far an interval reaches. */
const LEAST_END = 1.25;
const MOST_END = 5;

export function barsOf(comparison: Comparison): JobBars[] {
    return comparison.lines.map((line) => ({
        job: line.job, verdict: line.verdict, why: line.why,
        bars: QUANTITIES.flatMap(([key, quantity, text]) => barOf(line, key, quantity, text)),
    }));
}

function barOf(line: CompareLine, key: Quantity, quantity: string,
    text: (value: number) => string): Bar[] {
    const found: Estimate | undefined = line[key];
    if (!found || !Number.isFinite(found.ratio)) {
        return [];
    }
    const { ratio, low, high, verdict } = found;
    return [{ quantity, before: text(found.a), after: text(found.b), ratio, low, high, verdict }];
}

/** Where the common axis of all bars ends, in times the first probe. */
export function endOf(jobs: JobBars[]): number {
    const highest = Math.max(0, ...jobs.flatMap((job) => job.bars.map(
        (bar) => Math.max(bar.ratio, bar.high))));
    return Math.min(MOST_END, Math.max(LEAST_END, 1.05 * highest));
}

export function barText(bar: Bar): string {
    return `${bar.quantity}: ${bar.before} before, ${bar.after} after, ${numberText(bar.ratio)} times `
        + `(${numberText(bar.low)} to ${numberText(bar.high)}), ${bar.verdict}`;
}
