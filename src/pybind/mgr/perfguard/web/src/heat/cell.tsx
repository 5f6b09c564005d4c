// SPDX-License-Identifier: LGPL-2.1-or-later
import { Component } from 'preact';
import type { Tile } from './osds';

interface Props {
    tile: Tile;
    /** Reached by the Tab key: one tile of all. */
    active: boolean;
    /** Whether its OSDs are shown; undefined: it has none. */
    open: boolean | undefined;
}

/** One OSD or host. Drawn again only if something that shows has changed: there are hundreds. */
export class HeatCell extends Component<Props> {
    override shouldComponentUpdate(next: Props): boolean {
        const { tile, active, open } = this.props;
        return active !== next.active || open !== next.open || tile.label !== next.tile.label
            || tile.level !== next.tile.level || tile.mark !== next.tile.mark;
    }

    override render({ tile, active, open }: Props) {
        return (
            <div role="gridcell" tabIndex={active ? 0 : -1} aria-label={tile.label}
                class={`cell h-${tile.level}${tile.comes ? ' in' : ''}${tile.leaves ? ' out' : ''}`}
                aria-expanded={open} data-tile={tile.id} data-test={tile.test}
                data-state={tile.state}>
                {tile.mark ? <b data-mark={tile.mark} /> : null}
                <span>{tile.text}</span>
            </div>
        );
    }
}
