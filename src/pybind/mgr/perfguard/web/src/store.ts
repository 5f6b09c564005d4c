// SPDX-License-Identifier: LGPL-2.1-or-later
// The page's state at its edge: asks the API, keeps the answers, and notifies the views.
import { Api, ApiError, type Query } from './api';
import { absorb, EMPTY, presentOf, sinceOf, type Model } from './model';
import { BUSY_MS, delayOf, OSDS_MS, Poller, QUIET_MS } from './poll';
import { isActive } from './campaign';
import type { Osd, Overview } from './types';
import { announcement } from './words';

export interface State {
    model: Model;
    osds: Osd[] | null;
    /** When they came, in ms. */
    osdsAt: number;
    /** Why the last request for the overview failed. */
    failure: ApiError | null;
    osdsFailure: ApiError | null;
    /** For screen readers. */
    announced: string;
    /** Ids of the pools to chart; empty: the busiest. */
    pools: number[];
    opened: number;
    /** When the tab was last shown, in ms. */
    shownAt: number;
}

export class Store {
    state: State = {
        model: EMPTY, osds: null, osdsAt: 0, failure: null, osdsFailure: null, announced: '', pools: [],
        opened: Date.now(), shownAt: 0,
    };

    private readonly listeners = new Set<() => void>();
    private readonly overview = new Poller(() => this.askOverview(),
        (failures) => this.delay(this.wanted, failures));

    private readonly osds = new Poller(() => this.askOsds(),
        (failures) => this.delay(OSDS_MS, failures));

    constructor(readonly api: Api) {}

    start(): void {
        this.overview.poke();
        this.osds.poke();
        document.addEventListener('visibilitychange', () => {
            if (!document.hidden) {
                this.change({ shownAt: Date.now() });
                this.refresh();
            }
        });
        window.addEventListener('online', () => this.refresh());
    }

    subscribe(listener: () => void): () => void {
        this.listeners.add(listener);
        return () => this.listeners.delete(listener);
    }

    refresh(): void {
        this.overview.poke();
        this.osds.poke();
    }

    choosePools(pools: number[]): void {
        this.change({ pools, model: { ...this.state.model, whole: true } });
        this.overview.poke();
    }

    /** ms between two requests for the overview, as long as they are answered. */
    get interval(): number {
        return this.delay(this.wanted, 0);
    }

    /** The same of those for the OSDs. */
    get osdsInterval(): number {
        return this.delay(OSDS_MS, 0);
    }

    /** The interval while the tab is looked at. */
    private get wanted(): number {
        const status = this.state.model.last?.status;
        return status && (isActive(status.phase) || status.probe) ? BUSY_MS : QUIET_MS;
    }

    private delay(interval: number, failures: number): number {
        return delayOf({ interval, failures, hidden: document.hidden });
    }

    private change(changes: Partial<State>): void {
        this.state = { ...this.state, ...changes };
        this.listeners.forEach((listener) => listener());
    }

    private async askOverview(): Promise<void> {
        const since = sinceOf(this.state.model);
        const chosen = this.state.pools.join(',');
        const query: Query = chosen ? { since, pools: chosen } : { since };
        try {
            const answer = await this.api.get<Overview>('overview', query);
            if (this.state.pools.join(',') !== chosen) {
                return;
            }
            const before = this.state.model;
            const announced = announcement(before.last, answer);
            this.change({
                model: absorb(before, answer, since, Date.now()), failure: null,
                ...(announced ? { announced } : {}),
            });
            const present = presentOf(this.state.pools, answer.status.pools);
            if (present.length < this.state.pools.length) {
                this.choosePools(present);
            }
        } catch (error) {
            this.change({ failure: failureOf(error) });
            throw error;
        }
    }

    private async askOsds(): Promise<void> {
        try {
            const answer = await this.api.get<{ osds: Osd[] }>('osds');
            this.change({ osds: answer.osds, osdsAt: Date.now(), osdsFailure: null });
        } catch (error) {
            this.change({ osdsFailure: failureOf(error) });
            throw error;
        }
    }
}

/** Any other error is a defect of the page or of an answer of the API: it is shown, too. */
export function failureOf(error: unknown): ApiError {
    return error instanceof ApiError ? error
        : new ApiError('down', `invalid answer (${String(error)})`);
}
