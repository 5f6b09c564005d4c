// SPDX-License-Identifier: LGPL-2.1-or-later
// Data from the list of probes and their fio JSON, and the request body of an order.
import type { FioDirection, FioJob, ProbeSummary, Value } from '../types';

const ENDED = new Set(['done', 'failed', 'cancelled', 'aborted']);

export function hasEnded({ state }: { state: string }): boolean {
    return ENDED.has(state);
}

/** Whether there will be more results than these; not of a probe that was deleted. */
export function growing(probe: ProbeSummary, listed: ProbeSummary[]): boolean {
    return !hasEnded(probe) && listedOf([probe.id], listed).length > 0;
}

/** Those that still are in the list. */
export function listedOf(ids: number[], listed: ProbeSummary[]): number[] {
    return ids.filter((id) => listed.some((probe) => probe.id === id));
}

export interface ResultRow {
    job: string;
    osd: number | null;
    part: string;
    direction: 'read' | 'write';
    iops: number;
    bytesPerSecond: number;
    meanMs: Value;
    p50Ms: Value;
    p99Ms: Value;
    errors: number;
}

const P50 = '50.000000';
const P99 = '99.000000';

/** One row a job and direction, on each OSD where OSDs are probed: streams are put together,
 * percentiles are those of the stream where they are highest. */
export function rowsOf(jobs: FioJob[]): ResultRow[] {
    const groups = new Map<string, [FioJob, 'read' | 'write', FioDirection[], number]>();
    for (const job of jobs) {
        for (const name of ['read', 'write'] as const) {
            if (job[name].total_ios) {
                const key = JSON.stringify([job.jobname, job.osd, job.part, name]);
                const group = groups.get(key) ?? [job, name, [], 0];
                group[2].push(job[name]);
                group[3] += job.errors;
                groups.set(key, group);
            }
        }
    }
    return [...groups.values()].map(([job, direction, found, errors]) => ({
        job: job.jobname, osd: job.osd, part: job.part, direction, errors,
        iops: sum(found, (each) => each.iops),
        bytesPerSecond: sum(found, (each) => each.bw_bytes),
        meanMs: mean(found), p50Ms: highest(found, P50), p99Ms: highest(found, P99),
    }));
}

function sum(found: FioDirection[], value: (each: FioDirection) => number): number {
    return found.reduce((total, each) => total + value(each), 0);
}

function mean(found: FioDirection[]): Value {
    const ios = sum(found, (each) => each.total_ios);
    const total = sum(found, (each) => each.total_ios * each.lat_ns.mean);
    return ios && total ? total / ios / 1e6 : null;
}

function highest(found: FioDirection[], key: string): Value {
    const most = Math.max(0, ...found.map((each) => each.clat_ns.percentile?.[key] ?? 0));
    return most ? most / 1e6 : null;
}

export interface Field {
    name: string;
    type: string;
    value: string;
    checked?: boolean;
}

export function fieldsOf(form: HTMLFormElement): Field[] {
    return Array.from(form.elements) as HTMLInputElement[];
}

/** The values of fields, without empty ones; a ticked box is true. */
export function bodyOf(fields: Field[]): Record<string, string | boolean> {
    const body: Record<string, string | boolean> = {};
    for (const { name, type, value, checked = false } of fields) {
        const held = type === 'checkbox' ? checked : value.trim();
        if (name && held) {
            body[name] = held;
        }
    }
    return body;
}
