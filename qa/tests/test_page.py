# SPDX-License-Identifier: LGPL-2.1-or-later
"""The dashboard's page in a browser, with an API that is made up: names that nothing should have,
mgrs that stop and return, users who may only read. No cluster is needed.
"""
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from qa.lib.browser import Browser
from qa.lib.fake_page import FakePage
from qa.lib.pictures import STORIES, ShownPage, Story, played, shown
from qa.lib.reference import MANUAL
from qa.sim.run import Settings

#: As in the page's tests/fake/data.ts.
HOSTILE = '<img src=x onerror=alert(1)>'
#: Probes at several queue depths, and of growing numbers of OSDs.
CURVE, SCALE = 8, 3


@pytest.fixture(scope='module')
def page() -> Iterator[FakePage]:
    with FakePage() as fake:
        yield fake


@pytest.fixture(scope='module')
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp('browser')) as opened:
        yield opened


def look(browser: Browser, page: FakePage, scenario: str) -> None:
    browser.open(page.url(scenario))
    browser.complaints()


def buttons(browser: Browser) -> List[str]:
    """Of the campaign and of rungs."""
    return [str(element.get_attribute('data-test')) for element in browser.driver.find_elements(
        By.CSS_SELECTOR, '[data-test^="button-"]')]


def points(browser: Browser, chart: str = 'chart-in-flight') -> int:
    element, = browser.all(chart)
    return int(element.get_attribute('data-points') or 0)


def focused(browser: Browser) -> str:
    return str(browser.driver.switch_to.active_element.get_attribute('data-test'))


def press(browser: Browser, key: str) -> None:
    browser.driver.switch_to.active_element.send_keys(key)


def test_hostile_names_are_text(browser: Browser, page: FakePage) -> None:
    browser.open(page.url('x'))
    browser.wait_shows('heat-osd-629')
    browser.click('pool-choice')
    browser.wait_text('pool-choice', HOSTILE)
    browser.click('pool-choice')
    browser.wait_text('events', HOSTILE)
    browser.click('osd-view')
    browser.wait_text('osd-table', f'rack-b-{HOSTILE}')
    browser.click('osd-view')
    browser.wait_shows('heat')
    assert browser.script("return document.querySelectorAll('img, script:not([src])').length") == 0
    assert browser.complaints() == []
    assert browser.foreign_requests(page.url('x')) == []


def test_slow_osds_are_marked_by_more_than_colour(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    browser.wait_shows('heat-osd-41')
    slow, = browser.all('heat-osd-41')
    assert slow.get_attribute('data-state') == 'slow'
    mark = slow.find_element(By.TAG_NAME, 'b')
    assert mark.is_displayed() and mark.get_attribute('data-mark') == 'S'
    assert 'slow: writes take' in (slow.get_attribute('aria-label') or '')
    browser.wait_text('heat-summary', 'osd.41')


def test_osds_are_reachable_by_keyboard(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    browser.wait_shows('heat-osd-18')
    browser.script("document.querySelector('[data-tile][tabindex=\"0\"]').focus()")
    press(browser, Keys.END)
    press(browser, Keys.ARROW_RIGHT)
    press(browser, Keys.ARROW_RIGHT)
    assert focused(browser) == 'heat-osd-1'
    browser.wait_text('heat-tip', 'osd.1')
    press(browser, Keys.ESCAPE)
    browser.wait(lambda: not browser.all('heat-tip'), 'the tip to go')


def test_a_thousand_osds_are_rolled_up_by_host_and_rack(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'huge')
    browser.wait_shows('heat-host-storage-00')
    assert browser.all('heat-osd-0') == []
    height = browser.script(
        'return document.querySelector(\'[data-test="heat"]\').getBoundingClientRect().height')
    assert height < 600
    slow, = browser.all('heat-host-storage-02')
    assert 'osd.41 slow' in (slow.get_attribute('aria-label') or '')
    assert browser.violations() == []
    # The first rack has every sixth host.
    browser.script("document.querySelector('[data-tile][tabindex=\"0\"]').focus()")
    press(browser, Keys.ARROW_RIGHT)
    assert focused(browser) == 'heat-host-storage-06'
    press(browser, Keys.ENTER)
    browser.wait_shows('heat-osd-108')
    assert browser.all('heat-host-storage-06')[0].get_attribute('aria-expanded') == 'true'
    assert browser.all('heat-osd-0') == []
    assert browser.violations() == []
    press(browser, Keys.SPACE)
    browser.wait(lambda: not browser.all('heat-osd-108'), 'the host to close')
    browser.click('heat-roll-up')
    browser.wait_shows('heat-osd-1079')
    browser.script('localStorage.clear()')


def test_escape_closes_a_dialog_and_restores_the_focus(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    browser.click('button-abort')
    browser.wait_text('dialog', 'Pins back 56 PGs in flight')
    press(browser, Keys.ESCAPE)
    browser.wait(lambda: not browser.all('dialog'), 'the dialog to go')
    browser.wait(lambda: focused(browser) == 'button-abort', 'the focus')
    assert browser.text('phase') == 'RELEASING'


def test_buttons_follow_the_phase_and_changes_are_announced(browser: Browser,
                                                            page: FakePage) -> None:
    look(browser, page, 'pinned')
    browser.wait_text('phase', 'PINNED')
    browser.wait(lambda: buttons(browser)[:3] == ['button-start', 'button-finish', 'button-abort'],
                 'the buttons')
    for verb, phase in (('start', 'RELEASING'), ('pause', 'HOLDING'), ('resume', 'RELEASING'),
                        ('finish', 'DONE')):
        browser.click(f'button-{verb}')
        browser.click('confirm-yes')
        browser.wait_text('phase', phase)
    announcer, = browser.all('announcer')
    assert 'DONE' in (announcer.get_attribute('textContent') or '')
    assert 'button-prepare' in buttons(browser)


def test_the_ways_out_of_an_aborted_campaign(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'aborted')
    browser.wait_text('phase', 'ABORTED')
    # Also afterwards.
    browser.wait_shows('limits')
    assert set(buttons(browser)) >= {'button-resume', 'button-rollback', 'button-finish'}
    for verb, phase in (('resume', 'RELEASING'), ('abort', 'ABORTED'), ('rollback', 'ABORTING')):
        browser.click(f'button-{verb}')
        if verb == 'rollback':
            browser.wait_text('rollback-preview', 'CRUSH weights will be set for 2 OSDs')
            assert browser.violations() == []
        browser.click('confirm-yes')
        browser.wait_text('phase', phase)
    assert 'button-rollback' not in buttons(browser)


def test_an_ended_campaign_shows_its_bill(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'done')
    browser.wait_shows('bill')
    text = browser.text('bill')
    for part in ('8.7 TiB', 'RELEASING 112 min', 'p99 4.40 ms (before 3.10 ms)', '93.0 %',
                 'movement explains 4,080, not 940, unknown 100', HOSTILE):
        assert part in text, part
    look(browser, page, 'releasing')
    browser.wait_text('phase', 'RELEASING')
    assert not browser.all('bill')


def test_borrowed_settings_and_limits_are_shown_on_request(browser: Browser, page: FakePage
                                                           ) -> None:
    look(browser, page, 'releasing')
    browser.wait_shows('held')
    browser.wait_text('tranche', '2 of about 5')
    for name, text in (('held', 'ceph balancer on'), ('limits', '61')):
        summary = browser.driver.find_element(By.CSS_SELECTOR, f'[data-test="{name}"] summary')
        summary.send_keys(Keys.ENTER)
        browser.wait_text(name, text)
    assert browser.violations() == []


@pytest.mark.parametrize('scenario, verb, what, text', [
    ('waiting', 'drain', 'host3', 'CRUSH weights will be set'),
    ('replacing', 'replace', 'osd.7', 'osd.7: wait until the campaign has emptied it')])
def test_osds_are_drained_or_replaced_after_a_preview(
        browser: Browser, page: FakePage, scenario: str, verb: str, what: str, text: str) -> None:
    look(browser, page, scenario)
    browser.click('button-' + verb)
    browser.wait_shows(verb + '-what')
    assert not browser.shows(verb + '-preview')
    browser.all(verb + '-what')[0].send_keys(what)
    browser.wait_text(verb + '-preview', text)
    assert browser.violations() == []
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING')


def test_hosts_are_exchanged_after_a_preview(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'exchanging')
    browser.click('button-expand')
    browser.wait_shows('expand-drain')
    browser.all('expand-what')[0].send_keys('host9')
    browser.all('expand-drain')[0].send_keys('host3, osd.7')
    browser.wait_text('expand-preview', 'will be set for 2 OSDs: host3, osd.7.')
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING')


@pytest.mark.parametrize('verb, fields, text', [
    ('grow', {'what_if': '4x12x16T', 'under': 'rack2', 'device_class': 'ssd'},
     '48 new OSDs of 14.6 TiB in 4 hosts below rack2, class ssd.'),
    ('lose', {'what': 'host3'}, 'Time to full redundancy: not known yet.')])
def test_what_is_only_supposed_is_previewed_and_never_begun(
        browser: Browser, page: FakePage, verb: str, fields: Dict[str, str], text: str) -> None:
    look(browser, page, 'holding')
    browser.click('ask-' + verb)
    browser.wait_shows('%s-%s' % (verb, next(iter(fields))))
    for name, value in fields.items():
        browser.all('%s-%s' % (verb, name))[0].send_keys(value)
    browser.wait_text(verb + '-preview', text)
    assert 'MAX AVAIL 1.8 TiB (before 931 GiB)' in browser.text(verb + '-preview')
    assert HOSTILE in browser.text(verb + '-preview')
    assert browser.violations() == [] and not browser.all('confirm-yes')
    press(browser, Keys.ESCAPE)
    browser.wait(lambda: focused(browser) == 'ask-' + verb, 'the focus to return')


def test_a_crush_map_is_applied_from_a_file_after_a_preview(
        browser: Browser, page: FakePage, tmp_path: Path) -> None:
    look(browser, page, 'applying')
    browser.click('button-crushmap')
    browser.wait_shows('crushmap-what')
    for text, answer in (('not one', 'not a CRUSH map, for a test'),
                         ('# begin crush map', 'The CRUSH map will be replaced.')):
        crush_map = tmp_path / ('%d.txt' % len(text))
        crush_map.write_text(text)
        browser.all('crushmap-what')[0].send_keys(str(crush_map))
        browser.wait_text('crushmap-preview', answer)
    assert browser.violations() == []
    # What was chosen is forgotten with the question.
    browser.click('confirm-no')
    browser.click('button-crushmap')
    browser.wait_shows('crushmap-what')
    assert not browser.shows('crushmap-preview')
    browser.all('crushmap-what')[0].send_keys(str(crush_map))
    browser.wait_text('crushmap-preview', answer)
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING')


@pytest.mark.parametrize('scenario, verb, fields, text', [
    ('balancing', 'balance', {'by': 'bytes', 'max_movement': '5%'}, 'Fill of the OSDs: 45.0 % to'),
    ('ruling', 'rule', {'pool': 'rbd', 'rule': 'fast'}, HOSTILE),
    ('splitting', 'pg_num', {'pool': 'rbd', 'pg_num': '128'}, '128 PGs instead of 64')])
def test_pools_are_changed_after_a_preview(browser: Browser, page: FakePage, scenario: str,
                                           verb: str, fields: Dict[str, str], text: str) -> None:
    look(browser, page, scenario)
    browser.click('button-' + verb)
    for name, value in fields.items():
        browser.wait_shows('%s-%s' % (verb, name))
        browser.all('%s-%s' % (verb, name))[0].send_keys(value)
    browser.wait_text(verb + '-preview', text)
    assert browser.violations() == []
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING')


def test_the_wait_for_osds_is_begun_and_ended(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'awaiting')
    for _ in range(2):
        browser.wait_shows('button-abort')
        assert browser.text('button-abort').startswith('End wait')
        browser.click('button-abort')
        browser.wait_text('dialog', 'keep CRUSH weight 0')
        assert browser.violations() == []
        browser.click('confirm-yes')
        browser.wait(lambda: not browser.all('button-abort'), 'the end of the wait')
        browser.click('button-expand')
        browser.click('expand-awaited')
        browser.wait_text('expand-preview', 'OSDs that boot start with CRUSH weight 0')
        assert browser.violations() == []
        browser.click('confirm-yes')


def test_a_saved_plan_is_approved_after_a_preview(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'planned')
    browser.wait_text('phase', 'IDLE')
    browser.driver.find_element(By.CSS_SELECTOR, '[data-test="plans"] summary').send_keys(
        Keys.ENTER)
    browser.wait_text('plan-old', HOSTILE)
    assert browser.all('button-approve-old') == []
    browser.click('button-approve-rack2')
    browser.wait_text('plan-preview', 'Pins 211 PGs')
    browser.wait_text('plan-accepted', 'PG_LIMIT, UNPINNABLE')
    browser.driver.find_element(By.CSS_SELECTOR, '[data-test="fills"] summary').send_keys(
        Keys.ENTER)
    browser.wait_text('fills', 'osd.2 130 99 84.0 % 66.0 %')
    assert browser.violations() == []
    # The fake API refuses any token but that of the plan which is shown.
    browser.click('confirm-yes')
    browser.wait_text('phase', 'RELEASING')


def test_a_chosen_pool_is_drawn_with_its_last_hour(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    browser.wait_shows('chart-latency-1')
    browser.click('pool-choice')
    choice, = browser.all('pool-choice')
    boxes = choice.find_elements(By.CSS_SELECTOR, 'input')
    boxes[4].click()
    browser.wait(lambda: points(browser, 'chart-latency-5') >= 719, 'another pool')
    boxes[0].click()
    browser.wait(lambda: not browser.all('chart-latency-1'), 'the first pool to go')
    assert browser.all('chart-latency-2') == []


def test_p99_is_drawn_on_request(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    browser.wait_text('chart-latency-1', 'read limit (mean)')
    assert 'p99' not in browser.text('chart-latency-1')
    browser.click('chart-p99')
    browser.wait_text('chart-latency-1', 'read p99')
    browser.script('localStorage.clear()')


def test_refusals_are_shown_beside_the_button(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'releasing')
    browser.click('button-revert-3')
    browser.click('confirm-yes')
    browser.wait_text('error', 'is refused, for a test')
    browser.click('confirm-no')
    browser.wait(lambda: not browser.all('error'), 'the error to go')


def test_refusals_after_escape_are_shown_as_well(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'releasing')
    browser.click('button-revert-3')
    browser.click('confirm-yes')
    press(browser, Keys.ESCAPE)
    browser.wait(lambda: not browser.all('dialog'), 'the dialog to go')
    browser.wait_text('error', 'is refused, for a test')
    assert browser.all('dialog') == []


def test_closing_results_restores_the_focus(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'idle')
    for test in ('probe-mark-1', 'probe-mark-2', 'probe-compare-button'):
        browser.click(test)
    browser.wait_shows('probe-compare')
    browser.click('probe-show-2')
    browser.wait_shows('probe-details')
    for panel, opener in (('probe-compare', 'probe-compare-button'),
                          ('probe-details', 'probe-show-2')):
        browser.driver.find_element(By.CSS_SELECTOR, f'[data-test="{panel}"] button').click()
        browser.wait(lambda: focused(browser) == opener, f'the focus at {opener}')


def test_an_outdated_heat_map_is_labelled(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'forgetful')
    browser.wait_shows('heat-osd-629')
    assert browser.all('heat-stale') == []
    browser.script('const now = Date.now; Date.now = () => now() + 40000')
    browser.wait_text('heat-stale', 'no OSD has been looked at yet', 30)
    browser.wait(lambda: not browser.all('banner-stale'), 'the overview to be fresh')
    assert browser.text('heat-stale').startswith('as of ')


def test_readers_see_no_buttons(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'readonly')
    browser.wait_text('banner-readonly', 'guest has read-only access')
    browser.wait_shows('probe-row-1')
    assert buttons(browser) == [] and not browser.all('ask-lose')
    assert browser.all('probe-form') == []
    assert not any(browser.all(f'probe-{verb}-1') for verb in ('baseline', 'delete'))


@pytest.mark.parametrize('scenario, text, link', [
    ('stale', 'loop hangs', ''),
    ('expired', 'The login has expired', 'link-login'),
    ('down', 'perfguard is not enabled', ''),
    ('standby', 'another mgr is active', 'link-active')])
def test_stale_data_are_shown_with_the_reason(
        browser: Browser, page: FakePage, scenario: str, text: str, link: str) -> None:
    look(browser, page, scenario)
    browser.wait_text('banner-stale', text)
    if link:
        element, = browser.all(link)
        assert f'/{scenario}/' in (element.get_attribute('href') or '')
        assert element.get_attribute('target') == '_blank'


def test_another_mgr_takes_over_without_a_reload(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'releasing')
    browser.wait(lambda: points(browser) >= 719, 'an hour of points')
    browser.script('window.mark = 1')
    page.stop()
    browser.wait_text('banner-stale', 'cannot be reached', 30)
    assert points(browser) >= 719
    page.start('--name', 'other')
    browser.wait(lambda: not browser.all('banner-stale'), 'the page to go on', 60)
    browser.wait(lambda: 'other' in browser.driver.find_element(By.TAG_NAME, 'header').text,
                 'the name of the other mgr')
    # All but what was not measured in between, and what is older than an hour by now.
    assert points(browser) > 700
    assert browser.script('return window.mark') == 1


def test_probes_are_compared_as_text_and_bars(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    for test in ('probe-mark-1', 'probe-mark-2', 'probe-compare-button'):
        browser.click(test)
    browser.wait_text('probe-compare', '0.69 times (0.58 to 0.83)')
    bars = browser.driver.find_elements(By.CSS_SELECTOR, '[data-test="probe-compare"] svg')
    assert 'p99 latency: 6.00 ms before, 11.4 ms after' in (
        bars[3].get_attribute('aria-label') or '')
    browser.click('probe-show-2')
    browser.wait_text('probe-details', 'randread-4k-1')


def test_curves_and_scaling_of_probes_are_charts(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'x')
    for probe, chart, points_, text in (
            (CURVE, 'probe-curve-0', 7, 'Knee at depth 4: 10,000 operations per second at 0.40 ms'),
            (SCALE, 'probe-scale-0', 3, '4 OSDs: 2,592 operations per second, 81.0 % of linear')):
        browser.click(f'probe-show-{probe}')
        browser.wait_text(chart, text)
        assert points(browser, chart) == points_
        drawn = browser.driver.find_element(By.CSS_SELECTOR, f'[data-test="{chart}"] svg')
        assert text in (drawn.get_attribute('aria-label') or '')
        assert browser.violations() == []
    browser.click('probe-show-2')
    browser.wait(lambda: not browser.all('probe-scale-0'), 'the chart to go')
    assert browser.complaints() == []


def test_the_theme_is_remembered(browser: Browser, page: FakePage) -> None:
    look(browser, page, 'idle')
    browser.click('theme-toggle')
    browser.click('theme-toggle')
    assert browser.script('return document.documentElement.dataset.theme') == 'dark'
    browser.open(page.url('idle'))
    browser.wait_text('theme-toggle', 'Dark')
    assert browser.script('return document.documentElement.dataset.theme') == 'dark'
    browser.script('localStorage.clear()')


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_axe_finds_no_barriers(browser: Browser, page: FakePage, theme: str) -> None:
    for scenario, part in (('holding', 'heat-osd-629'), ('readonly', 'banner-readonly'),
                           ('expired', 'banner-stale'), ('x', 'heat-osd-629')):
        browser.script(f"localStorage.setItem('perfguard-theme', '{theme}')")
        look(browser, page, scenario)
        browser.wait_shows(part)
        assert browser.violations() == []
    for test in ('osd-view', 'probe-mark-1', 'probe-mark-2', 'probe-compare-button',
                 'probe-show-2'):
        browser.click(test)
    browser.wait_shows('probe-compare')
    browser.wait_shows('probe-details')
    assert browser.violations() == []
    browser.click('button-abort')
    browser.wait_shows('dialog')
    assert browser.violations() == []
    browser.script('localStorage.clear()')


def test_it_fits_a_narrow_window(tmp_path: Path, page: FakePage) -> None:
    with Browser(tmp_path, width=390, height=3200) as narrow:
        narrow.open(page.url('x'))
        narrow.wait_shows('probe-form')
        narrow.wait_shows('heat-osd-629')
        for test in ('held', 'limits', 'plans', 'pool-choice'):
            narrow.driver.find_element(
                By.CSS_SELECTOR, '[data-test="%s"] summary' % test).send_keys(Keys.ENTER)
        narrow.wait_shows('plan-old')
        narrow.screenshot('phone')
        assert narrow.script(
            'return [document.documentElement.scrollWidth, window.innerWidth,'
            ' Math.ceil(document.querySelector(".choice-list").getBoundingClientRect().right)]'
        ) == [390, 390, 380]
        assert narrow.violations() == []
        for test, field in (('button-expand', 'expand-drain'), ('ask-grow', 'grow-what_if')):
            narrow.open(page.url('phone'))
            narrow.wait_shows(test)
            narrow.driver.find_element(
                By.CSS_SELECTOR, '[data-test="%s"]' % test).send_keys(Keys.ENTER)
            narrow.wait_shows(field)
            narrow.all(field)[0].send_keys('4x12x16T')
            narrow.wait_text(field.partition('-')[0] + '-preview', 'Primaries that move')
            narrow.screenshot('phone-' + test)
            assert narrow.script(
                'return [document.documentElement.scrollWidth,'
                ' document.querySelector("dialog").scrollWidth'
                ' - document.querySelector("dialog").clientWidth]') == [390, 0]
            assert narrow.violations() == []


def test_the_manual_has_each_picture_and_no_other() -> None:
    assert {name + '.png' for name in STORIES} == {path.name for path in MANUAL.glob('*.png')}


def test_the_page_shows_a_model_cluster(browser: Browser) -> None:
    """As for the pictures of the manual."""
    story = Story(Settings(osds=24, added=8, hosts_per_rack=4, pools=(256, 64)), 60.0,
                  lambda model, begin: model.at(begin + 20.0, lambda: model.hang(2)))
    with ShownPage(shown(played(story))) as page:
        browser.open(page.url)
        browser.wait_text('laggy', 'osd.2')
        browser.wait_text('phase', 'HOLDING')
        browser.wait_shows('heat-osd-23')
        browser.wait(lambda: points(browser) > 10, 'the charts')
        browser.wait_text('chart-latency-1', 'volumes')
        assert browser.complaints() == []
