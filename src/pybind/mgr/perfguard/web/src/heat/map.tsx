// SPDX-License-Identifier: LGPL-2.1-or-later
import { useRef, useState } from 'preact/hooks';
import { HeatCell } from './cell';
import { type Cell, detailsOf, type Host, neighbour } from './osds';

const TIP_WIDTH = 300;

interface Tip {
    osd: number;
    left: number;
    top: number;
}

/** Hosts with their OSDs. Arrow keys go from OSD to OSD. */
export function HeatMap({ hosts }: { hosts: Host[] }) {
    const box = useRef<HTMLDivElement>(null);
    const [active, setActive] = useState<number | null>(null);
    const [tip, setTip] = useState<Tip | null>(null);
    const byId = new Map(hosts.flatMap((host) => host.cells)
        .map((cell): [number, Cell] => [cell.osd.osd, cell]));
    const current = active !== null && byId.has(active) ? active
        : hosts[0]?.cells[0]?.osd.osd ?? null;
    const most = Math.max(1, ...hosts.map((host) => host.cells.length));

    const show = (event: Event) => {
        const cell = cellAt(event.target);
        setTip(cell && box.current ? tipAt(box.current, cell) : null);
    };
    const focus = (event: FocusEvent) => {
        const cell = cellAt(event.target);
        if (cell) {
            setActive(Number(cell.dataset.osd));
            show(event);
        }
    };
    const key = (event: KeyboardEvent) => {
        if (event.key === 'Escape') {
            setTip(null);
            return;
        }
        const next = current === null ? null : neighbour(hosts, current, event.key);
        if (next !== null) {
            event.preventDefault();
            box.current?.querySelector<HTMLElement>(`[data-osd="${next}"]`)?.focus();
        }
    };
    const shown = tip && byId.get(tip.osd);
    return (
        <div ref={box} class="heat-box" onPointerLeave={() => setTip(null)}>
            <div class={`heat ${sizeOf(byId.size, most)}`} role="grid" aria-label="OSDs by host"
                aria-readonly onPointerOver={show} onFocusIn={focus} onKeyDown={key}
                onFocusOut={() => setTip(null)}>
                {hosts.map((host) => (
                    <div key={host.name} class="host" role="row">
                        <div class="host-name" role="rowheader" title={host.name}>{host.name}</div>
                        <div class="cells" role="presentation">
                            {host.cells.map((cell) => (
                                <HeatCell key={cell.osd.osd} cell={cell}
                                    active={cell.osd.osd === current} />
                            ))}
                        </div>
                    </div>
                ))}
            </div>
            {tip && shown && (
                <div class="tip" aria-hidden="true" data-test="heat-tip"
                    style={{ left: `${tip.left}px`, top: `${tip.top}px`, width: `${TIP_WIDTH}px` }}>
                    <h3>osd.{tip.osd} <span class="muted">{shown.osd.host}</span></h3>
                    <dl>
                        {detailsOf(shown).map(([name, value]) => (
                            <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
                        ))}
                    </dl>
                </div>
            )}
        </div>
    );
}

function sizeOf(count: number, most: number): string {
    const size = count <= 40 ? 'large' : count <= 240 ? 'medium' : 'small';
    return `${size} ${most <= 8 ? 'few' : 'many'}`;
}

function cellAt(target: EventTarget | null): HTMLElement | null {
    return target instanceof Element ? target.closest<HTMLElement>('[data-osd]') : null;
}

/** Below the cell and inside the box. */
function tipAt(box: HTMLElement, cell: HTMLElement): Tip {
    const outer = box.getBoundingClientRect();
    const inner = cell.getBoundingClientRect();
    const left = Math.min(inner.left - outer.left, outer.width - TIP_WIDTH);
    return {
        osd: Number(cell.dataset.osd), left: Math.max(0, left),
        top: inner.bottom - outer.top + 6,
    };
}
