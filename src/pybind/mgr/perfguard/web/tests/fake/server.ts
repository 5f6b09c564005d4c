// SPDX-License-Identifier: LGPL-2.1-or-later
// Serves the built page as the dashboard does, with an API that is made up:
//
//     node server.mjs [--port P] [--page DIRECTORY] [--name ID]
//
// The first part of the path is what is going on there: /releasing/perfguard, /idle/perfguard,
// ... (see SCENARIOS); it is the proxy's prefix at the same time. Orders change the phase. With a
// name it is an mgr that has just taken over and knows nothing of the last hour.
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Phase } from '../../src/types';
import {
    comparison, details, HOSTILE, osds, overview, type Scenario,
} from './data';

const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    + "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
const BIG = 630;
/** So that there is time to leave the question before it is answered. */
const REFUSED_AFTER_MS = 1000;

interface Faked extends Scenario {
    /** What the API answers instead. */
    status?: number;
    /** So many requests for the OSDs are answered. */
    osdsLeft?: number;
}

function scenarios(): Record<string, Faked> {
    const name = argument('name', '');
    const usual = {
        osds: BIG, may: true, ...(name ? { name, begun: Date.now() / 1000 } : {}),
    };
    return {
        x: { ...usual, phase: 'RELEASING', probe: true },
        releasing: { ...usual, phase: 'RELEASING', probe: true },
        holding: { ...usual, phase: 'HOLDING' },
        paused: { ...usual, phase: 'HOLDING', paused: true },
        idle: { ...usual, phase: 'IDLE', mode: 'observe' },
        waiting: { ...usual, phase: 'IDLE' },
        replacing: { ...usual, phase: 'IDLE' },
        applying: { ...usual, phase: 'IDLE' },
        awaiting: { ...usual, phase: 'IDLE', awaits: true },
        balancing: { ...usual, phase: 'IDLE' },
        ruling: { ...usual, phase: 'IDLE' },
        splitting: { ...usual, phase: 'IDLE' },
        planned: { ...usual, phase: 'IDLE' },
        exchanging: { ...usual, phase: 'IDLE' },
        phone: { ...usual, phase: 'IDLE' },
        pinned: { ...usual, phase: 'PINNED' },
        aborted: { ...usual, phase: 'ABORTED' },
        done: { ...usual, phase: 'DONE' },
        huge: { ...usual, phase: 'RELEASING', osds: 1080 },
        small: { ...usual, phase: 'RELEASING', osds: 6 },
        readonly: { ...usual, phase: 'RELEASING', may: false },
        stale: { ...usual, phase: 'RELEASING', hangs: 300 },
        expired: { ...usual, phase: 'RELEASING', status: 401 },
        forgetful: { ...usual, phase: 'RELEASING', osdsLeft: 1 },
        down: { ...usual, phase: 'RELEASING', status: 503 },
        standby: { ...usual, phase: 'RELEASING', status: 303 },
    };
}

const SCENARIOS = scenarios();
const AFTER: Record<string, [Phase, boolean]> = {
    prepare: ['PREPARED', false], expand: ['RELEASING', false], drain: ['RELEASING', false],
    undrain: ['RELEASING', false], replace: ['RELEASING', false],
    balance: ['RELEASING', false], rule: ['RELEASING', false], pg_num: ['RELEASING', false],
    crushmap: ['RELEASING', false], pin: ['PINNED', false], start: ['RELEASING', false],
    pause: ['HOLDING', true], resume: ['RELEASING', false], abort: ['ABORTED', false],
    approve: ['RELEASING', false], finish: ['DONE', false], rollback: ['ABORTING', false],
};

function argument(name: string, usual: string): string {
    const place = process.argv.indexOf(`--${name}`);
    return place > 0 ? process.argv[place + 1] ?? usual : usual;
}

const here = dirname(fileURLToPath(import.meta.url));
const page = argument('page', join(here, '..', '..', 'page'));

const FILES: Record<string, [string, string]> = {
    perfguard: ['index.html', 'text/html; charset=utf-8'],
    'perfguard/page.js': ['page.js', 'text/javascript; charset=utf-8'],
    'perfguard/page.css': ['page.css', 'text/css; charset=utf-8'],
};

function send(answer: ServerResponse, status: number, body: unknown): void {
    answer.writeHead(status, { 'Content-Type': 'application/json' });
    answer.end(JSON.stringify(body));
}

function refuse(answer: ServerResponse, status: number, detail: string): void {
    send(answer, status, { detail, code: String(status), component: 'perfguard' });
}

function file(answer: ServerResponse, path: string): boolean {
    const found = FILES[path];
    if (found) {
        answer.writeHead(200, { 'Content-Type': found[1], 'Content-Security-Policy': CSP });
        answer.end(readFileSync(join(page, found[0])));
    }
    return found !== undefined;
}

function serve(request: IncomingMessage, answer: ServerResponse): void {
    const url = new URL(request.url ?? '/', 'http://fake');
    const [, prefix = '', ...rest] = url.pathname.split('/');
    const scenario = SCENARIOS[prefix];
    const path = rest.join('/');
    if (!scenario || (!file(answer, path) && !path.startsWith('api/perfguard/'))) {
        refuse(answer, 404, 'there is no such page');
    } else if (path.startsWith('api/')) {
        api(scenario, request, answer, path.slice('api/perfguard/'.length), url);
    }
}

function api(scenario: Faked, request: IncomingMessage,
    answer: ServerResponse, path: string, url: URL): void {
    const now = Date.now() / 1000;
    if (scenario.status === 303) {
        answer.writeHead(303, { Location: 'https://127.0.0.1:1/' }).end();
    } else if (scenario.status) {
        refuse(answer, scenario.status, 'the module perfguard is not enabled');
    } else if (request.method === 'GET') {
        get(scenario, answer, path, url.searchParams, now);
    } else if (!scenario.may) {
        refuse(answer, 403, 'you may not do this');
    } else {
        let body = '';
        request.on('data', (part) => { body += part; });
        request.on('end', () => order(scenario, answer, path, JSON.parse(body || '{}')));
    }
}

function get(scenario: Faked, answer: ServerResponse, path: string, query: URLSearchParams,
    now: number): void {
    const probe = /^probe\/(\d+)$/.exec(path);
    if (path === 'overview') {
        // Decoded twice, as by the dashboard.
        const pools = decodeURIComponent(query.get('pools') ?? '').split(',').filter(Boolean).map(Number);
        send(answer, 200, overview(scenario, Number(query.get('since')), pools, now));
    } else if (path === 'osds' && scenario.osdsLeft === 0) {
        refuse(answer, 503, 'no OSD has been looked at yet');
    } else if (path === 'osds') {
        if (scenario.osdsLeft) {
            scenario.osdsLeft -= 1;
        }
        send(answer, 200, { osds: osds(scenario, now) });
    } else if (path === 'held') {
        send(answer, 200, { held: HELD });
    } else if (path === 'plan') {
        send(answer, 200, { plans: PLANS });
    } else if (path === 'plan/rack2') {
        send(answer, 200, { ...PLANS[0], token: SAVED_AGAIN, preview: PREVIEW });
    } else if (path === 'why') {
        send(answer, 200, { subject: query.get('what'), causes: CAUSES });
    } else if (path === 'probe/compare') {
        send(answer, 200, comparison(Number(query.get('before')), Number(query.get('after'))));
    } else if (probe && details(Number(probe[1]))) {
        send(answer, 200, details(Number(probe[1])));
    } else {
        refuse(answer, 404, `there is no ${path}`);
    }
}

const HELD = [{
    what: 'mgr/balancer/active', owner: 'campaign', found: 'true', put: 'false', since: 1790000000,
    restore: 'ceph balancer on',
}];
const CAUSES = [
    { code: 'LATENCY', text: 'write latency of pool rbd is near its limit',
        next: '"campaign set latency_factor=<number>" changes the limit', share: 0.61 },
    { code: 'CAP_BACKFILLS', text: 'OSDs have their number of backfills', next: '', share: 0.3 },
    { code: 'IN_FLIGHT', text: '12 PGs are in flight', next: '', share: null },
];

/** The plan that is shown was saved after the list was made; no other may be approved. */
const SAVED_AGAIN = '2ab0';
const PLANS = [
    { plan: 'rack2', token: '1f9c', saved: 1790000000, state: 'ready', change: 'expand rack2', refused: '',
        accepted: ['PG_LIMIT', 'UNPINNABLE'], changed: [], pgs: 211, bytes: 9.1e12,
        eta_seconds: 86400 },
    { plan: 'old', token: '77aa', saved: 1780000000, state: 'changed', change: 'drain host3', refused: '',
        accepted: [], changed: [`CRUSH (version 7, now 9): ${HOSTILE}`], pgs: 40, bytes: 1e12,
        eta_seconds: null },
];

const PREVIEW = {
    dry_run: true, campaign: null, weights: { 'osd.630': 1, 'osd.631': 1 },
    one_epoch: true, reason: '', pgs: 211, shards: 230, bytes: 9.1e12, primaries_moving: 70,
    unpinnable_pgs: 0, target: 'pool rbd', seconds: 58, objects: 512, stored_bytes: 201326592,
    refusals: [],
    balanced: {
        shards: 244, bytes: 9.6e12, extra_shards: 14, limit_shards: 460, deviation: 0.9,
        target_deviation: 1, max_extra_movement: 1, limited: false,
    },
    tranches: 2, pin_limit: 120, eta_seconds: 86400, eta_low_seconds: 50000,
    eta_high_seconds: 150000, eta_basis: 'no campaign yet',
    borrowed: [{ what: 'flag/norebalance', put: 'set' }],
    fast_peering: { text: 'paxos_propose_interval of the mons is 0.1 s' },
    osds: [
        { osd: 1, pgs_before: 120, pgs_after: 96, fill_before: 0.8, fill_after: 0.64 },
        { osd: 2, pgs_before: 130, pgs_after: 99, fill_before: 0.84, fill_after: 0.66 },
        { osd: 630, pgs_before: 0, pgs_after: 98, fill_before: null, fill_after: null }],
};

const CAPACITY = {
    classes: [{ class: 'ssd', before: { osds: 630, fill: 0.6, fullest_fill: 0.7 },
        after: { osds: 678, fill: 0.55, fullest_fill: 0.6 } }],
    pools: [{ pool: HOSTILE, max_avail_before: 1e12, max_avail_after: 2e12 }],
};
/** By the change, and whether it is of hosts that do not exist yet. */
const SUPPOSED: Record<string, object> = {
    expand: {
        ...PREVIEW, capacity: CAPACITY, what_if: {
            hosts: 4, osds: 48, size_bytes: 16e12, under: ['rack2'], device_class: 'ssd' },
    },
    lose: {
        verb: 'lose', dry_run: true, osds: [1, 2], total_bytes: 32e12, used_bytes: 9e12, shards: 230,
        bytes: 9e12, moved_bytes: 1e12, eta_seconds: null, eta_low_seconds: null,
        eta_high_seconds: null, pools: [{
            pool: HOSTILE, degraded_pgs: 120, inactive_pgs: 0, unreadable_pgs: 0, unplaced_pgs: 2 }],
        capacity: CAPACITY, nearfull_osds: [7], full_osds: [], warnings: ['noout is set'],
    },
};

/** In what the previews of some orders differ. */
const CHANGED: Record<string, object> = {
    replace: {
        drains: [{ osd: 7, phase: 'DRAINING', next: 'wait until the campaign has emptied it' }],
    },
    crushmap: { weights: {} },
    balance: {
        weights: {}, balanced: null, balance: {
            by: 'bytes', shards: 16, wanted_shards: 23, load_before: [0.32, 0.62],
            load_after: [0.45, 0.46], upmaps_before: 8, upmaps_after: 18, left_out: [], pools: [{
                pool: HOSTILE, deviation_before: 5, deviation_after: 1, max_avail_before: 1e12,
                max_avail_after: 2e12,
            }],
        },
    },
    rule: {
        weights: {}, rule: { pool: 'rbd', from: 'slow', to: HOSTILE, via: null, pins: 0,
            least_moves: null },
    },
    pg_num: { weights: {}, pg_num: { pool: 'rbd', from: 64, to: 128 } },
};

function order(scenario: Faked, answer: ServerResponse, path: string,
    body: { dry_run?: boolean; token?: string; crush_map?: string; awaited?: boolean;
        change?: string; drain?: string[] }): void {
    if (path === 'preview') {
        send(answer, 200, SUPPOSED[body.change ?? '']);
        return;
    }
    if (path.endsWith('crushmap') && !body.crush_map?.startsWith('# begin')) {
        refuse(answer, 400, 'not a CRUSH map, for a test');
        return;
    }
    if (body.awaited) {
        scenario.awaits = !body.dry_run;
        send(answer, 200, { message: 'OSDs that boot start with CRUSH weight 0' });
        return;
    }
    if (path === 'campaign/abort' && scenario.awaits) {
        scenario.awaits = false;
        send(answer, 200, { verb: 'abort' });
        return;
    }
    if (body.dry_run) {
        const drained = (body.drain ?? []).map((name) => [name, 0.0001]);
        send(answer, 200, {
            ...PREVIEW, ...(CHANGED[path] ?? {}),
            ...(drained.length ? { weights: Object.fromEntries(drained) } : {}),
        });
        return;
    }
    const verb = path.replace(/^(campaign|plan\/rack2)\//, '');
    const after = AFTER[verb];
    if (after && (verb !== 'approve' || body.token === SAVED_AGAIN)) {
        [scenario.phase, scenario.paused] = after;
        send(answer, 200, { verb, message: 'it will be done' });
    } else if (path === 'probe') {
        scenario.probe = true;
        send(answer, 201, { id: 9, dry_run: false });
    } else {
        setTimeout(() => refuse(answer, 409, `${path} is refused, for a test`), REFUSED_AFTER_MS);
    }
}

const server = createServer(serve);
server.listen(Number(argument('port', '0')), '127.0.0.1', () => {
    const address = server.address();
    const port = address && typeof address === 'object' ? address.port : 0;
    process.stdout.write(`http://127.0.0.1:${port}\n`);
});
