# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pytest plugin that collects the unit tests once and then runs some of them with each mutant.

pytest -p qa.lib.live_mutants; qa/mutate.py starts it. Requests and answers are lines of JSON on the
two file descriptors that PERFGUARD_MUTANTS names. For each request the process forks, and the child
replaces the code of the mutated function and runs the tests until one fails.
"""
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from types import CodeType, FunctionType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, TextIO, Tuple

import pytest

VARIABLE = 'PERFGUARD_MUTANTS'
#: Limits of a child: a mutant may make a loop endless, and let it collect things.
MEMORY_BYTES = 6 << 30
#: A test may take as many times its usual time, and at least these seconds.
SLOWER = 20.0
TEST_SECONDS = 12.0
#: The outcome of a mutant that could not be put in place, or of tests that do not exist.
FAILED_TO_RUN = 'not judged'
#: What a child reports at its end.
PASSED, FAILED = 'passed', 'failed'

#: File, first line and name of a function's code.
_Key = Tuple[str, int, str]


class Test(NamedTuple):
    """A test to run, and the seconds that it usually takes."""
    name: str
    seconds: float


class Request(NamedTuple):
    """`path`: the mutated file, which has `source` already; None: run the tests without a mutant.
    `function`, `first_line`: the outermost function around the mutant, as code objects name it.
    `seconds`: no test starts later."""
    path: Optional[str]
    source: str
    function: str
    first_line: int
    tests: List[Test]
    seconds: float


class Answer(NamedTuple):
    """`killer`: the first test that failed or did not end, or FAILED_TO_RUN; None: all passed.
    `ran`: the number of tests that were started."""
    killer: Optional[str]
    ran: int


class CannotReplace(Exception):
    """The code of the mutated function is not that of one live function."""


def code_of(source: str, path: str, function: str, first_line: int) -> CodeType:
    """The code of one function of a file, which no other function contains."""
    matching: List[CodeType] = []
    pending = [compile(source, path, 'exec', dont_inherit=True)]
    while pending:
        for constant in pending.pop().co_consts:
            if isinstance(constant, CodeType):
                if (constant.co_name, constant.co_firstlineno) == (function, first_line):
                    matching.append(constant)
                else:
                    pending.append(constant)
    if len(matching) != 1:
        raise CannotReplace('%s functions "%s" at line %d' % (len(matching), function, first_line))
    return matching[0]


def _key(code: CodeType) -> _Key:
    return code.co_filename, code.co_firstlineno, code.co_name


class Server:
    """Answers requests until there are no more."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self._requests, self._answers = requests, answers
        self._items: Dict[str, pytest.Item] = {}
        self._functions: Dict[_Key, List[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        for candidate in gc.get_objects():
            if type(candidate) is FunctionType:
                self._functions.setdefault(_key(candidate.__code__), []).append(candidate)
        # Children share the pages that no collection of garbage writes to.
        gc.collect()
        gc.freeze()
        self._send(list(self._items))
        for line in self._requests:
            request = Request(*json.loads(line))
            self._send(self._answer(request._replace(tests=[Test(*test) for test in
                                                            request.tests])))
        return True

    def _send(self, answer: Any) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    def _answer(self, request: Request) -> Answer:
        if any(test.name not in self._items for test in request.tests):
            return Answer(FAILED_TO_RUN, 0)
        receiving, sending = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(receiving)
            os.setpgid(0, 0)
            self._run(request, sending)
        os.close(sending)
        try:
            return self._watched(request, receiving)
        finally:
            os.close(receiving)
            for pid, kill in ((child, os.kill), (child, os.killpg)):
                try:
                    kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            os.waitpid(child, 0)

    def _watched(self, request: Request, receiving: int) -> Answer:
        """Follow a child. It reports the number of each test that it starts, and how the last one
        ended."""
        text, number = b'', 0
        while True:
            usual = request.tests[number - 1].seconds if number else 0.0
            ready, _, _ = select.select([receiving], [], [], TEST_SECONDS + SLOWER * usual)
            chunk = os.read(receiving, 65536) if ready else b''
            text += chunk
            *lines, text = text.split(b'\n')
            for line in lines:
                word = line.decode()
                if word.isdecimal():
                    number = int(word)
                elif word == FAILED:
                    return Answer(request.tests[number - 1].name, number)
                else:
                    return Answer(None if word == PASSED else FAILED_TO_RUN, number)
            if not chunk:
                # It takes too long, or the mutant has ended the process.
                return Answer(request.tests[number - 1].name if number else FAILED_TO_RUN, number)

    def _run(self, request: Request, sending: int) -> None:
        """The child: it never returns."""

        def report(line: str) -> None:
            os.write(sending, line.encode() + b'\n')

        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            quiet = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(quiet, descriptor)
            if request.path is not None:
                self._replace(request.path, request)
            report(self._outcome(request, report))
        except BaseException:
            report(FAILED_TO_RUN)
        finally:
            os._exit(0)

    def _replace(self, path: str, request: Request) -> None:
        code = code_of(request.source, path, request.function, request.first_line)
        functions = self._functions.get((path, request.first_line, request.function), [])
        if not functions and any(getattr(module, '__file__', None) == path
                                 for module in list(sys.modules.values())):
            raise CannotReplace('the function is gone')
        for function in functions:
            if function.__code__.co_freevars != code.co_freevars:
                raise CannotReplace('it uses other variables')
            function.__code__ = code

    def _outcome(self, request: Request, report: Callable[[str], None]) -> str:
        failures = _Failures()
        deadline = time.monotonic() + request.seconds
        items = [self._items[test.name] for test in request.tests]
        items[0].config.pluginmanager.register(failures)
        for number, item in enumerate(items):
            if time.monotonic() > deadline:
                break
            report('%d' % (number + 1))
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures.any:
                return FAILED
        return PASSED


class _Failures:
    """Whether a test has failed."""

    def __init__(self) -> None:
        self.any = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.any = self.any or report.failed


def pytest_configure(config: pytest.Config) -> None:
    reading, writing = (int(word) for word in os.environ.pop(VARIABLE).split(','))
    config.pluginmanager.register(Server(os.fdopen(reading), os.fdopen(writing, 'w')))
