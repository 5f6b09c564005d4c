// SPDX-License-Identifier: LGPL-2.1-or-later
import { useEffect, useState } from 'preact/hooks';
import { Charts } from './charts/panel';
import { Osds } from './heat/panel';
import { useDark, useStore } from './hooks';
import { Banner } from './parts/banner';
import { Guard } from './parts/guard';
import { Header } from './parts/header';
import { Capacity, Events, LaggyPgs, Mitigations } from './parts/lists';
import { Now } from './parts/now';
import { Probes } from './probes/panel';
import type { Store } from './store';
import { storedTheme } from './theme';
import type { Osd } from './types';
import { titleOf } from './words';

const NO_OSDS: Osd[] = [];

export function App({ store }: { store: Store }) {
    const state = useStore(store);
    const [theme, setTheme] = useState(storedTheme());
    const dark = useDark(theme);
    const overview = state.model.last;
    const title = overview ? titleOf(overview.status.phase, overview.rebalance) : 'perfguard';
    useEffect(() => { document.title = title; }, [title]);
    return (
        <>
            <a class="skip" href="#main">Skip to the content</a>
            <Guard>
                <Header store={store} state={state} theme={theme} onTheme={setTheme} />
            </Guard>
            <main id="main" tabIndex={-1}>
                <Guard><Banner store={store} state={state} /></Guard>
                {overview ? (
                    <>
                        <Guard><Now store={store} overview={overview} /></Guard>
                        <Guard><LaggyPgs laggy={overview.laggy} /></Guard>
                        <Guard>
                            <Charts store={store} model={state.model} chosen={state.pools}
                                dark={dark} />
                        </Guard>
                        <Guard>
                            <Osds store={store} state={state} suspects={overview.laggy.suspects} />
                        </Guard>
                        <Guard><Capacity rows={overview.capacity} /></Guard>
                        <div class="columns">
                            <Guard><Events events={state.model.events} /></Guard>
                            <Guard>
                                <Mitigations store={store} mitigation={overview.mitigation}
                                    may={overview.may.update} />
                            </Guard>
                        </div>
                        <Guard>
                            <Probes store={store} overview={overview} osds={state.osds ?? NO_OSDS} />
                        </Guard>
                    </>
                ) : <p class="loading" aria-busy="true">Loading{'\u2026'}</p>}
            </main>
            <div class="hidden" role="status" aria-live="polite" data-test="announcer">
                {state.announced}
            </div>
        </>
    );
}
