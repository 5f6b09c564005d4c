// SPDX-License-Identifier: LGPL-2.1-or-later
// WCAG 2.2, success criteria 1.4.3 (text: 4.5) and 1.4.11 (what only marks: 3), level AA.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const CSS = readFileSync('src/style/theme.css', 'utf8');
const TEXT: [string, string][] = [
    ...['card', 'ground', 'raised'].flatMap((ground): [string, string][] => [
        ['text', ground], ['muted', ground]]),
    ['accent', 'card'], ['accent', 'ground'], ['on-accent', 'accent'], ['good', 'card'],
    ['good', 'raised'], ['warn', 'card'], ['warn', 'warn-ground'], ['bad', 'card'],
    ['bad', 'raised'], ['bad', 'bad-ground'], ['text', 'bad-ground'], ['muted', 'bad-ground'],
    ['on-bad', 'bad'], ['on-bad', 'heat-slow'],
    ...['none', '0', '1', '2', '3', '4'].map((level): [string, string] => [
        'heat-text', `heat-${level}`])];
const MARKS: [string, string][] = [
    ['read', 'card'], ['write', 'card'], ['good', 'card'], ['bad', 'card'], ['warn', 'card'],
    ['read-soft', 'card'], ['write-soft', 'card'], ['field', 'card'], ['muted', 'card'],
    ...['released', 'kept', 'flight', 'pinned'].map((part): [string, string] => [part, 'raised']),
    ['heat-slow', 'card'], ['heat-slow', 'heat-0']];

function colors(css: string): Record<string, string> {
    return Object.fromEntries([...css.matchAll(/--([a-z0-9-]+): (#[0-9a-f]{6});/g)].map(
        (match) => [match[1]!, match[2]!]));
}

function luminance(hex: string): number {
    const [red, green, blue] = [1, 3, 5].map((at) => {
        const value = parseInt(hex.slice(at, at + 2), 16) / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high! + 0.05) / (low! + 0.05);
}

const [light, dark] = CSS.split(':root[data-theme="dark"]').map(colors);

for (const [theme, found] of Object.entries({ light: light!, dark: dark! })) {
    test(`colours of the ${theme} theme are distinct`, () => {
        const poor = [...TEXT.map((pair) => [pair, 4.5]), ...MARKS.map((pair) => [pair, 3])]
            .map(([pair, least]) => {
                const [one, other] = pair as [string, string];
                return { pair, least, ratio: contrast(found[one]!, found[other]!) };
            })
            .filter(({ ratio, least }) => !(ratio >= (least as number)));
        assert.deepEqual(poor, []);
    });
}
