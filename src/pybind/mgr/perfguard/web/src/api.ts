// SPDX-License-Identifier: LGPL-2.1-or-later
// Requests to perfguard's part of the dashboard's API, and their errors.

const MEDIA_TYPE = 'application/vnd.ceph.api.v1.0+json';
/** An order waits for up to 30 s for perfguard's loop. */
export const TIMEOUT_MS = 10_000;
const ORDER_TIMEOUT_MS = 40_000;

/** The kinds of errors:
 *  unreachable  no answer, none in time, or one that is not the dashboard's
 *  login        the login has expired
 *  forbidden    the user lacks the permission
 *  elsewhere    a redirection to another address: by a standby, or by a proxy that requires a login
 *  down         the dashboard answers, perfguard does not
 *  refused      perfguard refuses the request, with the reason
 */
export type Trouble = 'unreachable' | 'login' | 'forbidden' | 'elsewhere' | 'down' | 'refused';

export class ApiError extends Error {
    constructor(readonly trouble: Trouble, message: string, readonly status = 0) {
        super(message);
        this.name = 'ApiError';
    }
}

/** Where the dashboard is, from the path of the page: "/a/perfguard/" -> "/a". */
export function prefixOf(pathname: string): string {
    const match = /^(.*)\/perfguard(?:\/.*)?$/.exec(pathname);
    return (match?.[1] ?? '').replace(/\/+$/, '');
}

export type Query = Record<string, string | number | undefined>;

/** The dashboard decodes what is in an address once more than the protocol asks for. */
function encoded(value: string | number): string {
    return encodeURIComponent(encodeURIComponent(String(value)));
}

/** "plan", "rack2" -> "plan/rack2", with any characters in a name. */
export function pathOf(...parts: (string | number)[]): string {
    return parts.map(encoded).join('/');
}

export function urlOf(prefix: string, path: string, query: Query = {}): string {
    const words = Object.entries(query)
        .flatMap(([key, value]) => (value === undefined || value === '' ? []
            : [`${encodeURIComponent(key)}=${encoded(value)}`]));
    const tail = words.length ? `?${words.join('&')}` : '';
    return `${prefix}/api/perfguard/${path}${tail}`;
}

/** The error in an answer; null: none. `body`: its content, if it was JSON. */
export function errorOf(status: number, redirected: boolean, body: unknown): ApiError | null {
    if (redirected) {
        // The target is not visible to scripts.
        return new ApiError('elsewhere', 'the request was redirected: either another '
            + 'mgr is active now, or a proxy requires a login', status);
    }
    if (status >= 200 && status < 300) {
        return null;
    }
    const detail = detailOf(body);
    if (status === 401) {
        return new ApiError('login', 'the login has expired', status);
    }
    if (status === 403) {
        return new ApiError('forbidden', detail || 'permission denied', status);
    }
    if (!detail && (status === 502 || status === 504)) {
        return new ApiError('unreachable', `a proxy received no answer (error ${status})`, status);
    }
    if (status === 503 || (status >= 500 && !detail)) {
        return new ApiError('down', detail || `the dashboard returned error ${status}`, status);
    }
    return new ApiError('refused', detail || `error ${status}`, status);
}

function detailOf(body: unknown): string {
    if (body && typeof body === 'object' && 'detail' in body) {
        const { detail } = body as { detail: unknown };
        return typeof detail === 'string' ? detail : JSON.stringify(detail);
    }
    return '';
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export class Api {
    constructor(
        readonly prefix: string,
        private readonly fetch: Fetch = (url, init) => window.fetch(url, init),
    ) {}

    get<T>(path: string, query: Query = {}): Promise<T> {
        return this.ask<T>('GET', urlOf(this.prefix, path, query), undefined, TIMEOUT_MS);
    }

    post<T>(path: string, body: object = {}): Promise<T> {
        return this.ask<T>('POST', urlOf(this.prefix, path), body, ORDER_TIMEOUT_MS);
    }

    remove<T>(path: string): Promise<T> {
        return this.ask<T>('DELETE', urlOf(this.prefix, path), undefined, ORDER_TIMEOUT_MS);
    }

    private async ask<T>(method: string, url: string, body: object | undefined,
        timeout: number): Promise<T> {
        const abort = new AbortController();
        const timer = setTimeout(() => abort.abort(), timeout);
        try {
            const answer = await this.fetch(url, request(method, body, abort.signal));
            const redirected = answer.type === 'opaqueredirect' || answer.redirected;
            const text = redirected ? '' : await answer.text();
            const data = jsonOf(text);
            const error = errorOf(answer.status, redirected, data);
            if (error) {
                throw error;
            }
            if (data === undefined && text) {
                // A standby that knows of no active mgr has a page to say so.
                throw new ApiError('unreachable', 'no mgr is active, or this '
                    + 'is not the address of the dashboard', answer.status);
            }
            return data as T;
        } catch (error) {
            if (error instanceof ApiError) {
                throw error;
            }
            throw new ApiError('unreachable', abort.signal.aborted
                ? `no answer within ${timeout / 1000} s` : 'the mgr cannot be reached');
        } finally {
            clearTimeout(timer);
        }
    }
}

function request(method: string, body: object | undefined, signal: AbortSignal): RequestInit {
    return {
        method, signal,
        headers: {
            Accept: MEDIA_TYPE,
            ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        credentials: 'same-origin', cache: 'no-store', redirect: 'manual',
    };
}

function jsonOf(text: string): unknown {
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}
