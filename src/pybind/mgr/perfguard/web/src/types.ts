// SPDX-License-Identifier: LGPL-2.1-or-later
// What the API answers. Keys may be added there, so only those that the page reads are named.

export type Phase = 'IDLE' | 'PREPARED' | 'PINNING' | 'PINNED' | 'RELEASING' | 'HOLDING'
    | 'FINISHING' | 'DONE' | 'ABORTING' | 'ABORTED';

export type Value = number | null;

/** Rows of a time series, oldest first; `columns` names what is in a row. */
export interface Table {
    columns: string[];
    rows: Value[][];
}

export interface PoolTable extends Table {
    pool: string;
}

export interface Signals {
    laggy_pgs: number;
    degraded_pgs: number;
    inactive_pgs: number;
    backfilling_pgs: number;
    active_clean_pgs: number;
    pgs: number;
    slow_ops: number;
    misplaced_ratio: number;
    recovery_bytes_per_second: number;
    health_status: string;
    read_ms: Value;
    write_ms: Value;
    read_rate: number;
    write_rate: number;
    read_p99_ms: Value;
    write_p99_ms: Value;
}

export interface Pool {
    pool: string;
    id: number;
    read_ms: Value;
    write_ms: Value;
    read_rate: number;
    write_rate: number;
    read_target_ms: Value;
    write_target_ms: Value;
    slow: string[];
}

export interface RunningProbe {
    id: number;
    state: string;
    target: string;
    share: number;
    text: string;
}

export interface Reason {
    code: string;
    text: string;
    /** The command that goes on; '' if the text has one, or if only time helps. */
    next: string;
}

export interface Status {
    phase: Phase;
    mode: string;
    health: string[];
    /** Empty until the first turn of the loop. */
    signals: Partial<Signals>;
    pools: Pool[];
    probe: RunningProbe | null;
    reasons: string[];
    limits: Reason[];
}

export interface Unpinnable {
    pgid: string;
    reason: string;
}

export interface Campaign {
    id: number | null;
    phase: Phase;
    paused: boolean;
    /** Ended, with PGs that wait for a decision of the operator. */
    held: boolean;
    trigger: string | null;
    target: string;
    total: number;
    pinned: number;
    in_flight: number;
    released: number;
    /** 0 to 1: arrived, of those that have to move. */
    done_ratio: number;
    kept: number;
    /** The first ones. */
    unpinnable: Unpinnable[];
    unpinnable_count: number;
    bytes_total: number;
    bytes_done: number;
    eta_seconds: Value;
    eta_low_seconds: Value;
    eta_high_seconds: Value;
    limit: number;
    started: Value;
    ended: Value;
    reasons: string[];
    limits: Reason[];
    /** Codes of stop conditions that are waived. */
    acknowledged: string[];
    /** The present part of a change in tranches, and the number of all; 0: it is not divided. */
    tranche: number;
    tranches: number;
    paused_until: Value;
    /** OSDMap epochs since it began. */
    epochs: number;
    /** Options that are set for this campaign only. */
    settings: Record<string, string>;
    bill: Bill | null;
}

/** What a campaign has cost so far. Latencies in ms; null: not measured. */
export interface Bill {
    bytes_moved: number;
    bytes_required: Value;
    phase_seconds: Record<string, number>;
    latency_before: Record<string, Value>;
    latency_while_moving: Record<string, Value>;
    operations: number;
    /** 0 to 1: operations whose latency was counted. */
    counted_ratio: Value;
    over_100_ms: SlowOps;
    over_1_s: SlowOps;
    settings: BorrowedSetting[];
}

export interface SlowOps {
    total: number;
    /** Explained by movement, not explained by it, and unknown. */
    movement: number;
    others: number;
    unknown: number;
}

export interface BorrowedSetting {
    what: string;
    put: string;
    seconds: number;
    /** "borrowed", "given back" or "changed by others". */
    state: string;
}

/** A preview that was saved, to be carried out once it is approved. */
export interface SavedPlan {
    plan: string;
    /** Tells plans of the same name apart. */
    token: string;
    saved: number;
    /** ready, changed or queued. */
    state: string;
    /** The command, such as "drain host3". */
    change: string;
    /** Codes of the risks that were accepted when it was saved. */
    accepted: string[];
    /** Why it was not carried out yet. */
    refused: string;
    /** Differences of the cluster since then. */
    changed: string[];
    pgs: number;
    bytes: number;
    eta_seconds: Value;
}

/** A setting that perfguard gives back. */
export interface Borrowed {
    what: string;
    /** The part of perfguard that has borrowed it. */
    owner: string;
    found: string | null;
    put: string;
    since: number;
    /** A ceph command. */
    restore: string;
}

/** Of `why`: a reason, and its share of the campaign's time. */
export interface Cause {
    code: string;
    text: string;
    /** As of Reason. */
    next: string;
    share: Value;
}

export interface RungSetting {
    what: string;
    who: string;
    found: string | null;
    put: string;
}

export interface Rung {
    id: number | null;
    rung: string;
    subject: string;
    state: string;
    since: Value;
    why: string;
    settings: RungSetting[];
    note: string;
}

export interface Mitigation {
    mode: string;
    rungs: Rung[];
}

export interface LaggyPg {
    pgid: string;
    acting: number[];
    since: number;
    primary: number;
}

export interface Suspect {
    osd: number;
    score: number;
    why: string;
    advice: string;
    mechanism: string;
}

export interface Laggy {
    laggy_pgs: number;
    wait_pgs: number;
    since: Value;
    /** The first ones. */
    pgs: LaggyPg[];
    pgs_count: number;
    suspects: Suspect[];
}

export interface CapacityRow {
    pool: string;
    p99_ms: number;
    /** Shares of what the pool serves at that p99. */
    used: { median: number; low: number; high: number };
    busiest: number;
    full_seconds: Value;
    certain: boolean;
    remarks: { code: string; text: string }[];
}

export interface Event {
    time: number;
    kind: string;
    what: string;
    why: string;
    id: number;
}

export interface ProbeSummary {
    id: number;
    state: string;
    profile: string;
    target: string;
    created: number;
    started: number;
    ended: number;
    trigger: string;
    baseline: boolean;
    client_limited: boolean;
    verdict: string;
    message: string;
}

export interface Schedule {
    name: string;
    begin_time: string;
    end_time: string;
    begin_weekday: string;
    end_weekday: string;
    every_days: string;
    probe: Record<string, string>;
    refused: string;
}

export interface May {
    update: boolean;
    create: boolean;
    delete: boolean;
}

export interface Overview {
    now: number;
    turned: number;
    stale_after: number;
    name: string;
    fsid: string;
    may: May;
    user: string;
    status: Status;
    /** Empty until the first turn of the loop. */
    rebalance: Partial<Campaign>;
    mitigation: Mitigation;
    laggy: Laggy;
    /** The pools with the highest shares. */
    capacity: CapacityRow[];
    events: Event[];
    probe: { probes: ProbeSummary[] };
    schedules: Schedule[];
    series: { cluster: Table; pools: Record<string, PoolTable> };
}

export interface Osd {
    osd: number;
    host: string;
    /** Empty: in none. */
    rack: string;
    device_class: string;
    read_ms: Value;
    write_ms: Value;
    store_ms: Value;
    score: Value;
    slow: boolean;
    why: string;
    since: Value;
    read_rate: number;
    write_rate: number;
    read_p99_ms: Value;
    write_p99_ms: Value;
    ping_ms: Value;
    silent_seconds: Value;
    pgs: Record<string, number>;
    pgs_in: number;
    pgs_out: number;
}

export interface FioDirection {
    iops: number;
    bw_bytes: number;
    total_ios: number;
    lat_ns: { mean: number };
    clat_ns: { percentile?: Record<string, number> };
}

export interface FioJob {
    jobname: string;
    osd: number | null;
    part: string;
    stream: string;
    'job options': Record<string, string>;
    read: FioDirection;
    write: FioDirection;
    errors: number;
    first_error: string;
}

export interface ProbeDetails extends ProbeSummary {
    jobs: FioJob[];
    findings: string[];
    conditions: string[];
    messages: string[];
    /** By job, direction and OSD, of a probe at several queue depths. */
    curves: Curve[];
    /** By direction, of a probe of growing numbers of OSDs. */
    scalings: Scaling[];
}

/** Of the repetitions. */
export interface Measure {
    median: number;
    low: number;
    high: number;
}

export interface CurvePoint {
    depth: number;
    iops: Measure;
    latency_ns: Measure;
    p99_ns: Measure;
    client_limited: boolean;
}

export interface Price {
    from_iops: number;
    to_iops: number;
    from_latency_ns: number;
    to_latency_ns: number;
    times: number;
}

export interface Curve {
    label: string;
    direction: string;
    osd: number | null;
    points: CurvePoint[];
    knee_depth: number;
    peak_depth: number;
    last_tenth: Price | null;
    notes: string[];
}

export interface ScalePoint {
    osds: number;
    hosts: number | null;
    iops: Measure;
    latency_ns: Measure;
    linear: number;
    client_limited: boolean;
}

export interface Scaling {
    label: string;
    direction: string;
    points: ScalePoint[];
    notes: string[];
}

export interface Estimate {
    a: number;
    b: number;
    ratio: number;
    low: number;
    high: number;
    verdict: string;
}

export interface CompareLine {
    job: string;
    verdict: string;
    p: number;
    why: string;
    iops?: Estimate;
    bandwidth?: Estimate;
    latency?: Estimate;
    p99?: Estimate;
}

export interface Comparison {
    before: number;
    after: number;
    verdict: string;
    notes: string[];
    lines: CompareLine[];
}
