# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pictures of the page in the manual: perfguard's own loop over model clusters (qa.sim).

    /usr/bin/python3 -m qa.lib.pictures [NAME]     takes them anew, as doc/mgr/perfguard/*.png

Each shows the last hour of an expansion of SSDs under the load of virtual machines: what the page
gets is what the loop publishes at that instant. Takes some minutes; requires Chromium.
"""
import json
import math
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Type
from urllib.parse import parse_qs, urlsplit

from perfguard.cluster.types import Json
from perfguard.rebalance.orders import Order
from perfguard.status import osds_json, overview
from qa.lib.browser import Browser
from qa.lib.fake_page import PAGE
from qa.lib.reference import MANUAL
from qa.sim.cluster import Model
from qa.sim.driver import Driver
from qa.sim.port import SimCluster
from qa.sim.run import Settings, model_of, rested

#: The charts have their hour of data, and the heat map its OSDs.
READY = ('charts', 'heat')
DAY_SECONDS = 86400.0
#: Time of today at which the model clusters begin: the page shows the date of other days.
BEGIN_SECONDS = 9 * 3600.0
#: Seconds between two changes of the load; its memory, and its spread in the long run.
BEAT, MEMORY, SPREAD = 10.0, 0.98, 0.12
#: Bytes of a PG on one OSD.
PG_BYTES = 8.0 * (1 << 30)
#: What operators of such clusters set, so that a backfill leaves most of an OSD's time to clients.
SLEEP = 'osd_recovery_sleep_ssd', 0.03
#: Names in the model -> what operators would call them.
POOLS = {'p1': 'volumes', 'p2': 'vms', 'p3': 'images', 'p4': 'backups'}
_NAME = re.compile(r'\b(?:(p[1-4])|h(\d+)|r(\d+))\b')
#: What the dashboard adds.
ADDED: Json = {'name': 'a', 'fsid': '5e0c3a52-9d1f-4c57-8f0e-2b7d1c6a9e44', 'user': 'admin',
               'may': {'create': True, 'update': True, 'delete': True}}


@dataclass(frozen=True)
class Story:
    """An expansion, what happens meanwhile, and the instant of the picture."""
    settings: Settings
    #: From the order to the picture.
    seconds: float
    #: Gets the model and when the campaign began.
    happens: Callable[[Model, float], None]


def failure_and_slow_osd(model: Model, begin: float) -> None:
    """An OSD is down for four minutes, so that releases are held; later another one is slow."""
    model.at(begin + 2700.0, lambda: model.fail(205))
    model.at(begin + 2940.0, lambda: model.revive(205))
    model.at(begin + 4200.0, lambda: model.slowness.__setitem__(333, 6.0))


def hanging_osd(model: Model, begin: float) -> None:
    """An OSD has begun to hang 50 seconds ago."""
    model.at(begin + 4500.0 - 50.0, lambda: model.hang(41))


SSDS = Settings(osds=720, added=120, osds_per_host=12, hosts_per_rack=10, hardware='ssd',
                pools=(16384, 4096, 2048, 1024), pg_bytes=PG_BYTES, target='balanced', rest=1.0)
STORIES: Dict[str, Story] = {
    'expansion': Story(SSDS, 4800.0, failure_and_slow_osd),
    'laggy-osd': Story(
        replace(SSDS, osds=144, added=24, hosts_per_rack=4, pools=(2048, 1024, 512, 256)), 4500.0,
        hanging_osd)}


class Picture(NamedTuple):
    """How a page is shown."""
    height: int
    dark: bool = False


PICTURES = {'expansion': Picture(1700), 'laggy-osd': Picture(1800, dark=True)}


def tenants(model: Model) -> None:
    """The load of many clients: it follows the day, with its peak in the afternoon, and wanders."""
    begin, state = model.now, [0.0]

    def beat() -> None:
        state[0] = MEMORY * state[0] + SPREAD * math.sqrt(1 - MEMORY ** 2) * model.random.normal()
        day = 0.9 - 0.3 * math.cos(2 * math.pi * (model.now - begin) / DAY_SECONDS + 2.0)
        model.load = day * math.exp(state[0])
        model.at(model.now + BEAT, beat)

    beat()


@dataclass(frozen=True)
class Shown:
    """What the API answers."""
    overview: Json
    osds: Json


def played(story: Story) -> Driver:
    """The story until the instant of its picture."""
    model, after = model_of(story.settings)
    model = replace(model, now=time.time() // DAY_SECONDS * DAY_SECONDS + BEGIN_SECONDS)
    tenants(model)
    cluster = SimCluster(model, after)
    cluster.config['osd'][SLEEP[0]], model.sleep = str(SLEEP[1]), SLEEP[1]
    driver, _ = rested(story.settings, cluster)
    story.happens(model, model.now)
    until = model.now + story.seconds
    driver.order(Order('expand'))
    while model.now < until:
        driver.turn()
    return driver


def shown(driver: Driver) -> Shown:
    published = driver.loop.published
    found = {**overview(published, driver.loop.probed(), driver.loop.drawn(0.0, []), 0.0,
                        driver.model.now), **ADDED}
    rows = osds_json(published.watched.osds, published.rebalanced.preview)
    return Shown(_renamed(found), _renamed({'osds': rows}))


def _renamed(document: Json) -> Json:
    found: Json = json.loads(_NAME.sub(_usual_name, json.dumps(document)))
    return found


def _usual_name(match: 're.Match[str]') -> str:
    pool, host, rack = match.groups()
    return POOLS[pool] if pool else 'storage-%02d' % int(host) if host else 'rack-%d' % (
        1 + int(rack))


# ---- the page

TYPES = {'.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
         '.css': 'text/css; charset=utf-8'}


class ShownPage:
    """Serves the page as the dashboard does, at an instant that does not pass."""

    def __init__(self, found: Shown) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, content = _answer(found, self.path)
                self.send_response(status)
                self.send_header('Content-Type', kind)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Not logged."""

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = 'http://127.0.0.1:%d/perfguard' % self._server.server_address[1]

    def __enter__(self) -> 'ShownPage':
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(found: Shown, target: str) -> Tuple[int, str, bytes]:
    url = urlsplit(target)
    name = url.path.rpartition('/')[2]
    if url.path.endswith('/api/perfguard/overview'):
        since = float(parse_qs(url.query).get('since', ['0'])[0])
        return _json(200, _newer(found.overview, since))
    if url.path.endswith('/api/perfguard/osds'):
        return _json(200, found.osds)
    path = PAGE / ('index.html' if name == 'perfguard' else name)
    if '/api/' in url.path or not path.is_file():
        return _json(404, {'detail': 'not part of the picture', 'code': '2'})
    return 200, TYPES[path.suffix], path.read_bytes()


def _json(status: int, document: Any) -> Tuple[int, str, bytes]:
    return status, 'application/json', json.dumps(document).encode()


def _newer(document: Json, since: float) -> Json:
    """Points and events are sent once."""
    def cut(table: Json) -> Json:
        return {**table, 'rows': [row for row in table['rows'] if row[0] > since]}

    series = document['series']
    return {**document, 'events': [each for each in document['events'] if each['time'] > since],
            'series': {'cluster': cut(series['cluster']), 'pools': {
                pool: cut(table) for pool, table in series['pools'].items()}}}


def take(page: ShownPage, name: str, directory: Path) -> Path:
    picture = PICTURES[name]
    with Browser(directory, height=picture.height) as browser:
        browser.open(page.url)
        for element in READY:
            browser.wait_shows(element)
        while picture.dark and browser.script('return document.documentElement.dataset.theme') \
                != 'dark':
            browser.click('theme-toggle')
        return browser.screenshot(name)


def main() -> int:
    os.environ['TZ'] = 'UTC'  # of the browser
    for name in sys.argv[1:] or sorted(STORIES):
        with ShownPage(shown(played(STORIES[name]))) as page, \
                tempfile.TemporaryDirectory() as directory:
            shutil.copyfile(take(page, name, Path(directory)), MANUAL / (name + '.png'))
    return 0


if __name__ == '__main__':
    sys.exit(main())
