// SPDX-License-Identifier: LGPL-2.1-or-later
// Points and axes of two charts: latency against throughput, and throughput by number of OSDs.
import { logRange } from '../charts/lines';
import { msText, numberText, percentText, plural } from '../format';
import type { Curve, Measure, Scaling } from '../types';

export interface XyPoint {
    x: Measure;
    y: Measure;
    label: string;
    /** The point that the text names. */
    marked: boolean;
}

export interface Axis {
    name: string;
    low: number;
    high: number;
    log: boolean;
    ticks: number[];
}

export interface Xy {
    title: string;
    /** In words. */
    text: string;
    notes: string[];
    points: XyPoint[];
    x: Axis;
    y: Axis;
    /** A line to compare with, as pairs of x and y; may be empty. */
    reference: [number, number][];
}

const MOST_TICKS = 6;

/** Mean latency against throughput, with the knee. */
export function curveXy(curve: Curve): Xy {
    const points = curve.points.map((point) => ({
        x: point.iops, y: scaled(point.latency_ns, 1e-6), label: `depth ${point.depth}`,
        marked: point.depth === curve.knee_depth,
    }));
    const knee = points.find((point) => point.marked);
    const price = curve.last_tenth;
    const text = [
        ...(knee ? [`Knee at ${knee.label}: ${numberText(knee.x.median)} operations per second at `
            + `${msText(knee.y.median)}.`] : []),
        ...(price ? [`The last 10 % of the throughput raise latency ${numberText(price.times)} times, `
            + `from ${msText(price.from_latency_ns / 1e6)} to ${msText(price.to_latency_ns / 1e6)}.`]
            : [])];
    return {
        title: curve.label, text: text.join(' '), notes: curve.notes, points, reference: [],
        x: linear('operations per second', points.map((point) => point.x.high)),
        y: logarithmic('mean ms', points.map((point) => point.y)),
    };
}

/** Throughput by number of OSDs, with a linear one for comparison. */
export function scalingXy(scaling: Scaling): Xy {
    const points = scaling.points.map((point) => ({
        x: exactly(point.osds), y: point.iops, label: plural(point.osds, 'OSD'), marked: false,
    }));
    const first = points[0]!;
    const last = points[points.length - 1]!;
    const end = first.y.median * last.x.median / first.x.median;
    const share = scaling.points[scaling.points.length - 1]!.linear;
    return {
        title: scaling.label, notes: scaling.notes, points,
        text: `${last.label}: ${numberText(last.y.median)} operations per second, `
            + `${percentText(share)} of linear (dashed).`,
        reference: [[first.x.median, first.y.median], [last.x.median, end]],
        x: { ...linear('OSDs', [last.x.high]), ticks: points.map((point) => point.x.median) },
        y: linear('operations per second', [end, ...points.map((point) => point.y.high)]),
    };
}

function scaled(measure: Measure, factor: number): Measure {
    return {
        median: factor * measure.median, low: factor * measure.low, high: factor * measure.high,
    };
}

function exactly(value: number): Measure {
    return { median: value, low: value, high: value };
}

function linear(name: string, values: number[]): Axis {
    const most = Math.max(...values);
    const step = niceStep(most / MOST_TICKS);
    const high = step * Math.ceil(most / step);
    const ticks = Array.from({ length: Math.round(high / step) + 1 }, (_, at) => at * step);
    return { name, low: 0, high, log: false, ticks };
}

/** The smallest of 1, 2 or 5 times a power of ten that is not below the value. */
function niceStep(value: number): number {
    const power = 10 ** Math.floor(Math.log10(value));
    return power * [1, 2, 5, 10].find((digit) => digit * power >= value)!;
}

function logarithmic(name: string, values: Measure[]): Axis {
    const [low, high] = logRange(Math.min(...values.map((each) => each.low)),
        Math.max(...values.map((each) => each.high)));
    const decades = Math.log10(high / low);
    const digits = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 5];
    const ticks: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
        ticks.push(...digits.map((digit) => Number(`${digit}e${power}`)));
    }
    return { name, low, high, log: true, ticks: ticks.filter((at) => at >= low && at <= high) };
}

/** Where a value is on an axis, from 0 to 1. */
export function share(axis: Axis, value: number): number {
    const { low, high } = axis;
    const part = axis.log ? Math.log(value / low) / Math.log(high / low)
        : (value - low) / (high - low);
    return Math.min(1, Math.max(0, part));
}
