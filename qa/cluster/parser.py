# SPDX-License-Identifier: LGPL-2.1-or-later
"""The parser of programs that people run by hand."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """One line is enough; --help has the rest."""
        self.exit(2, f'{self.prog}: {message} (see --help)\n')
