# SPDX-License-Identifier: LGPL-2.1-or-later
"""A headless Chromium that can only reach the loopback address.

    with Browser(tmp_path) as browser:
        browser.login(dashboard.url(), 'admin', password)
        browser.open(dashboard.url() + '/perfguard')
        assert browser.wait_text('phase', 'IDLE')
        browser.screenshot('idle')
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.file_detector import UselessFileDetector
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from qa.cluster.daemons import tied_argv
from qa.lib.fake_page import node_modules

CHROMIUM, DRIVER = '/usr/bin/chromium', '/usr/bin/chromedriver'
WAIT_SECONDS = 60.0
#: On a busy machine, axe takes long for 630 OSDs.
SCRIPT_SECONDS = 120.0
#: Directory of screenshots; by default below the directory of pytest.
ARTEFACTS = 'PERFGUARD_ARTEFACTS'
#: Reports violations of WCAG.
RUN_AXE = '''
    const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']}).then((found) => done(
        found.violations.map((each) => `${each.id}: ${each.nodes[0].html}`)));
'''
#: No window is narrower: Chromium emulates the screens of phones.
LEAST_WIDTH = 500
#: Messages of the console on responses with an error status, which tests may provoke.
BAD_STATUS = 'Failed to load resource'


class Browser:
    """High enough for screenshots of a whole page."""

    def __init__(self, directory: Path, width: int = 1280, height: int = 2000) -> None:
        self._artefacts = Path(os.environ.get(ARTEFACTS, directory))
        self._artefacts.mkdir(parents=True, exist_ok=True)
        #: Directory of all files of the browser. The path is short, because it contains sockets.
        self._home = tempfile.mkdtemp(prefix='browser-')
        self._urls: List[str] = []
        # Chromium ends with its driver, which has the other end of its debugging pipe.
        self._process = subprocess.Popen(
            tied_argv([DRIVER, '--port=0']), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(('HOME', 'TMPDIR', 'XDG_CONFIG_HOME'), self._home)},
            universal_newlines=True)
        try:
            self.driver = WebDriver(f'http://127.0.0.1:{self._port()}',
                                    options=self._options(width, height))
            self.driver.set_script_timeout(SCRIPT_SECONDS)
            # The browser is on this machine: files need not be sent to it first.
            self.driver.file_detector = UselessFileDetector()
        except BaseException:
            self._end()
            raise

    def _port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match = re.search(r'started successfully on port (\d+)', line)
            if match:
                return int(match.group(1))
        raise RuntimeError('chromedriver has ended')

    def _options(self, width: int, height: int) -> webdriver.ChromeOptions:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        options.ignore_local_proxy_environment_variables()
        for argument in (
                'headless=new', 'remote-debugging-pipe', 'disable-gpu', 'disable-dev-shm-usage',
                'no-first-run', 'disable-background-networking', 'disable-component-update',
                'disable-sync', 'no-proxy-server', 'lang=en-US',
                'host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
                f'user-data-dir={self._home}/profile', f'window-size={width},{height}'):
            options.add_argument(f'--{argument}')
        if width < LEAST_WIDTH:
            options.add_experimental_option('mobileEmulation', {'deviceMetrics': {
                'width': width, 'height': height, 'pixelRatio': 1.0, 'touch': False}})
        if os.getuid() == 0:
            options.add_argument('--no-sandbox')
        options.set_capability('goog:loggingPrefs', {'browser': 'ALL', 'performance': 'ALL'})
        return options

    def __enter__(self) -> 'Browser':
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if error is not None:
                self.screenshot('failure')
            self.driver.quit()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
        # Remaining processes of the browser may still write.
        shutil.rmtree(self._home, ignore_errors=True)

    # ---- Navigation

    def open(self, url: str) -> None:
        self.driver.get(url)

    def login(self, url: str, user: str, password: str) -> None:
        """Log in with the form of the dashboard, which differs between releases."""
        self.open(f'{url}/#/login')
        self.wait(lambda: self.driver.find_element(By.NAME, 'username').is_displayed(),
                  'the login form')
        self.driver.find_element(By.NAME, 'username').send_keys(user)
        self.driver.find_element(By.NAME, 'password').send_keys(password, Keys.ENTER)
        self.wait(lambda: not self.driver.current_url.endswith('/login'), 'the login')
        # Errors of pages of the dashboard do not count.
        self.open('about:blank')
        self.complaints()

    # ---- Elements

    def all(self, test: str) -> List[WebElement]:
        """The elements with this data-test attribute."""
        return self.driver.find_elements(By.CSS_SELECTOR, f'[data-test="{test}"]')

    def shows(self, test: str) -> bool:
        return any(element.is_displayed() for element in self.all(test))

    def text(self, test: str) -> str:
        """The visible text of the only element with this data-test attribute."""
        element, = self.all(test)
        return element.text

    def click(self, test: str) -> None:
        """Click an element as soon as it exists and can be clicked."""
        def clicked() -> bool:
            element, = self.all(test)
            element.click()
            return True

        self.wait(clicked, f'{test} to be clicked')

    def fill(self, test: str, field: str, text: str) -> None:
        """Fill in the form with this data-test attribute."""
        element, = self.all(test)
        found = element.find_element(By.NAME, field)
        found.clear()
        found.send_keys(text)

    def wait_text(self, test: str, text: str, seconds: float = WAIT_SECONDS) -> None:
        self.wait(lambda: text in self.text(test), f'{text!r} in {test}', seconds)

    def wait_shows(self, test: str, seconds: float = WAIT_SECONDS) -> None:
        self.wait(lambda: self.shows(test), f'{test} to be seen', seconds)

    def wait(self, true: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Poll; elements that are missing or being replaced count as not ready."""
        deadline = time.monotonic() + seconds
        problem = ''
        while True:
            try:
                if true():
                    return
                problem = ''
            except (WebDriverException, ValueError) as error:
                problem = f'; {type(error).__name__}: {error}'
            if time.monotonic() > deadline:
                raise AssertionError(f'not in {seconds:g} s: {what}{problem}')
            time.sleep(0.2)

    def script(self, source: str) -> Any:
        return self.driver.execute_script(source)

    def violations(self) -> List[str]:
        """Barriers on the page that axe finds."""
        self.script((node_modules() / 'axe-core' / 'axe.min.js').read_text())
        found: List[str] = self.driver.execute_async_script(RUN_AXE)
        return found

    # ---- Logs

    def screenshot(self, name: str) -> Path:
        # No tooltip at the position of the last click.
        pointer = ActionBuilder(self.driver)
        pointer.pointer_action.move_to_location(1, 1)
        pointer.perform()
        path = self._artefacts / f'{name}.png'
        self.driver.save_screenshot(str(path))
        return path

    def complaints(self) -> List[str]:
        """Errors of the console since the last call, including violations of the CSP."""
        return [entry['message'] for entry in self.driver.get_log('browser')
                if entry['level'] == 'SEVERE']

    def foreign_requests(self, url: str) -> List[str]:
        """All requests to other origins than that of `url`."""
        origin = urlsplit(url)[:2]
        return [asked for asked in self._requests() if urlsplit(asked)[:2] != origin
                and urlsplit(asked).scheme not in ('data', 'blob', 'about', 'chrome')]

    def _requests(self) -> List[str]:
        for entry in self.driver.get_log('performance'):
            message: Dict[str, Any] = json.loads(entry['message'])['message']
            if message['method'] == 'Network.requestWillBeSent':
                self._urls.append(message['params']['request']['url'])
        return self._urls
