// SPDX-License-Identifier: LGPL-2.1-or-later
import { Component, type ComponentChildren } from 'preact';

interface Props {
    children: ComponentChildren;
}

/** Confines a drawing error to one part of the page; the next answer is drawn again. */
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
