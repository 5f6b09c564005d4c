# SPDX-License-Identifier: LGPL-2.1-or-later
"""Command line and output of programs that people run by hand."""

import argparse
import shutil
import time
from typing import NoReturn, TextIO

#: Seconds between two lines of progress where a line cannot be written over.
LINE_SECONDS = 5.0


class Screen:
    """Paragraphs, commands as an operator types them, and one line of progress."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._begin = time.monotonic()
        self._line_open = False
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """A paragraph."""
        self.end_line()
        print(text, file=self._out, flush=True)

    def step(self, text: str) -> None:
        """The next thing that happens, with the time since the start."""
        self.say(f'\n[{time.monotonic() - self._begin:3.0f} s] {text}')

    def command(self, line: str, answer: str = '') -> None:
        """A command of the operator, and its answer."""
        self.say(f'  $ {line}')
        for row in answer.splitlines():
            self.say(f'    {row}')

    def progress(self, text: str, at_once: bool = False) -> None:
        """Replace the line of progress; where that is impossible, add one now and then."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print('\r' + f'  {text}'[:width].ljust(width), end='', file=self._out, flush=True)
            self._line_open = True
        elif at_once or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            print(f'  {text}', file=self._out, flush=True)

    def end_line(self) -> None:
        """Leave the line of progress as it is."""
        if self._line_open:
            print(file=self._out, flush=True)
        self._line_open = False
        self._next_line = 0.0


class Parser(argparse.ArgumentParser):
    """Reports invalid arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """One line is enough; --help has the rest."""
        self.exit(2, f'{self.prog}: {message} (see --help)\n')
