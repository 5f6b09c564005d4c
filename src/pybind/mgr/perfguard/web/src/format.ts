// SPDX-License-Identifier: LGPL-2.1-or-later
// Numbers as people read them.
import type { Value } from './types';

export const NONE = '\u2013';
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytesText(bytes: number): string {
    let size = bytes;
    let unit = 0;
    while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
        size /= 1024;
        unit += 1;
    }
    return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

export function secondsText(seconds: Value): string {
    if (seconds === null) {
        return 'not known yet';
    }
    const whole = Math.round(seconds);
    if (whole < 120) {
        return `${whole} s`;
    }
    if (whole < 7200) {
        return `${Math.round(whole / 60)} min`;
    }
    return whole < 48 * 3600 ? `${(whole / 3600).toFixed(1)} h`
        : `${(whole / 86400).toFixed(1)} days`;
}

/** Three digits that count. */
export function numberText(value: Value): string {
    if (value === null) {
        return NONE;
    }
    const size = Math.abs(value);
    if (size >= 100 || value === 0) {
        return grouped(value);
    }
    return value.toFixed(size >= 10 ? 1 : size >= 0.01 ? 2 : 3);
}

function grouped(value: number): string {
    return Math.round(value).toLocaleString('en-US');
}

export function countText(value: Value): string {
    return value === null ? NONE : grouped(value);
}

export function msText(value: Value): string {
    return value === null ? NONE : `${numberText(value)} ms`;
}

export function percentText(ratio: Value): string {
    if (ratio === null) {
        return NONE;
    }
    const percent = 100 * ratio;
    return `${percent === 0 || percent === 100 ? percent : percent.toFixed(percent < 10 ? 2 : 1)} %`;
}

function two(value: number): string {
    return String(value).padStart(2, '0');
}

/** Seconds since the epoch -> "14:03:22" of the browser's day. */
export function clockText(seconds: number): string {
    const date = new Date(seconds * 1000);
    return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
}

/** The browser's zone at this time, such as "CET" or "GMT+2". */
export function zoneText(seconds: number): string {
    return new Intl.DateTimeFormat('en-GB', { timeZoneName: 'short' })
        .formatToParts(new Date(seconds * 1000))
        .find(({ type }) => type === 'timeZoneName')?.value ?? '';
}

/** In the browser's zone; with the day, unless it is today. */
export function timeText(seconds: Value, now = Date.now()): string {
    if (!seconds) {
        return NONE;
    }
    const date = new Date(seconds * 1000);
    const time = `${clockText(seconds)} ${zoneText(seconds)}`;
    if (date.toDateString() === new Date(now).toDateString()) {
        return time;
    }
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** After the name of a list that may not be whole. */
export function shownText(shown: number, count: number): string {
    return shown < count ? ` (${countText(shown)} of ${countText(count)} shown)` : '';
}

export function plural(count: number, one: string, many = `${one}s`): string {
    return `${countText(count)} ${count === 1 ? one : many}`;
}
