# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page in a real browser, on real clusters whose clients are at work.

Two mgrs are behind a proxy, below a path. The tests of a release share one cluster, and one
browser in which an administrator has the page open all the time: they go through a day of it, in
their order. After each there is a screenshot.
"""
import re
from pathlib import Path
from typing import Iterator, List, NamedTuple

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from qa.cluster import Cluster
from qa.cluster.dashboard import Dashboard
from qa.lib.browser import BAD_STATUS, Browser
from qa.lib.clusters import ClusterFactory
from qa.lib.faults import LAGGY_CONF, laggy
from qa.lib.guard import Guard
from qa.lib.joins import crush_weights
from qa.lib.probes import PATIENT_CLIENTS, SHORT, Probes
from qa.lib.proxy import Proxy

pytestmark = pytest.mark.releases('pacific', 'reef', 'tentacle', quick='tentacle')

PREFIX = '/ceph'
#: A campaign that takes long enough to be looked at.
OPTIONS = {'baseline_seconds': '5', 'max_pgs_in_flight': '4', 'campaign_interval': '1',
           **PATIENT_CLIENTS}
HANGS = 3
HOSTILE_POOL = '<img src=x onerror="window.hostile=1">'
#: CRUSH takes no such name by command, but in a compiled map.
HOSTILE_HOST = '<img/src=x/onerror=window.hostile=2>'


class Scene(NamedTuple):
    guard: Guard
    dashboard: Dashboard
    #: Of the proxy, where the page is.
    url: str
    browser: Browser
    directory: Path

    @property
    def cluster(self) -> Cluster:
        return self.guard.cluster

    def enter(self, browser: Browser, user: str) -> None:
        browser.login(self.url, user, self.dashboard.passwords[user])
        browser.open(self.url + '/perfguard')
        browser.wait_shows('phase')


@pytest.fixture(scope='module')
def shared(release: str, cluster_factory: ClusterFactory,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster = cluster_factory(release, osds=8, hosts=4, mgrs=2, conf=LAGGY_CONF)
    cluster.pool_create('p', 128)
    cluster.fill('p', 4000, 4096)
    guard = Guard(cluster, OPTIONS)
    dashboard = cluster.dashboard()
    guard.wait_ready()
    cluster.load('p', rate=200, read_fraction=0.7, runtime=900)
    directory = tmp_path_factory.mktemp('browser')
    with Proxy(cluster, PREFIX) as proxy, Browser(directory) as browser:
        scene = Scene(guard, dashboard, proxy.url, browser, directory)
        scene.enter(browser, 'admin')
        # All that follows happens without leaving the page.
        browser.script('window.neverReloaded = true')
        browser.wait_shows('heat-osd-7')
        yield scene
    # Not beside the next release's cluster.
    cluster.down()


@pytest.fixture
def scene(shared: Scene, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The browser must have nothing to complain of, nor ask anybody else."""
    yield shared
    shared.browser.screenshot(re.sub(r'\W+', '-', request.node.name).strip('-'))
    # It has asked while no mgr answered.
    assert not [text for text in shared.browser.complaints() if BAD_STATUS not in text]
    assert not shared.browser.foreign_requests(shared.url)


def bar(browser: Browser) -> int:
    """Percent of the campaign that is done."""
    element, = browser.all('campaign-bar')
    return int(str(element.get_attribute('aria-valuenow')))


def confirm(browser: Browser, verb: str) -> None:
    browser.click(f'button-{verb}')
    browser.click('confirm-yes')
    browser.wait(lambda: not browser.shows('dialog'), f'{verb} to be taken')


def buttons(browser: Browser) -> List[str]:
    """What can be done with the campaign."""
    verbs = ('expand', 'prepare', 'pin', 'start', 'pause', 'resume', 'finish', 'abort', 'rollback')
    return [verb for verb in verbs if browser.shows(f'button-{verb}')]


def wait_quiet(guard: Guard) -> None:
    """Until perfguard, too, knows that all PGs are clean."""
    guard.cluster.wait_clean(60)
    guard.cluster.wait(lambda: guard.get('status')['signals']['active_clean_pgs'] == sum(
        pool['pg_num'] for pool in guard.cluster.osd_dump()['pools']), 30, 'clean PGs')


def choose(browser: Browser, theme: str) -> None:
    """The button switches from the colours of the system to light, to dark, and back."""
    for _ in range(3):
        browser.click('theme-toggle')
        if theme.capitalize() == browser.text('theme-toggle'):
            break
    assert browser.script('return document.documentElement.dataset.theme') == theme


def state_of(browser: Browser, osd: int) -> str:
    element, = browser.all(f'heat-osd-{osd}')
    return str(element.get_attribute('data-state'))


def test_idle(scene: Scene) -> None:
    browser = scene.browser
    browser.wait_text('phase', 'IDLE')
    # Warm they may be, on a machine that has other things to do.
    assert not [osd for osd in range(8) if state_of(browser, osd) not in ('ok', 'warm')]
    browser.wait_shows('charts')
    assert buttons(browser) == ['expand', 'prepare']
    assert not browser.shows('banner-stale') and not browser.shows('banner-readonly')
    browser.wait(lambda: browser.script('return document.querySelectorAll("canvas").length') > 0,
                 'a chart')
    assert not browser.violations()


def test_suppositions_are_previewed(scene: Scene) -> None:
    browser = scene.browser
    wait_quiet(scene.guard)
    for verb, field, given, text in (
            ('grow', 'what_if', '1x2x1G', '2 new OSDs of 954 MiB in 1 host below default'),
            ('lose', 'what', 'osd.7', 'Lost: 1 OSD of ')):
        browser.click('ask-' + verb)
        browser.wait_shows('%s-%s' % (verb, field))
        browser.all('%s-%s' % (verb, field))[0].send_keys(given)
        browser.wait_text(verb + '-preview', text, 30)
        assert 'Pool p: MAX AVAIL' in browser.text(verb + '-preview')
        assert not browser.violations()
        browser.screenshot('%s-%s' % (verb, scene.cluster.release.name))
        browser.click('confirm-no')
    assert scene.guard.status()['phase'] == 'IDLE'


def test_a_phone_without_a_mouse(scene: Scene) -> None:
    """An order is previewed, and left, with keys alone."""
    with Browser(scene.directory, width=390, height=3200) as phone:
        scene.enter(phone, 'admin')
        phone.wait_shows('heat-osd-7')
        phone.wait_shows('button-drain')
        phone.all('button-drain')[0].send_keys(Keys.ENTER)
        phone.wait_shows('drain-what')
        focused = phone.driver.switch_to.active_element
        assert focused.get_attribute('data-test') == 'drain-what'
        focused.send_keys('osd.7')
        phone.wait_text('drain-preview', 'will be set for 1 OSD: osd.7.', 30)
        assert phone.script('return document.documentElement.scrollWidth') == 390
        assert not phone.violations()
        phone.screenshot('phone-' + scene.cluster.release.name)
        phone.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        phone.wait(lambda: phone.driver.switch_to.active_element.get_attribute('data-test')
                   == 'button-drain', 'the focus to return')
        assert not phone.violations()
    assert scene.guard.status()['phase'] == 'IDLE'


def test_probe(scene: Scene) -> None:
    """Started from the form; its results are shown on the page."""
    browser, cluster = scene.browser, scene.cluster
    cluster.wait_clean(60)
    for field, text in (('pool', 'p'), ('runtime', '1'), ('repeat', '1')):
        browser.fill('probe-form', field, text)

    def begun() -> bool:
        # Refused, with its words on the page, while the cluster settles.
        browser.click('probe-start')
        browser.wait(lambda: browser.all('probe-row-1') or browser.text('error'), 'an answer')
        return bool(browser.all('probe-row-1'))

    cluster.wait(begun, 60, 'the probe to begin')
    browser.wait(lambda: browser.all('probe-row-1')[0].get_attribute('data-state') == 'done',
                 'the end of the probe', 90)
    browser.click('probe-show-1')
    browser.wait_text('probe-details', 'p99')
    assert not browser.all('probe-curve-0')


def test_a_curve_is_a_chart(scene: Scene) -> None:
    browser, probes = scene.browser, Probes(scene.guard)
    run = probes.measure(**{**SHORT, 'repeat': '1'}, profile='curve', pool='p')['id']
    browser.wait(lambda: browser.all(f'probe-show-{run}'), 'the probe in the list')
    browser.click(f'probe-show-{run}')
    browser.wait_text('probe-curve-0', 'Knee at depth')
    assert browser.all('probe-curve-0')[0].get_attribute('data-points') == '13'


def test_a_compiled_crush_map_is_applied(scene: Scene) -> None:
    browser, cluster, guard = scene.browser, scene.cluster, scene.guard
    wait_quiet(guard)
    before, after = cluster.directory / 'crush', cluster.directory / 'crush.new'
    cluster.ceph('osd', 'getcrushmap', '-o', str(before))
    cluster.run_tool(['crushtool', '-i', str(before), '--reweight-item', 'osd.7', '0.9',
                      '-o', str(after)])
    browser.click('button-crushmap')
    browser.wait_shows('crushmap-what')
    browser.all('crushmap-what')[0].send_keys(str(after))
    browser.wait_text('crushmap-preview', 'Pins')
    browser.click('confirm-yes')
    browser.wait_text('phase', 'DONE', 120)
    assert round(crush_weights(cluster)[7], 2) == 0.9
    assert not guard.status()['pinned']


def change(scene: Scene, verb: str, what: str, preview: str) -> None:
    """Carry out an order after its preview, and wait for the end of its campaign."""
    browser, guard = scene.browser, scene.guard
    wait_quiet(guard)
    former = guard.status()['id'] or 0
    browser.click(f'button-{verb}')
    browser.wait_shows(f'{verb}-what')
    browser.all(f'{verb}-what')[0].send_keys(what)
    browser.wait_text(f'{verb}-preview', preview)
    assert not browser.violations()
    browser.screenshot(f'{verb}-{scene.cluster.release.name}')
    browser.click('confirm-yes')
    scene.cluster.wait(lambda: (guard.status()['id'] or 0) > former
                       and guard.status()['phase'] == 'DONE', 120, f'the end of the {verb}')
    browser.wait_text('phase', 'DONE')
    assert not browser.violations()


def test_an_osd_is_drained_and_filled_again(scene: Scene) -> None:
    cluster = scene.cluster
    change(scene, 'drain', 'osd.6', 'CRUSH weights will be set for 1 OSD: osd.6.')
    assert crush_weights(cluster)[6] < 0.001
    assert not [pg for pg in cluster.pgs() if 6 in pg['acting']]
    change(scene, 'undrain', 'osd.6', 'CRUSH weights will be set for 1 OSD: osd.6.')
    assert crush_weights(cluster)[6] == 1.0
    assert [pg for pg in cluster.pgs() if 6 in pg['acting']]


def test_an_osd_is_replaced(scene: Scene) -> None:
    cluster, guard = scene.cluster, scene.guard
    change(scene, 'replace', 'osd.5', 'osd.5: wait until the campaign has emptied it')
    last, host = guard.status()['id'], cluster.osd_hosts()[5]
    cluster.wait(lambda: [row for row in guard.get('osds', drained=True)['drains']
                          if row['osd'] == 5 and row['pgs'] == 0], 60, 'an empty OSD')
    cluster.remove_osds([5], destroy=True)
    cluster.add_osds(1, hosts=[host], ids=[5], in_crush=False)
    cluster.wait(lambda: guard.status()['id'] > last and guard.status()['phase'] == 'DONE', 180,
                 'a full OSD')
    scene.browser.wait_text('phase', 'DONE')
    assert crush_weights(cluster)[5] == 1.0
    assert [pg for pg in cluster.pgs() if 5 in pg['acting']]


def test_expansion(scene: Scene) -> None:
    browser, cluster, guard = scene.browser, scene.cluster, scene.guard
    choose(browser, 'light')
    cluster.add_osds(4, weight=0.0)
    wait_quiet(guard)
    cluster.wait(lambda: guard.ask('preview', change='expand')[0] == 0, 60, 'reports of new OSDs')
    browser.click('button-expand')
    browser.wait_shows('expand-weight')
    browser.all('expand-weight')[0].send_keys('1.0')
    browser.all('expand-drain')[0].send_keys('osd.4')
    browser.wait_text('expand-preview', 'CRUSH weights will be set for 5 OSDs: ', 30)
    assert re.search(r'\bosd\.4\b', browser.text('expand-preview'))
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING', 60)
    assert crush_weights(cluster)[4] < 0.001
    browser.wait_shows('heat-osd-11')
    browser.wait(lambda: bar(browser) > 0, 'the bar to move', 60)
    first = bar(browser)
    browser.wait(lambda: bar(browser) > first, 'the bar to move on', 60)
    assert buttons(browser) == ['pause', 'finish', 'abort', 'rollback']
    assert browser.text('eta') and browser.text('reasons')


def test_pause(scene: Scene) -> None:
    browser, cluster, guard = scene.browser, scene.cluster, scene.guard
    browser.click('button-pause')
    browser.wait_shows('confirm-no')
    browser.click('confirm-no')
    assert not guard.status()['paused']
    confirm(browser, 'pause')
    cluster.wait(lambda: guard.status()['paused'], 15, 'the pause')
    cluster.wait(lambda: 'norebalance' in cluster.osd_dump()['flags_set'], 15, 'norebalance')
    browser.wait(lambda: buttons(browser) == ['resume', 'finish', 'abort', 'rollback'],
                 'the resume button')


def test_reader(scene: Scene) -> None:
    """Sees what the administrator sees, and no button that would act."""
    before = scene.guard.status()
    with Browser(scene.directory) as browser:
        scene.enter(browser, 'reader')
        browser.wait_shows('banner-readonly')
        browser.wait_shows('heat-osd-0')
        # The two do not ask at the same moment.
        browser.wait(lambda: bar(browser) == bar(scene.browser), 'the same bar in both')
        assert buttons(browser) == [] and not browser.all('probe-form')
        assert not browser.driver.find_elements(By.CSS_SELECTOR, '[data-test^="button-"]')
        browser.script(f"""
            fetch('{PREFIX}/api/perfguard/campaign/resume', {{method: 'POST', body: '{{}}',
                headers: {{'Content-Type': 'application/json',
                           'Accept': 'application/vnd.ceph.api.v1.0+json'}}}})
                .then(answer => {{ window.answered = answer.status }})""")
        browser.wait(lambda: browser.script('return window.answered') == 403, 'a refusal')
        browser.screenshot('reader-' + scene.cluster.release.name)
        assert not [text for text in browser.complaints() if BAD_STATUS not in text]
    assert scene.guard.status()['paused'] and scene.guard.status()['id'] == before['id']


def test_failover(scene: Scene) -> None:
    """The page shows that it is stale, and continues with the other mgr without a reload."""
    browser, cluster = scene.browser, scene.cluster
    dead = cluster.active_mgr()
    cluster.kill('mgr.' + dead)
    browser.wait_shows('banner-stale', 30)
    browser.screenshot('stale-' + cluster.release.name)
    cluster.mon('mgr fail', who=dead)
    cluster.start('mgr.' + dead)
    browser.wait(lambda: not browser.shows('banner-stale'), 'an answer', 60)
    assert cluster.active_mgr() != dead and scene.guard.status()['paused']
    assert buttons(browser) == ['resume', 'finish', 'abort', 'rollback']
    assert browser.script('return window.neverReloaded')


def test_resume_and_abort(scene: Scene) -> None:
    browser, guard = scene.browser, scene.guard
    done = bar(browser)
    confirm(browser, 'resume')
    browser.wait(lambda: bar(browser) > done, 'the bar to move again', 60)
    assert not guard.status()['paused']
    confirm(browser, 'abort')
    browser.wait_text('phase', 'ABORTED', 60)
    assert guard.status()['phase'] == 'ABORTED' and guard.status()['released'] > 0
    browser.wait_text('events', 'abort')
    assert buttons(browser) == ['expand', 'prepare', 'resume', 'finish', 'rollback']
    assert 'norebalance' not in scene.cluster.osd_dump()['flags_set']


def test_laggy_osd_turns_red(scene: Scene) -> None:
    browser, cluster = scene.browser, scene.cluster
    cluster.wait_clean(60)
    choose(browser, 'dark')
    assert state_of(browser, HANGS) != 'slow'
    with laggy(cluster, HANGS):
        browser.wait(lambda: state_of(browser, HANGS) == 'slow', 'the OSD to turn red', 60)
        # On a busy machine another one may be slow as well.
        assert [state_of(browser, osd) for osd in (0, 1, 2)].count('slow') <= 1
        browser.wait_text('laggy', f'osd.{HANGS}')
        browser.screenshot('laggy-' + cluster.release.name)
    browser.wait(lambda: state_of(browser, HANGS) != 'slow', 'the OSD to be well again', 60)
    assert browser.script('return window.neverReloaded')


def test_hostile_names_are_text(scene: Scene) -> None:
    browser, cluster = scene.browser, scene.cluster
    cluster.pool_create(HOSTILE_POOL, 8)
    cluster.fill(HOSTILE_POOL, 10, 4096)
    rename_host(cluster, 'host0', HOSTILE_HOST)
    browser.wait_text('heat', HOSTILE_HOST)
    browser.wait(lambda: HOSTILE_POOL in browser.script(
        'return [...document.querySelectorAll("option")].map(each => each.value)'), 'the pool')
    assert browser.script('return window.hostile') is None
    assert browser.script('return document.querySelectorAll("img").length') == 0


def rename_host(cluster: Cluster, host: str, name: str) -> None:
    """By way of a harmless name of that length, which is replaced in the compiled CRUSH map."""
    harmless = 'h' * len(name)
    cluster.mon('osd crush rename-bucket', srcname=host, dstname=harmless)
    path = cluster.directory / 'crush'
    cluster.ceph('osd', 'getcrushmap', '-o', str(path))
    path.write_bytes(path.read_bytes().replace(harmless.encode(), name.encode()))
    cluster.ceph('osd', 'setcrushmap', '-i', str(path))
