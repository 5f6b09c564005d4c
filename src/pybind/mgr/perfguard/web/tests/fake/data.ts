// SPDX-License-Identifier: LGPL-2.1-or-later
// A made-up cluster in the middle of an expansion, with hostile names where it is to be a test.
import type {
    Bill, Campaign, Comparison, Curve, Event, Measure, Osd, Overview, Phase, Pool,
    ProbeDetails, ProbeSummary, Scaling, Schedule, Status, Table, Value,
} from '../../src/types';

export const HOSTILE = '<img src=x onerror=alert(1)>';
const LONG = 'a-pool-of-a-name-that-never-ends-'.repeat(9);
const STEP_SECONDS = 5;
const ROWS = 720;
const PER_HOST = 18;
const RACKS = 6;
/** When an OSD began to hang, where releases are held because of that. */
const HUNG_SINCE = Date.now() / 1000 - 34;
/** It begins again and again, at a fifth of its way, and ends at nine tenths. */
const CAMPAIGN_SECONDS = 7200;

export interface Scenario {
    phase: Phase;
    paused?: boolean;
    osds: number;
    may: boolean;
    /** Seconds since the loop came round. */
    hangs?: number;
    probe?: boolean;
    /** OSDs that are still to boot. */
    awaits?: boolean;
    mode?: string;
    /** Id of the mgr. */
    name?: string;
    /** When the mgr began to watch: it knows nothing of before. */
    begun?: number;
}

/** The same every time: a linear congruential generator. */
function random(seed: number): () => number {
    let state = seed;
    return () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return state / 2 ** 32;
    };
}

const POOLS: [number, string, number][] = [
    [1, 'rbd', 0.8], [2, HOSTILE, 2.5], [3, LONG, 6], [4, 'a "quoted" 100%/#pool', 1.4],
    [5, 'cephfs.home.data', 1.1], [6, '.mgr', 0.5]];

const CLUSTER_COLUMNS = [
    'time', 'seconds', 'read_ms', 'write_ms', 'read_rate', 'write_rate', 'laggy_pgs',
    'degraded_pgs', 'backfilling_pgs', 'slow_ops', 'misplaced_ratio', 'recovery_bytes_per_second',
    'in_flight', 'read_p50_ms', 'read_p99_ms', 'write_p50_ms', 'write_p99_ms'];
const POOL_COLUMNS = ['time', 'seconds', 'read_ms', 'write_ms', 'read_rate', 'write_rate',
    'read_p50_ms', 'read_p99_ms', 'write_p50_ms', 'write_p99_ms'];

/** Number of the row that ends at or before `now`; the same for all. */
function rowAt(now: number): number {
    return Math.floor(now / STEP_SECONDS);
}

function rowsOf(since: number, now: number, row: (time: number) => Value[]): Value[][] {
    const last = rowAt(now);
    const first = Math.max(last - ROWS + 1, Math.floor(since / STEP_SECONDS) + 1);
    const rows: Value[][] = [];
    for (let at = first; at <= last; at += 1) {
        rows.push(row(at * STEP_SECONDS));
    }
    return rows;
}

/** 0 to 1: how loaded the cluster is; the same for the same time. */
function load(time: number, busy: boolean): number {
    const wave = 0.5 + 0.3 * Math.sin(time / 311) + 0.2 * Math.sin(time / 47);
    const noise = Math.abs(43758.5453 * Math.sin(time)) % 1;
    return (busy ? 1 : 0.5) * (0.75 * wave + 0.25 * noise);
}

/** An OSD hangs, so PGs are laggy and releases are held. */
function isHung({ phase, paused }: Scenario): boolean {
    return phase === 'HOLDING' && !paused;
}

function clusterTable(scenario: Scenario, since: number, now: number): Table {
    const busy = scenario.phase === 'RELEASING' || scenario.phase === 'HOLDING';
    return {
        columns: CLUSTER_COLUMNS,
        rows: rowsOf(since, now, (time) => {
            const flight = busy ? Math.round(40 + 30 * load(time, true)) : 0;
            const share = (time % CAMPAIGN_SECONDS) / CAMPAIGN_SECONDS;
            const moving = busy ? 0.3 * (0.8 - 0.7 * share) : 0;
            const hangs = isHung(scenario) && time > HUNG_SINCE;
            const trouble = hangs || busy && !isHung(scenario) && Math.sin(time / 200) > 0.97;
            const slower = hangs ? 6 : 1;
            return [time, STEP_SECONDS, slower * (0.6 + load(time, busy)),
                slower * (1.9 + 2 * load(time, busy)), 31000 / slower,
                12000 / slower, trouble ? 3 : 0, trouble && !hangs ? 12 : 0,
                Math.round(0.8 * flight), trouble ? 5 : 0, moving,
                flight * 21e6 * (0.8 + 0.4 * load(time, true)), flight,
                0.5 + load(time, busy), slower * (3 + 9 * load(time, busy)),
                1.5 + load(time, busy), slower * (8 + 20 * load(time, busy))];
        }),
    };
}

function poolTable(id: number, scale: number, scenario: Scenario, since: number,
    now: number): Table {
    const busy = scenario.phase === 'RELEASING';
    return {
        columns: POOL_COLUMNS,
        rows: rowsOf(since, now, (time) => {
            const slower = isHung(scenario) && time > HUNG_SINCE ? 6 : 1;
            const level = slower * scale * (0.6 + load(time + 97 * id, busy));
            // The third pool is too quiet for percentiles, and sometimes it has no writes.
            const tail = id !== 3;
            const writes = id !== 3 || time % 600 < 450;
            return [time, STEP_SECONDS, level, writes ? 2 * level : null, 8000 / id,
                writes ? 3000 / id : 0, tail ? 0.8 * level : null, tail ? 4 * level : null,
                tail ? 1.7 * level : null, tail ? 9 * level : null];
        }),
    };
}

function pools(): Pool[] {
    return POOLS.map(([id, pool, scale]) => ({
        pool, id, read_ms: scale, write_ms: 2 * scale, read_rate: 8000 / id,
        write_rate: 3000 / id, read_target_ms: id === 6 ? null : 1.6 * scale,
        write_target_ms: id === 6 ? null : 3.2 * scale, slow: [],
    }));
}

function hostOf(osd: number): string {
    const number = Math.floor(osd / PER_HOST);
    return number === 3 ? `rack-b-${HOSTILE}` : `storage-${String(number).padStart(2, '0')}`;
}

export function osds(scenario: Scenario, now: number): Osd[] {
    const fresh = scenario.osds - Math.floor(scenario.osds / 10);
    const moving = ['PINNED', 'RELEASING', 'HOLDING'].includes(scenario.phase);
    return Array.from({ length: scenario.osds }, (_, osd) => {
        const next = random(osd + 1);
        const wobble = 0.1 * Math.sin(now / 20 + osd);
        const slow = osd === 41 % scenario.osds || osd === 333;
        const warm = osd % 89 === 7;
        const score = slow ? 4.2 + wobble : warm ? 1.9 + wobble : 0.9 + 0.35 * next() + wobble;
        const down = osd === 100;
        const ms = down ? null : score * 1.3;
        return {
            osd, host: hostOf(osd), rack: `rack-${1 + Math.floor(osd / PER_HOST) % RACKS}`,
            device_class: osd % 3 ? 'hdd' : 'ssd',
            read_ms: ms, write_ms: ms && 2 * ms, store_ms: ms && 0.7 * ms,
            score: down ? null : score, slow,
            why: slow ? `writes take ${score.toFixed(1)} times as long as on its peers` : '',
            since: slow ? now - 340 : null, read_rate: 90 * next(), write_rate: 40 * next(),
            read_p99_ms: ms && 5 * ms, write_p99_ms: ms && 9 * ms, ping_ms: 0.3 + next(),
            silent_seconds: down ? 73 : null, pgs: slow ? { laggy: 3 } : {},
            pgs_in: moving && osd >= fresh ? Math.round(60 * next()) : 0,
            pgs_out: moving && osd < fresh ? Math.round(5 * next()) : 0,
        };
    });
}

/** The campaign starts again every two hours. */
function campaign(scenario: Scenario, now: number): Partial<Campaign> {
    const { phase, paused = false } = scenario;
    if (phase === 'IDLE') {
        return { id: null, phase, paused, reasons: [], total: 0, unpinnable: [],
            unpinnable_count: 0, limits: scenario.awaits ? [
                { code: 'AWAITS_OSDS', text: 'waiting for OSDs: none so far', next: '' }] : [] };
    }
    const total = 4711;
    const share = phase === 'DONE' ? 1 : ['RELEASING', 'HOLDING', 'ABORTED'].includes(phase)
        ? 0.2 + 0.7 * ((now % CAMPAIGN_SECONDS) / CAMPAIGN_SECONDS) : 0;
    const released = Math.round(0.9 * share * total);
    const kept = Math.round(0.1 * share * total);
    const flying = phase === 'RELEASING' || phase === 'HOLDING' ? 56 : 0;
    const left = (1 - share) / 0.7 * CAMPAIGN_SECONDS;
    const known = phase === 'RELEASING';
    return {
        id: 7, phase, paused, held: phase === 'ABORTED', trigger: 'expand', target: 'balanced', total, released, kept,
        done_ratio: total > kept ? released / (total - kept) : 1,
        in_flight: flying, pinned: phase === 'PREPARED' ? 0 : total - released - kept - flying,
        unpinnable: phase === 'PINNED' ? [{ pgid: '2.1f', reason: 'its rule has no OSD left' }]
            : [],
        unpinnable_count: phase === 'PINNED' ? 812 : 0,
        bytes_total: 10e12, bytes_done: share * 10e12, eta_seconds: known ? left : null,
        eta_low_seconds: known ? 0.9 * left : null, eta_high_seconds: known ? 1.13 * left : null,
        limit: phase === 'RELEASING' ? 60 : 0, epochs: 1830, tranche: 2, tranches: 5,
        settings: { latency_factor: '2' }, paused_until: paused ? now + 600 : null,
        started: now - share / 0.7 * CAMPAIGN_SECONDS,
        ended: phase === 'DONE' || phase === 'ABORTED' ? now - 60 : null, reasons: reasons(scenario),
        bill: BILL,
    };
}

const BILL: Bill = {
    bytes_moved: 10e12, bytes_required: 9.6e12,
    phase_seconds: { PINNING: 34, RELEASING: 6720, HOLDING: 180, FINISHING: 12 },
    latency_before: { read_p50_ms: 0.31, read_p99_ms: 3.1, write_p50_ms: 1.2, write_p99_ms: 8.4 },
    latency_while_moving: {
        read_p50_ms: 0.34, read_p99_ms: 4.4, write_p50_ms: 1.4, write_p99_ms: null,
    },
    operations: 310420117, counted_ratio: 0.93,
    over_100_ms: { total: 5120, movement: 4080, others: 940, unknown: 100 },
    over_1_s: { total: 0, movement: 0, others: 0, unknown: 0 },
    settings: [
        { what: 'flag norebalance', put: 'set', seconds: 34, state: 'given back' },
        { what: `${HOSTILE} of pools`, put: 'off', seconds: 6930, state: 'changed by others' }],
};

function reasons({ phase, paused }: Scenario): string[] {
    switch (phase) {
        case 'RELEASING':
            return ['at most 60 PGs in flight: write latency of pool rbd is near its limit of 2.56 ms',
                'osd.41 is slower than its peers (PERFGUARD_SLOW_OSD)',
                'objects are misplaced: campaign 7 moves 56 PGs'];
        case 'HOLDING':
            return paused ? ['paused by command'] : [
                '3 PGs are laggy: nothing is released until they are not'];
        case 'IDLE':
            return ['no campaign is active'];
        default:
            return [`campaign 7 is ${phase}`];
    }
}

function status(scenario: Scenario, now: number): Status {
    const table = clusterTable(scenario, now - 2 * STEP_SECONDS, now);
    const row = table.rows[table.rows.length - 1]!;
    const at = (name: string) => row[table.columns.indexOf(name)] ?? 0;
    const holding = isHung(scenario);
    return {
        phase: scenario.phase, mode: scenario.mode ?? 'act',
        health: scenario.phase === 'RELEASING' ? ['PERFGUARD_SLOW_OSD']
            : holding ? ['PERFGUARD_LAGGY_PGS', 'PERFGUARD_SLOW_OSD'] : [],
        signals: {
            laggy_pgs: holding ? 3 : 0, degraded_pgs: 0, inactive_pgs: 0, pgs: 16384,
            backfilling_pgs: at('backfilling_pgs'), active_clean_pgs: 16320,
            slow_ops: at('slow_ops'), misplaced_ratio: at('misplaced_ratio'),
            recovery_bytes_per_second: at('recovery_bytes_per_second'),
            health_status: 'HEALTH_WARN', read_ms: at('read_ms'), write_ms: at('write_ms'),
            read_rate: 31042, write_rate: 12310, read_p99_ms: at('read_p99_ms'),
            write_p99_ms: at('write_p99_ms'),
        },
        pools: pools(),
        probe: scenario.probe ? {
            id: 9, state: 'running', target: 'pool rbd', share: (now % 60) / 60,
            text: 'step 7 of 18, randread 4k at depth 128, 24 s left',
        } : null,
        reasons: reasons(scenario),
        limits: reasons(scenario).map((text) => ({ code: 'X', text, next: '' })),
    };
}

const WORDS: [string, string, string][] = [
    ['release', '12 PGs released', 'write p99 under target'],
    ['throttle', 'limit 48 -> 60', 'write latency of pool rbd is 2.31 ms (limit 2.56 ms)'],
    ['slow osd', 'osd.41 is slower than its peers', 'writes take 4.2 times as long'],
    ['hold', `releases are held because of ${HOSTILE}`, '3 PGs are laggy']];

function events(since: number, now: number): Event[] {
    const found: Event[] = [];
    for (let at = Math.floor(now / 20), back = 0; back < 40; at -= 1, back += 1) {
        const [kind, what, why] = WORDS[at % WORDS.length]!;
        if (at * 20 > since) {
            found.unshift({ time: at * 20, id: at, kind, what, why });
        }
    }
    return found;
}

/** A probe at several queue depths, and one of growing numbers of OSDs. */
export const [CURVE, SCALE] = [8, 3];

export const PROBES: ProbeSummary[] = [1, 2, 3, 5, 8].map((id) => ({
    id, state: id === 5 ? 'cancelled' : 'done', profile: id === CURVE ? 'curve' : 'quick',
    target: id === 3 ? `pool ${HOSTILE}` : 'pool rbd', created: 1789990000 + 1000 * id,
    started: 1789990002 + 1000 * id, ended: 1789990060 + 1000 * id,
    trigger: id === 2 ? 'nightly' : 'command', baseline: id === 1, client_limited: id === 2,
    verdict: id === 2 ? 'slower than its baseline' : 'as expected',
    message: id === 5 ? 'cancelled by command' : '',
}));

export const SCHEDULES: Schedule[] = [{
    name: 'nightly', begin_time: '0200', end_time: '0400', begin_weekday: '0', end_weekday: '0',
    every_days: '1', probe: { profile: 'quick', pool: 'rbd' }, refused: '',
}, {
    name: 'weekly', begin_time: '0000', end_time: '2400', begin_weekday: '6', end_weekday: '0',
    every_days: '7', probe: { profile: 'latency', osd: 'all' },
    refused: 'a campaign is active',
}];

function direction(iops: number, bytes: number, ms: number) {
    return {
        iops, bw_bytes: iops * bytes, total_ios: iops * 10, lat_ns: { mean: ms * 1e6 },
        clat_ns: iops ? { percentile: { '50.000000': 0.9e6 * ms, '99.000000': 5e6 * ms } } : {},
    };
}

export function details(id: number): ProbeDetails | null {
    const summary = PROBES.find((each) => each.id === id);
    const nothing = direction(0, 0, 0);
    const job = {
        osd: null, part: '', stream: 's', errors: 0, first_error: '',
        'job options': { name: 'w', rw: 'randwrite', bs: '4k', iodepth: '1' },
    };
    const jobs = id === CURVE ? CURVES[0]!.points.map((point) => ({
        ...job, jobname: `depth-${point.depth}`, read: nothing,
        'job options': {
            ...job['job options'], name: `depth-${point.depth}`, iodepth: String(point.depth),
        },
        write: direction(point.iops.median, 4096, point.latency_ns.median / 1e6),
    })) : id === SCALE ? [1, 2, 4].map((osds) => ({
        ...job, jobname: 'randwrite-4k-1', osd: 0, part: String(osds), read: nothing,
        write: direction(800, 4096, 1.2),
    })) : null;
    return summary ? {
        ...summary, findings: id === 2 ? ['slower than probe 1: randwrite 0.71 times'] : [],
        conditions: ['deep scrub of 2 PGs'], messages: [],
        curves: id === CURVE ? CURVES : [], scalings: id === SCALE ? SCALINGS : [],
        jobs: jobs ?? [
            { ...job, jobname: 'randwrite-4k-1', read: nothing, write: direction(820, 4096, 1.2) },
            { ...job, jobname: 'randread-4k-1', write: nothing, read: direction(2210, 4096, 0.4) },
            { ...job, jobname: 'write-4m-16', read: nothing, write: direction(210, 4194304, 71) },
            { ...job, jobname: 'read-4m-16', write: nothing, read: direction(330, 4194304, 48) }],
    } : null;
}

function measure(median: number): Measure {
    return { median, low: 0.94 * median, high: 1.05 * median };
}

/** An M/M/1 queue that serves 20,000 operations per second. */
function curves(): Curve[] {
    const points = [1, 2, 4, 8, 16, 32, 64].map((depth) => {
        const iops = 20000 * depth / (depth + 4);
        return {
            depth, iops: measure(iops), latency_ns: measure(1e9 * depth / iops),
            p99_ns: measure(4e9 * depth / iops), client_limited: false,
        };
    });
    const to = points[6]!.latency_ns.median;
    return [{
        label: 'randwrite 4096 write', direction: 'write', osd: null, points, knee_depth: 4,
        peak_depth: 64, notes: ['throughput still rises at depth 64: the cluster can do more'],
        last_tenth: {
            from_iops: 0.9 * points[6]!.iops.median, to_iops: points[6]!.iops.median,
            from_latency_ns: 0.4 * to, to_latency_ns: to, times: 2.5,
        },
    }];
}

export const CURVES = curves();

export const SCALINGS: Scaling[] = [{
    label: 'randwrite 4096 write', direction: 'write', notes: [],
    points: [1, 2, 4].map((osds, doublings) => ({
        osds, hosts: null, iops: measure(800 * osds * 0.9 ** doublings),
        latency_ns: measure(1.2e6), linear: 0.9 ** doublings, client_limited: false,
    })),
}];

export function comparison(before: number, after: number): Comparison {
    const estimate = (a: number, ratio: number, verdict: string) => ({
        a, b: a * ratio, ratio, low: ratio * 0.86, high: ratio * 1.15, verdict,
    });
    return {
        before, after, verdict: 'slower',
        notes: ['one repetition each is thin evidence'],
        lines: [
            { job: 'randwrite-4k-1', verdict: 'slower', p: 0.003,
                why: '0.69 times (0.58 to 0.83); 566 IOPS, before 820',
                iops: estimate(820, 0.69, 'slower'), bandwidth: estimate(3.3e6, 0.69, 'slower'),
                latency: estimate(1.2e6, 1.45, 'slower'), p99: estimate(6e6, 1.9, 'slower') },
            { job: 'randread-4k-1', verdict: 'no difference', p: 0.4, why: '1.02 times',
                iops: estimate(2210, 1.02, 'no difference'),
                bandwidth: estimate(9e6, 1.02, 'no difference'),
                latency: estimate(0.4e6, 0.98, 'no difference'),
                p99: estimate(2e6, 1.05, 'cannot tell') },
            { job: 'write-4m-16', verdict: 'faster', p: 0.01, why: '1.3 times',
                iops: estimate(210, 1.3, 'faster'), bandwidth: estimate(880e6, 1.3, 'faster') }],
    };
}

export function overview(scenario: Scenario, since: number, chosen: number[],
    now: number): Overview {
    const known = Math.max(since, scenario.begun ?? 0);
    const charted = POOLS.filter(([id]) => (chosen.length ? chosen.includes(id) : id <= 4));
    const holding = isHung(scenario);
    return {
        now, turned: now - (scenario.hangs ?? 0.4), stale_after: 20,
        name: scenario.name ?? 'x',
        fsid: '8f1c9a2e-5c1b-4a53-9a46-6c1a51ac1d0b', user: scenario.may ? 'admin' : 'guest',
        may: { update: scenario.may, create: scenario.may, delete: scenario.may },
        status: status(scenario, now), rebalance: campaign(scenario, now),
        mitigation: {
            mode: scenario.mode ?? 'act',
            rungs: [
                { id: null, rung: 'hold releases', subject: '', state: holding ? 'held' : 'idle',
                    since: holding ? HUNG_SINCE + 3 : null, why: holding ? '3 PGs are laggy' : '',
                    settings: [], note: '' },
                { id: null, rung: 'norebalance', subject: '', state: 'idle', since: null, why: '',
                    settings: [], note: '' },
                { id: 3, rung: 'slow recovery', subject: '', state: 'held', since: now - 400,
                    why: 'write p99 over target for 60 s', note: '', settings: [
                        { what: 'osd_mclock_profile', who: 'osd', found: null,
                            put: 'high_client_ops' }] },
                { id: 4, rung: 'primary affinity', subject: 'osd.41', state: 'would',
                    since: now - 90, why: 'osd.41 is slower than its peers', settings: [],
                    note: '' }],
        },
        laggy: {
            laggy_pgs: holding ? 3 : 0, wait_pgs: 0, since: holding ? HUNG_SINCE : null,
            pgs: holding ? ['2.1a', '2.3f', '4.77'].map((pgid) => ({
                pgid, acting: [12, 41, 77], since: HUNG_SINCE + 4, primary: 12,
            })) : [],
            pgs_count: holding ? 3 : 0,
            suspects: holding ? [{ osd: 41, score: 0.93,
                why: 'in the acting set of all 3 laggy PGs, leads none, silent for 34 s',
                advice: 'osd.41 hangs or its host is unreachable: check both; "ceph osd down 41" makes '
                    + `its PGs peer without it ${HOSTILE}`, mechanism: 'hangs' }] : [],
        },
        capacity: [{ pool: 'rbd', p99_ms: 5, used: { median: 0.38, low: 0.34, high: 0.45 },
            busiest: 0.61, full_seconds: 3024000, certain: true, remarks: [] }],
        events: events(since, now),
        probe: { probes: PROBES }, schedules: SCHEDULES,
        series: {
            cluster: clusterTable(scenario, known, now),
            pools: Object.fromEntries(charted.map(([id, pool, scale]) => [
                String(id), { pool, ...poolTable(id, scale, scenario, known, now) }])),
        },
    };
}
