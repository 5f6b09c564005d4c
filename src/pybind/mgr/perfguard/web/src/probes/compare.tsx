// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useRef } from 'preact/hooks';
import { numberText } from '../format';
import type { Comparison } from '../types';
import { type Bar, barsOf, barText, endOf } from './bars';

const WIDTH = 400;
const HEIGHT = 40;

/** Two probes side by side. */
export function Compared({ comparison, onClose }: {
    comparison: Comparison;
    onClose: () => void;
}) {
    const { before, after, verdict, notes } = comparison;
    const title = useRef<HTMLHeadingElement>(null);
    useEffect(() => title.current?.focus(), [before, after]);
    const jobs = barsOf(comparison);
    const end = endOf(jobs);
    return (
        <div class="panel" data-test="probe-compare">
            <div class="section-head">
                <h3 ref={title} tabIndex={-1}>
                    Probe {after} against probe {before}: <span class={tone(verdict)}>{verdict}</span>
                </h3>
                <button type="button" class="button small right" onClick={onClose}>Close</button>
            </div>
            <p class="muted">
                Grey: probe {before}. Colour: probe {after}. Line: its 95 % confidence interval.
            </p>
            <div class="jobs">
                {jobs.map((job) => (
                    <figure key={job.job} class="job">
                        <figcaption>
                            <b>{job.job}</b> <span class={tone(job.verdict)}>{job.verdict}</span>
                            <p class="muted">{job.why}</p>
                        </figcaption>
                        {job.bars.map((bar) => <Pair key={bar.quantity} bar={bar} end={end} />)}
                    </figure>
                ))}
            </div>
            <ul class="reasons">{notes.map((note) => <li key={note}>{note}</li>)}</ul>
        </div>
    );
}

function tone(verdict: string): string {
    return verdict === 'slower' ? 'state-slow' : verdict === 'faster' ? 'state-fast' : 'muted';
}

function Pair({ bar, end }: { bar: Bar; end: number }) {
    const x = (times: number) => WIDTH * Math.min(1, Math.max(0, times / end));
    const [low, high] = [x(bar.low), x(bar.high)];
    return (
        <div class="pair">
            <span class="quantity">{bar.quantity}</span>
            <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
                class={`bars ${bar.verdict.replace(' ', '-')}`} aria-label={barText(bar)}>
                <rect class="before" x="0" y="3" width={x(1)} height="14" />
                <rect class="after" x="0" y="21" width={x(bar.ratio)} height="14" />
                <path class="interval" vector-effect="non-scaling-stroke"
                    d={`M${low} 28H${high}M${low} 23V33M${high} 23V33`} />
                <path class="one" vector-effect="non-scaling-stroke" d={`M${x(1)} 0V${HEIGHT}`} />
            </svg>
            <span class="values" aria-hidden="true">
                <span class="muted">{bar.before}</span>
                <span>{bar.after} <b class={tone(bar.verdict)}>{'\u00d7'}{numberText(bar.ratio)}</b></span>
            </span>
        </div>
    );
}
