# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pictures of the page in the manual, with made-up data.

    python3 -m qa.lib.pictures            takes them anew, as doc/mgr/perfguard-*.png

Requires npm and Chromium.
"""
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from qa.lib.browser import Browser
from qa.lib.fake_page import FakePage
from qa.lib.reference import MANUAL

#: The charts have their hour of data, and the heat map its OSDs.
READY = ('charts', 'heat')


class Picture(NamedTuple):
    name: str
    #: Of the fake API.
    scenario: str
    height: int
    dark: bool = False


PICTURES = (Picture('perfguard-expansion', 'picture', 1700),
            Picture('perfguard-laggy-osd', 'hanging', 1530, dark=True))


def take(page: FakePage, picture: Picture, directory: Path) -> Path:
    with Browser(directory, height=picture.height) as browser:
        browser.open(page.url(picture.scenario))
        for element in READY:
            browser.wait_shows(element)
        while picture.dark and browser.script('return document.documentElement.dataset.theme') \
                != 'dark':
            browser.click('theme-toggle')
        return browser.screenshot(picture.name)


def main() -> int:
    with FakePage() as page, tempfile.TemporaryDirectory() as directory:
        for picture in PICTURES:
            path = take(page, picture, Path(directory))
            shutil.copyfile(path, MANUAL.parent / path.name)
    return 0


if __name__ == '__main__':
    sys.exit(main())
