// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Api, ApiError, errorOf, pathOf, prefixOf, urlOf } from '../src/api';

test('the prefix is found behind any proxy, with and without a slash at the end', () => {
    const table: [string, string][] = [
        ['/perfguard', ''], ['/perfguard/', ''], ['/ceph/perfguard', '/ceph'],
        ['/a/b/perfguard/', '/a/b'], ['/perfguard/perfguard', '/perfguard'],
        ['/perfguard-proxy/perfguard', '/perfguard-proxy'], ['/x/perfguard//', '/x'], ['/', '']];
    for (const [path, prefix] of table) {
        assert.equal(prefixOf(path), prefix, path);
    }
});

test('names with any characters in paths and queries survive being decoded twice', () => {
    const name = '<a b="/%#?">+%2F';
    const path = pathOf('schedule', name);
    assert.match(path, /^schedule\/[^/?#]+$/);
    assert.equal(decodeURIComponent(decodeURIComponent(path.split('/')[1]!)), name);
    assert.equal(pathOf('probe', 3), 'probe/3');
    assert.equal(urlOf('/p', 'overview', { since: 0, pools: undefined, what: 'a&b' }),
        '/p/api/perfguard/overview?since=0&what=a%2526b');
});

test('answers stand for what is in the way', () => {
    const table: [number, unknown, string, RegExp][] = [
        [401, undefined, 'login', /login has expired/], [403, { detail: 'no' }, 'forbidden', /no/],
        [503, { detail: 'not enabled' }, 'down', /not enabled/], [500, undefined, 'down', /500/],
        [502, 'gateway', 'unreachable', /502/],
        [504, undefined, 'unreachable', /proxy/], [504, { detail: 'slow' }, 'refused', /slow/],
        [409, { detail: 'busy' }, 'refused', /busy/],
        [400, { detail: { field: 'bs' } }, 'refused', /bs/], [404, null, 'refused', /404/]];
    for (const [status, body, trouble, text] of table) {
        const error = errorOf(status, false, body);
        assert.equal(error?.trouble, trouble, String(status));
        assert.match(error!.message, text);
    }
    assert.equal(errorOf(200, false, {}), null);
});

test('a redirect may be that of a standby or of a proxy: the message names both', () => {
    const error = errorOf(0, true, undefined);
    assert.equal(error?.trouble, 'elsewhere');
    assert.match(error!.message, /another mgr is active .* a proxy requires a login/);
});

function answer(status: number, text: string, type = 'basic'): Response {
    return { status, type, redirected: false, text: async () => text } as unknown as Response;
}

test('a request asks for the version of the API and sends the body as JSON', async () => {
    const seen: [string, RequestInit][] = [];
    const api = new Api('/p', async (url, init) => {
        seen.push([url, init]);
        return answer(201, '{"id": 3}');
    });
    assert.deepEqual(await api.post('probe', { pool: 'a' }), { id: 3 });
    await api.remove(pathOf('probe', 3));
    const headers = seen[0]![1].headers as Record<string, string>;
    assert.equal(headers.Accept, 'application/vnd.ceph.api.v1.0+json');
    assert.equal(headers['Content-Type'], 'application/json');
    assert.deepEqual(seen.map(([url, init]) => [url, init.method, init.body]), [
        ['/p/api/perfguard/probe', 'POST', '{"pool":"a"}'],
        ['/p/api/perfguard/probe/3', 'DELETE', undefined]]);
    assert.equal(seen[0]![1].redirect, 'manual');
    assert.equal(seen[0]![1].credentials, 'same-origin');
});

async function trouble(api: Api, expected = /./): Promise<string> {
    try {
        await api.get('overview');
        return 'none';
    } catch (error) {
        assert.match(String(error), expected);
        return error instanceof ApiError ? error.trouble : String(error);
    }
}

test('what is no answer of the API is an error too', async () => {
    const of = (each: Response) => new Api('', async () => each);
    assert.equal(await trouble(of(answer(200, '<html>No active ceph-mgr</html>')),
        /no mgr is active, or this is not the address/), 'unreachable');
    assert.equal(await trouble(of(answer(0, '', 'opaqueredirect'))), 'elsewhere');
    assert.equal(await trouble(new Api('', async () => {
        throw new TypeError('Failed to fetch');
    })), 'unreachable');
    assert.equal(await trouble(of(answer(204, ''))), 'none');
});
