// SPDX-License-Identifier: LGPL-2.1-or-later
import { Component, type ComponentChildren } from 'preact';

interface Props {
    children: ComponentChildren;
}

/** A part that cannot be drawn does not take the others with it; the next answer is tried anew. */
export class Guard extends Component<Props, { error: string; of: ComponentChildren }> {
    override state = { error: '', of: null as ComponentChildren };

    override componentDidCatch(error: unknown): void {
        this.setState({ error: String(error), of: this.props.children });
    }

    override render({ children }: Props) {
        const { error, of } = this.state;
        return error && of === children ? (
            <p class="card error" role="alert" data-test="error">
                This part of the page cannot be shown: {error}
            </p>
        ) : children;
    }
}
