// SPDX-License-Identifier: LGPL-2.1-or-later
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turned, withKept } from '../src/kept';

test('what is kept is named once', () => {
    const kept = ['a', 'b'];
    assert.deepEqual(turned(kept, 'c', true), ['a', 'b', 'c']);
    assert.deepEqual(turned(kept, 'a', false), ['b']);
    assert.equal(turned(kept, 'b', true), kept);
    assert.equal(turned(kept, 'c', false), kept);
});

/** Letters are rows, of which lower and upper case are the same; those of `kept` have to stay. */
function rows(shown: string, listed: string, kept: string): string {
    return withKept([...shown], [...listed], (each) => each.toLowerCase(),
        (each) => kept.includes(each)).join('');
}

test('a row whose question is open stays at its place when it is listed no more', () => {
    assert.equal(rows('abc', 'ac', 'b'), 'abc');
    assert.equal(rows('abc', 'c', 'b'), 'bc');
    assert.equal(rows('abc', 'cx', 'ab'), 'abcx');
    assert.equal(rows('abc', '', 'c'), 'c');
    assert.equal(rows('abc', 'xabc', 'b'), 'xabc');
});

test('other rows are as they are listed', () => {
    assert.equal(rows('abc', 'ac', ''), 'ac');
    assert.equal(rows('abc', 'aBc', 'b'), 'aBc');
    assert.equal(rows('', 'ab', 'b'), 'ab');
});
