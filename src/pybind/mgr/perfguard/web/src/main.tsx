// SPDX-License-Identifier: LGPL-2.1-or-later
import 'uplot/dist/uPlot.min.css';
import './style/page.css';
import { render } from 'preact';
import { Api, prefixOf } from './api';
import { App } from './app';
import { Store } from './store';

const store = new Store(new Api(prefixOf(window.location.pathname)));
const root = document.getElementById('page')!;
root.textContent = '';
render(<App store={store} />, root);
store.start();
