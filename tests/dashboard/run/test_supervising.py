"""Who dies or stops answering is started again, after pauses that grow and are bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.run import troubles
from dashboard.run.stack import Process, Stack
from dashboard.run.supervising import STEADY_S, Silence, Supervisor, pause_s


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Sleepers(Stack):
    """A stack whose processes only sleep; ``started`` are the names of those that were started again."""

    def __init__(self, folder: Path, *names: str) -> None:
        super().__init__({"OPATLAS_HOME": str(folder)})
        self.started: list[str] = []
        for name in names:
            self._sleeper(name)

    def start(self, name: str) -> Process:
        self.started.append(name)
        return self._sleeper(name)

    def _sleeper(self, name: str, script: str = "exec sleep 600") -> Process:
        self.alive_folder(name).mkdir(parents=True, exist_ok=True)
        popen = subprocess.Popen(["sh", "-c", script], start_new_session=True)
        self.processes.append(process := Process(name, [], popen))
        return process

    def end(self, name: str, script: str = "exit 1") -> None:
        """Have it ended in its own way."""
        process = self.find(name)
        process.popen.kill()
        process.popen.wait()
        process.popen = subprocess.Popen(["sh", "-c", script], start_new_session=True)
        process.popen.wait()

    def find(self, name: str) -> Process:
        return next(one for one in self.processes if one.name == name)

    def sign(self, name: str, part: str, moment: int) -> None:
        (self.alive_folder(name) / part).touch()
        os.utime(self.alive_folder(name) / part, ns=(moment, moment))


@pytest.fixture
def watch(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., tuple[Sleepers, Supervisor, Clock]]:
    def begin(*names: str) -> tuple[Sleepers, Supervisor, Clock]:
        stack, clock = Sleepers(tmp_path, *names), Clock()
        request.addfinalizer(stack.stop)
        return stack, Supervisor(stack, lambda line: None, clock), clock

    return begin


def look(supervisor: Supervisor, clock: Clock, passed_s: float = 1.0) -> None:
    clock.now += passed_s
    supervisor.look()


def test_the_web_server_too_is_started_again_and_nothing_else_is_touched(watch, tmp_path) -> None:
    stack, supervisor, clock = watch("web", "worker0", "courier")
    others = [stack.find(name).popen.pid for name in ("worker0", "courier")]
    stack.find("web").popen.send_signal(signal.SIGKILL)
    stack.find("web").popen.wait()
    look(supervisor, clock)
    (told,) = troubles.read(tmp_path / "run")
    assert (told.name, told.why, told.state) == ("web", "was killed by SIGKILL", troubles.WAITS)
    look(supervisor, clock)
    assert stack.started == ["web"] and stack.find("web").alive
    assert [stack.find(name).popen.pid for name in ("worker0", "courier")] == others
    assert troubles.read(tmp_path / "run")[0].state == troubles.AGAIN


def test_pauses_double_up_to_a_minute_and_a_steady_minute_ends_the_row(watch) -> None:
    stack, supervisor, clock = watch("courier")
    pauses = []
    for _ in range(9):
        stack.end("courier")
        look(supervisor, clock)
        began, starts = clock.now, len(stack.started)
        while len(stack.started) == starts:
            look(supervisor, clock, 0.25)
        pauses.append(clock.now - began)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60] == [pause_s(number) for number in range(1, 10)]
    look(supervisor, clock, STEADY_S + 1)
    stack.end("courier")
    look(supervisor, clock)
    look(supervisor, clock, 0.5)
    assert len(stack.started) == 10


def test_one_that_is_stopped_is_killed_and_started_again(watch, tmp_path) -> None:
    stack, supervisor, clock = watch("worker0")
    stack.sign("worker0", "worker", 1)
    look(supervisor, clock)
    stopped = stack.find("worker0").popen
    stopped.send_signal(signal.SIGSTOP)
    for second in range(30):  # messages are taken as before, but nobody works
        stack.sign("worker0", "celery", second + 1)
        look(supervisor, clock)
    assert stopped.poll() is None
    look(supervisor, clock), look(supervisor, clock)
    assert stopped.returncode == -signal.SIGKILL and stack.started == ["worker0"]
    (told,) = troubles.read(tmp_path / "run")
    assert told.why == "gave no sign of life for 30 s (worker)"


def test_who_says_that_it_cannot_serve_is_left_alone(watch, tmp_path) -> None:
    stack, supervisor, clock = watch("worker1")
    stack.end("worker1", f"exit {os.EX_CONFIG}")
    for _ in range(5):
        look(supervisor, clock, 100)
    assert stack.started == []
    assert troubles.read(tmp_path / "run")[0].state == troubles.LEFT


def test_a_machine_that_slept_is_no_silence_and_a_start_may_take_long() -> None:
    silence = Silence(("web",), 30.0)
    assert not silence.look({"web": 1}, 1) and not silence.look({"web": 1}, 3600)
    assert not any(silence.look({"web": 1}, 5) for _ in range(5))
    assert silence.look({"web": 1}, 5) == "web"
    starting = Silence(("celery",), 30.0)
    assert not any(starting.look({}, 5) for _ in range(60))
    assert starting.look({}, 5) == "celery"


def test_troubles_of_long_ago_are_shown_no_more(tmp_path) -> None:
    def trouble(state: str, ago_s: float) -> troubles.Trouble:
        return troubles.Trouble("web", "ended with code 1", time.time() - ago_s, 1, state, 0.5)

    troubles.write(tmp_path, [trouble(troubles.AGAIN, 7200), trouble(troubles.LEFT, 7200)])
    assert [one.state for one in troubles.read(tmp_path)] == [troubles.LEFT]
    (tmp_path / "troubles.json").write_text('[{"name": "web"}]')  # of another version
    assert troubles.read(tmp_path) == []
