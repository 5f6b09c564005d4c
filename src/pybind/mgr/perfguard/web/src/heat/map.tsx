// SPDX-License-Identifier: LGPL-2.1-or-later
import { useRef, useState } from 'preact/hooks';
import { HeatCell } from './cell';
import { neighbour, type Row, type Tile } from './osds';

const TIP_WIDTH = 300;

interface Tip {
    id: string;
    left: number;
    top: number;
}

interface Props {
    rows: Row[];
    label: string;
    /** Id of the tile whose parts are shown; null: of none. */
    opened?: string | null;
    /** With a click, Enter or Space on a tile. */
    onOpen?: (id: string) => void;
}

/** Rows of tiles: hosts with their OSDs, or racks with their hosts. Arrow keys lead from tile to tile. */
export function HeatMap({ rows, label, opened, onOpen }: Props) {
    const box = useRef<HTMLDivElement>(null);
    const [active, setActive] = useState<string | null>(null);
    const [tip, setTip] = useState<Tip | null>(null);
    const byId = new Map(rows.flatMap(({ tiles }) => tiles)
        .map((tile): [string, Tile] => [tile.id, tile]));
    const current = active !== null && byId.has(active) ? active : rows[0]?.tiles[0]?.id ?? null;
    const most = Math.max(1, ...rows.map(({ tiles }) => tiles.length));

    const show = (event: Event) => {
        const tile = tileAt(event.target);
        setTip(tile && box.current ? tipAt(box.current, tile) : null);
    };
    const focus = (event: FocusEvent) => {
        const tile = tileAt(event.target);
        if (tile) {
            setActive(tile.dataset.tile!);
            show(event);
        }
    };
    const open = (event: Event) => {
        const tile = tileAt(event.target);
        if (tile && onOpen) {
            event.preventDefault();
            onOpen(tile.dataset.tile!);
        }
    };
    const key = (event: KeyboardEvent) => {
        if (event.key === 'Escape') {
            setTip(null);
            return;
        }
        if (event.key === 'Enter' || event.key === ' ') {
            open(event);
            return;
        }
        const next = current === null ? null : neighbour(rows, current, event.key);
        if (next !== null) {
            event.preventDefault();
            box.current?.querySelector<HTMLElement>(`[data-tile="${CSS.escape(next)}"]`)?.focus();
        }
    };
    const shown = tip && byId.get(tip.id);
    const size = onOpen ? 'rolled' : sizeOf(byId.size, most);
    return (
        <div ref={box} class="heat-box" onPointerLeave={() => setTip(null)}>
            <div class={`heat ${size}`} role="grid" aria-label={label}
                aria-readonly onPointerOver={show} onFocusIn={focus} onKeyDown={key}
                onClick={open} onFocusOut={() => setTip(null)}>
                {rows.map(({ name, tiles }) => (
                    <div key={name} class="host" role="row">
                        <div class="host-name" role="rowheader" title={name}>{name}</div>
                        <div class="cells" role="presentation">
                            {tiles.map((tile) => (
                                <HeatCell key={tile.id} tile={tile} active={tile.id === current}
                                    open={onOpen && tile.id === opened} />
                            ))}
                        </div>
                    </div>
                ))}
            </div>
            {tip && shown && (
                <div class="tip" aria-hidden="true" data-test="heat-tip"
                    style={{ left: `${tip.left}px`, top: `${tip.top}px`, width: `${TIP_WIDTH}px` }}>
                    <h3>{shown.title} <span class="muted">{shown.place}</span></h3>
                    <dl>
                        {shown.details().map(([name, value]) => (
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

function tileAt(target: EventTarget | null): HTMLElement | null {
    return target instanceof Element ? target.closest<HTMLElement>('[data-tile]') : null;
}

/** Below the tile and inside the box. */
function tipAt(box: HTMLElement, tile: HTMLElement): Tip {
    const outer = box.getBoundingClientRect();
    const inner = tile.getBoundingClientRect();
    const left = Math.min(inner.left - outer.left, outer.width - TIP_WIDTH);
    return {
        id: tile.dataset.tile!, left: Math.max(0, left),
        top: inner.bottom - outer.top + 6,
    };
}
