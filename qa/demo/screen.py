# SPDX-License-Identifier: LGPL-2.1-or-later
"""Command line and output of programs that people run by hand."""

import argparse
import shutil
import time
from typing import NoReturn, TextIO

#: Interval of progress lines if a line cannot be overwritten.
LINE_SECONDS = 5.0


class Screen:
    """Prints paragraphs, commands of an operator, and one line of progress."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._begin = time.monotonic()
        self._line_open = False
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.end_line()
        print(text, file=self._out, flush=True)

    def step(self, text: str) -> None:
        """Print the title of a step, with the time since the start."""
        self.say(f'\n[{time.monotonic() - self._begin:3.0f} s] {text}')

    def command(self, line: str, answer: str = '') -> None:
        """Print a command of the operator and its output."""
        self.say(f'  $ {line}')
        for row in answer.splitlines():
            self.say(f'    {row}')

    def progress(self, text: str, at_once: bool = False) -> None:
        """Replace the line of progress, or add one at intervals if that is impossible."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print('\r' + f'  {text}'[:width].ljust(width), end='', file=self._out, flush=True)
            self._line_open = True
        elif at_once or time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            print(f'  {text}', file=self._out, flush=True)

    def end_line(self) -> None:
        """Keep the line of progress."""
        if self._line_open:
            print(file=self._out, flush=True)
        self._line_open = False
        self._next_line = 0.0


class Parser(argparse.ArgumentParser):
    """Reports invalid arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line; --help has the rest."""
        self.exit(2, f'{self.prog}: {message} (see --help)\n')
