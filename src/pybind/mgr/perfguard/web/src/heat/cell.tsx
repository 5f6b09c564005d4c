// SPDX-License-Identifier: LGPL-2.1-or-later
import { Component } from 'preact';
import type { Cell } from './osds';

interface Props {
    cell: Cell;
    /** Reached by the Tab key: one cell of all. */
    active: boolean;
}

/** One OSD. Drawn again only if something that shows has changed: there are hundreds. */
export class HeatCell extends Component<Props> {
    override shouldComponentUpdate(next: Props): boolean {
        const { cell, active } = this.props;
        return active !== next.active || cell.label !== next.cell.label
            || cell.level !== next.cell.level || cell.mark !== next.cell.mark;
    }

    override render({ cell, active }: Props) {
        const { osd } = cell;
        return (
            <div role="gridcell" tabIndex={active ? 0 : -1} aria-label={cell.label}
                class={`cell h-${cell.level}${osd.pgs_in ? ' in' : ''}${osd.pgs_out ? ' out' : ''}`}
                data-osd={osd.osd} data-test={`heat-osd-${osd.osd}`} data-state={cell.state}>
                {cell.mark ? <b data-mark={cell.mark} /> : null}
                <span>{osd.osd}</span>
            </div>
        );
    }
}
