"""Tests are read once, by one process; those that run them are forked from it: a plug-in of pytest.

``--processes 3``: so many run tests beside each other. A part (:data:`PARTS`) may allow fewer; the next
part's begin where the last tests of the one before leave room. A process that a test kills is replaced at
once: that test has failed, every other one runs. With ``--again`` very few that failed are asked again at the
end, twice, with nothing beside them: eleven thousand on two busy cores are never all on time. Who fails once
more has failed; who does not is unsteady (:mod:`tests.unsteady`). ``--times 10``: all of them so often, or
until one has failed."""

from __future__ import annotations

import atexit
import logging
import math
import mmap
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

from tests import unsteady
from tests.times import idle_s

GROUP = pytest.StashKey[str]()
"""Tests of one group (tests/conftest.py says which) are run by one process, which sets up once what they
share."""
MOST_AGAIN = 3
"""Failures that may be the machine's; more of them are the code's."""
PORT_SETS = 16
"""More than there are processes beside each other; each draws its servers' ports from one set."""
END_S = 20.0
"""That a process has for what it set up, after it was told to end."""
OVERDUE_S = 60.0
"""So long after its own limit a test is ended with its process: what hangs outside of Python heeds no other
signal."""


@dataclass(frozen=True)
class Part:
    name: str
    most: int  # processes beside each other; 0: as many as there are
    marks: tuple[str, ...] = ()  # a test belongs to the first part one of whose marks it has


PARTS = (
    Part("timing", 1, ("timing",)),
    Part("workers", 2, ("alone",)),
    Part("parallel", 0),
)
"""Run from the last to the first. What measures has a core for each process that does."""


def part_of(item: pytest.Item) -> Part:
    return next(part for part in PARTS if not part.marks or any(map(item.get_closest_marker, part.marks)))


@dataclass
class Process:
    pid: int
    ended: int  # a descriptor that can be read when it has
    channel: Connection
    part: Part
    share: float
    units: list[list[int]] = field(default_factory=list)
    """Tests that it has: what it works at, and what comes after that."""
    running: int | None = None
    overdue_at: float = math.inf
    said_end: bool = False


class Forked:
    def __init__(self, config: pytest.Config, processes: int, times: int, again: bool) -> None:
        self.config, self.count, self.times, self.again = config, processes, times, again
        self.running: list[Process] = []
        self.number = 0
        self.took: dict[str, list[float]] = {}
        """When each part's first test began and its last one ended, by the part's name; and for how long the
        machine's cores had nothing to do meanwhile."""
        self.idle_before: dict[str, float] = {}
        self.failed: dict[int, str] = {}
        """What was said of each test that failed."""
        self.is_asking_again = False
        self.part_of = part_of
        self.one_core = OneCore()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None  # pytest's own says what there is to say
        for number in range(self.times):
            if session.testsfailed:
                break
            if self.times > 1:
                self.line(f"=== Time {number + 1} of {self.times} ===")
            self.run_all(session, self.units_of(session))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if self.again and 0 < len(self.failed) <= MOST_AGAIN:
            self.ask_again(session)
        return True

    def ask_again(self, session: pytest.Session) -> None:
        failed, self.failed, self.is_asking_again = list(self.failed), {}, True
        names = {index: session.items[index].nodeid for index in failed}
        self.line(f"=== Asked again, alone: {', '.join(names.values())} ===")
        for _ in range(2):
            self.run_all(session, {Part("again", 1): deque([index] for index in failed)})
        for index, said in self.failed.items():
            self.line(f"=== {names[index]} failed again ===\n{said}")
        steady = [names[index] for index in failed if index not in self.failed]
        for line in unsteady.told(steady, path := self.config.getoption("unsteady")):
            self.line(line)
        if not self.failed and not unsteady.known(steady, path):
            session.testsfailed = 0

    def line(self, text: str) -> None:
        self.config.get_terminal_writer().line(f"\n{text}")

    def units_of(self, session: pytest.Session) -> dict[Part, deque[list[int]]]:
        """Tests by part, in the order in which they are to be given out; those of a group go together."""
        units: dict[Part, dict[object, list[int]]] = {part: {} for part in reversed(PARTS)}
        for index, item in enumerate(session.items):
            units[part_of(item)].setdefault(item.stash.get(GROUP, "") or index, []).append(index)
        return {part: deque(each.values()) for part, each in units.items()}

    def run_all(self, session: pytest.Session, queues: dict[Part, deque[list[int]]]) -> None:
        try:
            while True:
                self.start(session, queues)
                if not self.running:
                    return
                self.hear(session, queues)
                if session.shouldfail or session.shouldstop:
                    for queue in queues.values():
                        queue.clear()
        finally:
            self.end()

    def start(self, session: pytest.Session, queues: dict[Part, deque[list[int]]]) -> None:
        """As many processes as there is room for, of the first part that has tests left to give out."""
        part = next((part for part, queue in queues.items() if queue), None)
        if part is None:
            return
        most = min(part.most or self.count, self.count)
        while queues[part] and sum(one.share for one in self.running) + 1 / most <= 1.001:
            self.number += 1
            self.running.append(self.fork(session, part, 1 / most, queues[part].popleft()))

    def fork(self, session: pytest.Session, part: Part, share: float, unit: list[int]) -> Process:
        if others := [one for one in threading.enumerate() if one is not threading.main_thread()]:
            raise pytest.UsageError(f"Who reads the tests begins threads, which no fork has: {others}")
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of every fork
            pid = os.fork()
        if not pid:
            for one in self.running:  # else the others would not hear that this process's parent is gone
                one.channel.close()
                os.close(one.ended)
            ours.close()
            Worker(session, theirs, self.number, self.one_core).run(unit)
        theirs.close()
        if part.name not in self.took:
            self.took[part.name], self.idle_before[part.name] = [time.monotonic(), 0.0, 0.0], idle_s()
        return Process(pid, os.pidfd_open(pid), ours, part, share, [unit])

    def hear(self, session: pytest.Session, queues: dict[Part, deque[list[int]]]) -> None:
        """What processes say, until one of them has ended or nothing is left to be heard."""
        wait([*(one.channel for one in self.running), *(one.ended for one in self.running)], OVERDUE_S)
        for one in list(self.running):
            if time.monotonic() > one.overdue_at:
                one.overdue_at = math.inf
                os.kill(one.pid, signal.SIGABRT)  # it says where it is, and ends
            over = bool(select.select([one.ended], [], [], 0)[0])
            try:
                while one.channel.poll():
                    self.heard(session, one, queues[one.part], *one.channel.recv())
            except (EOFError, ConnectionResetError):
                over = True
            if over:
                self.over(session, one, queues[one.part])

    def heard(
        self, session: pytest.Session, one: Process, queue: deque[list[int]], what: str, value: Any
    ) -> None:
        hook = self.config.hook
        if what == "next":
            if queue:
                one.units.append(queue.popleft())
            one.channel.send(one.units[1] if len(one.units) > 1 else None)
        elif what == "begins":
            one.running = value
            one.overdue_at = time.monotonic() + limit_s(session.items[value]) + OVERDUE_S
            if not self.is_asking_again:
                item = session.items[value]
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=self.config, data=value)
            self.reported(report, one.running)
        elif what == "done":
            one.running, one.overdue_at = None, math.inf
            one.units[0].remove(value)
            if not one.units[0]:
                del one.units[0]
            name = one.part.name
            self.took[name][1:] = [time.monotonic(), idle_s() - self.idle_before[name]]
            if not self.is_asking_again:
                item = session.items[value]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif what == "warning":
            message, when, nodeid, location = value
            arguments = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            hook.pytest_warning_recorded.call_historic(kwargs=arguments)
        elif what == "end":
            one.said_end = True

    def over(self, session: pytest.Session, one: Process, queue: deque[list[int]]) -> None:
        self.running.remove(one)
        code = os.waitstatus_to_exitcode(os.waitpid(one.pid, 0)[1])
        os.close(one.ended)
        one.channel.close()
        left = [unit for unit in one.units if unit]
        if one.said_end or not left:
            return
        killer = left[0][0] if one.running is None else one.running
        left[0].remove(killer)
        queue.extendleft(unit for unit in reversed(left) if unit)
        item = session.items[killer]
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        said = f"its process ended by {how} while it ran {item.nodeid}"
        self.reported(pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call"), killer)

    def reported(self, report: pytest.TestReport, index: int | None) -> None:
        if report.failed and index is not None:
            self.failed[index] = report.longreprtext
        if not self.is_asking_again:
            self.config.hook.pytest_runtest_logreport(report=report)

    def end(self) -> None:
        """Whatever still runs, after an error or Ctrl-C."""
        for one in self.running:
            os.kill(one.pid, signal.SIGINT)
        until = time.monotonic() + END_S
        for one in self.running:
            if not select.select([one.ended], [], [], max(0.0, until - time.monotonic()))[0]:
                os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
            os.close(one.ended)
            one.channel.close()
        self.running.clear()


class Worker:
    """What a forked process does; it never returns to what its parent did."""

    def __init__(self, session: pytest.Session, channel: Connection, number: int, one_core: OneCore) -> None:
        self.session, self.channel, self.number = session, channel, number
        self.name, self.one_core = f"gw{number}", one_core
        self.config = session.config
        self.hears_warnings = False

    def run(self, unit: list[int] | None) -> None:
        code = 1
        try:
            self.begin()
            while unit:
                unit = self.run_unit(unit)
            self.channel.send(("end", None))
            atexit._run_exitfuncs()
            code = 0
        except (KeyboardInterrupt, EOFError, BrokenPipeError):  # its parent is gone
            self.session._setupstate.teardown_exact(None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def run_unit(self, unit: list[int]) -> list[int] | None:
        """The next unit: a test is told of the one after it, so that what both need stays set up."""
        following: list[int] | None = None
        items = self.session.items
        for index, after in zip(unit, [*unit[1:], None], strict=True):
            if after is None:
                self.channel.send(("next", None))
                following = self.channel.recv()
                after = following[0] if following else None
            self.channel.send(("begins", index))
            self.config.hook.pytest_runtest_protocol(
                item=items[index], nextitem=None if after is None else items[after]
            )
            self.channel.send(("done", index))
        return following

    def begin(self) -> None:
        """Nothing that is written to is shared with another process."""
        config = self.config
        config.workerinput = {"workerid": self.name}  # type: ignore[attr-defined] # as plug-ins know xdist's
        plugins = config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        self.hears_warnings = True  # as it registers, it is told those that its parent knows
        if capture := plugins.getplugin("capturemanager"):
            capture.stop_global_capturing()  # its file is the parent's
            capture.start_global_capturing()
        if (folders := getattr(config, "_tmp_path_factory", None)) is not None:
            folders._given_basetemp, folders._basetemp = folders.getbasetemp() / self.name, None
        self.one_core.end()
        if stack := sys.modules.get("dashboard.run.stack"):  # a free port is soon another's
            stack._PORTS = stack._PORTS[self.number % PORT_SETS :: PORT_SETS]
        if worker := sys.modules.get("tuning.worker.stopping"):  # told to stop, it stops nobody's worker else
            worker._flag = mmap.mmap(-1, 1)
        if "dashboard.settings_test" in sys.modules:
            at_a_home_of_its_own(self.name)
        if times := plugins.getplugin("times"):
            times.pytest_collection_finish()
        # A server's thread may log once more, after its test's stream is closed.
        logging.raiseExceptions = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.channel.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if not self.hears_warnings:
            return
        text = warnings.WarningMessage(
            f"{warning_message.category.__name__}: {warning_message.message}",
            UserWarning, warning_message.filename, warning_message.lineno,
        )  # fmt: skip
        self.channel.send(("warning", (text, when, nodeid, location)))


def limit_s(item: pytest.Item) -> float:
    """pytest-timeout's, of a test."""
    mark = item.get_closest_marker("timeout")
    if mark and mark.args:
        return float(mark.args[0])
    has_plugin = item.config.pluginmanager.hasplugin("timeout")
    return float((has_plugin and item.config.getini("timeout")) or math.inf)


class OneCore:
    """Libraries compute with one thread while the tests are read: OpenMP keeps its threads, and a forked
    process, which has none of them, would wait for them for ever."""

    def __init__(self) -> None:
        self.before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"

    def end(self) -> None:
        del os.environ["OMP_NUM_THREADS"]
        if self.before is not None:
            os.environ["OMP_NUM_THREADS"] = self.before
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(int(self.before or len(os.sched_getaffinity(0))))


def at_a_home_of_its_own(name: str) -> None:
    """A folder of state below the parent's, which the parent removes."""
    from django.conf import settings

    import opatlas.conf
    from dashboard import settings_test

    settings_test._home._finalizer.detach()  # type: ignore[attr-defined]
    whole = Path(settings_test._home.name)
    home = whole / name
    (home / "static").mkdir(mode=0o700, parents=True)
    os.environ["OPATLAS_HOME"] = str(home)
    opatlas.conf._process.clear()
    settings.STATIC_ROOT, settings.EMAIL_FILE_PATH = home / "static", str(home / "mail")
    database = settings.DATABASES["default"]
    for names in (database, database["TEST"]):
        if names.get("NAME") and whole in Path(names["NAME"]).parents:
            names["NAME"] = home / Path(names["NAME"]).name


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processes forked from one that has read the tests")
    group.addoption("--processes", type=int, default=0, help="that run tests; 0: pytest's own way")
    group.addoption("--times", type=int, default=1, help="so often, or until a test has failed")
    group.addoption("--again", action="store_true", help="ask again, alone, where very few failed")
    group.addoption("--unsteady", type=Path, default=unsteady.LIST, help="those that were so before")


def pytest_configure(config: pytest.Config) -> None:
    if processes := config.getoption("processes"):
        plugin = Forked(config, processes, config.getoption("times"), config.getoption("again"))
        config.pluginmanager.register(plugin, "forked")
