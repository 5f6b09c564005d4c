# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much CPU time and memory the dashboard's page takes in a browser.

    /usr/bin/python3 -m qa.bench.bench_page [--scenario x] [--seconds 60]

630 OSDs, four pools and an hour of history (720 rows each), from a fake API (scenario "small":
six OSDs). First: bytes of the first load, and ms from the start of the navigation until all OSDs
are shown. Then, while the page is open: ms of script, style, layout and all tasks per response,
tasks of more than 50 ms (in which the page does not react), and the heap.
"""
import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, Dict

from qa.lib.browser import Browser
from qa.lib.fake_page import PAGE, FakePage

LIMIT_BYTES = 300000
#: Records when the last OSD is shown, and each task of more than 50 ms.
OBSERVERS = '''
    window.seen = {ready: 0, long: [], answers: 0};
    new MutationObserver((_, observer) => {
        if (document.querySelectorAll('[data-osd]').length) {
            observer.disconnect();
            requestAnimationFrame(() => setTimeout(() => { seen.ready = performance.now(); }));
        }
    }).observe(document, {childList: true, subtree: true});
    new PerformanceObserver((list) => {
        seen.long.push(...list.getEntries().map((entry) => entry.duration));
    }).observe({type: 'longtask', buffered: true});
    new PerformanceObserver((list) => {
        seen.answers += list.getEntries().filter((entry) => entry.name.includes('/api/')).length;
    }).observe({type: 'resource', buffered: true});
'''
TIMES = {'script': 'ScriptDuration', 'style': 'RecalcStyleDuration', 'layout': 'LayoutDuration',
         'all tasks': 'TaskDuration'}


def devtools(browser: Browser, command: str, **parameters: Any) -> Any:
    """A command of chromedriver that selenium offers only for a chromedriver that it started."""
    driver = browser.driver
    driver.command_executor._commands['devtools'] = ('POST', '/session/$sessionId/goog/cdp/execute')
    return driver.execute('devtools', {'cmd': command, 'params': parameters})['value']


def metrics(browser: Browser) -> Dict[str, float]:
    found = devtools(browser, 'Performance.getMetrics')
    return {each['name']: each['value'] for each in found['metrics']}


def seen(browser: Browser) -> Dict[str, Any]:
    found: Dict[str, Any] = browser.script('return seen')
    return found


def first_load(browser: Browser, url: str) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(PAGE.iterdir())}
    total = sum(sizes.values())
    print('first load: %d bytes (%s), limit %d' % (
        total, ', '.join('%s %d' % each for each in sizes.items()), LIMIT_BYTES))
    devtools(browser, 'Performance.enable')
    devtools(browser, 'Page.addScriptToEvaluateOnNewDocument', source=OBSERVERS)
    browser.open(url)
    browser.wait(lambda: seen(browser)['ready'], 'the OSDs')
    cells = browser.script("return document.querySelectorAll('[data-osd]').length")
    found = metrics(browser)
    print('first render: %d ms until %d OSDs are there; script %.0f ms, layout %.0f ms' % (
        seen(browser)['ready'], cells, 1000 * found['ScriptDuration'],
        1000 * found['LayoutDuration']))


def updates(browser: Browser, seconds: float) -> None:
    # The rest of the first load.
    time.sleep(3.0)
    before, at = metrics(browser), seen(browser)
    time.sleep(seconds)
    after, then = metrics(browser), seen(browser)
    answers = then['answers'] - at['answers']
    print('updates: %d answers in %g s; ms each: %s' % (answers, seconds, ', '.join(
        '%s %.1f' % (name, 1000 * (after[key] - before[key]) / answers)
        for name, key in TIMES.items())))
    slow = then['long'][len(at['long']):]
    print('long tasks: %d at first (%s ms), %d later (%s ms); heap %.1f MB' % (
        len(at['long']), ', '.join('%d' % each for each in at['long']) or '-', len(slow),
        ', '.join('%d' % each for each in slow) or '-', after['JSHeapUsedSize'] / 1e6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--scenario', default='x')
    parser.add_argument('--seconds', type=float, default=60.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, FakePage() as page, \
            Browser(Path(directory), height=1800) as browser:
        first_load(browser, page.url(args.scenario))
        updates(browser, args.seconds)
        print('complaints: %s' % ('; '.join(browser.complaints()) or 'none'))


if __name__ == '__main__':
    main()
