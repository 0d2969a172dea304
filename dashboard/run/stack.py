"""The service's processes on one machine: a web server and workers, started, watched and stopped together.

Used by ``manage.py serve`` (what ``make run`` starts), by ``manage.py demo``, by the benches and by tests.
Knows no Django: processes are configured by their environment alone.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from catalog.conf import conf as catalog_conf

ROOT = Path(__file__).resolve().parents[2]
STOP_GRACE_S = 15.0
_PORTS = range(20_000, 32_000)
UP_S = 90.0
"""Within which a web server answers."""
_LIBC = ctypes.CDLL(None)  # loaded here: nothing may be imported between fork and exec
_PR_SET_PDEATHSIG = 1


class StackError(RuntimeError):
    """A process that did not start, with the end of its output."""


def _end_with_parent() -> None:
    """In the child: end if the parent is killed, so that nothing runs unsupervised."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    """A free TCP port on 127.0.0.1, outside the range that the system assigns itself: another connection
    could take such a port before a server listens."""
    while not port_is_free(port := _PORTS[secrets.randbelow(len(_PORTS))]):
        pass
    return port


def port_is_free(port: int) -> bool:
    """Whether a server may listen on this TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass
class Process:
    """One child in a session of its own, so that signals to it reach all its descendants."""

    name: str
    command: list[str]
    popen: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        """Send to the main process only: it knows how to stop its own children."""
        if self.alive:
            self.popen.send_signal(number)

    def kill_group(self) -> None:
        """Kill it and every descendant that stayed in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@dataclass
class Stack(AbstractContextManager["Stack"]):
    """A web server, ``workers`` Celery workers and the courier over one state folder.

    Entered, its web server answers; the others have just begun. ``environment`` overrides the process
    environment (OPATLAS_HOME, DATABASE_URL, BROKER_URL, …). ``logs`` is a folder for the processes' output,
    or None to let them write to the terminal. ``prepare`` is called while the web server imports, which
    answers nothing before that is done. ``app`` is the Celery application that workers run. ``devices`` have
    a worker each beside these (``cuda:0``).
    """

    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    workers: int = 1
    devices: Sequence[str] = ()
    courier: bool = True
    logs: Path | None = None
    prepare: Callable[[], None] | None = None
    app: str = "tuning"
    processes: list[Process] = field(default_factory=list)

    def __enter__(self) -> Stack:
        self.port = self.port or free_port()
        try:
            self._start_web_and_prepare()
            self._wait_until_up()  # what follows imports compilers, and would take its cores meanwhile
            for number in range(self.workers + len(self.devices)):
                self.start_worker(number)
            if self.courier:
                self.start_courier()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """What is known of these processes on this machine, while they run."""
        home = self.environment.get("OPATLAS_HOME")
        return (Path(home) if home else catalog_conf().home) / "run"

    def alive_folder(self, name: str) -> Path:
        """Where one of them gives signs of life."""
        return self.folder / name

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start_web_and_prepare(self) -> None:
        waits_on, done = os.pipe()
        try:
            self.start_web(waits_on)
            if self.prepare:
                self.prepare()
        finally:
            os.close(waits_on)
            os.close(done)  # dashboard/wsgi.py goes on

    def start(self, name: str) -> Process:
        """Once more, by the name that it had."""
        if name == "web":
            return self.start_web()
        return self.start_courier() if name == "courier" else self.start_worker(int(name[len("worker") :]))

    def start_web(self, waits_on: int | None = None) -> Process:
        """``waits_on``: a pipe's descriptor, at whose end it begins to answer."""
        return self._start("web", [
            sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1",
            "--port", str(self.port), "--workers", "1", "--blocking-threads", "32", "--no-ws",
            "--log-level", "error", "dashboard.wsgi:application",
        ], waits_on)  # fmt: skip

    def start_worker(self, number: int = 0) -> Process:
        name = f"worker{number}-{os.getpid()}-{self.port}"
        return self._start(f"worker{number}", [
            sys.executable, "-m", "celery", "-A", self.app, "--quiet", "worker", "--loglevel", "warning",
            "--hostname", f"{name}@%h",
        ], more=self._device_of(number))  # fmt: skip

    def _device_of(self, number: int) -> dict[str, str]:
        """What tells a worker which device it serves: the first ones serve the processor."""
        if not self.devices:
            return {}
        return {"OPATLAS_DEVICE": self.devices[number - self.workers] if number >= self.workers else ""}

    def start_courier(self) -> Process:
        return self._start("courier", [sys.executable, "manage.py", "courier"])

    def _wait_until_up(self) -> None:
        """Return once the web server answers; raises StackError when it ends or stays silent."""
        deadline = time.monotonic() + UP_S
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=2):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise StackError(
            f"The web server did not answer on {self.url} within {UP_S:.0f} s.{self._said('web')}"
        )

    def wait_for(
        self, condition: Callable[[], bool], timeout_s: float, what: str, look_s: float = 0.1
    ) -> None:
        """Return once the condition holds; raises StackError when a process ends, or after that time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check_alive()
            if time.monotonic() > deadline:
                raise StackError(f"Waited {timeout_s:.0f} s in vain for {what}; see the processes' logs.")
            time.sleep(look_s)

    def check_alive(self) -> None:
        """Raise StackError when a process has ended that should be running."""
        for process in self.processes:
            if not process.alive:
                code = process.popen.returncode
                raise StackError(
                    f"The {process.name} process ended with code {code}.{self._said(process.name)}"
                )

    def stop(self) -> None:
        """Ask every process to end, the workers first; kill what has not after the grace period."""
        for process in reversed(self.processes):
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_GRACE_S
        for process in reversed(self.processes):
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.1, deadline - time.monotonic()))
            process.kill_group()
        self.processes.clear()

    def _start(
        self,
        name: str,
        command: list[str],
        waits_on: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Process:
        output: IO[bytes] | None = None
        if self.logs is not None:
            self.logs.mkdir(parents=True, exist_ok=True)
            output = (self.logs / f"{name}.log").open("ab")
        shutil.rmtree(self.alive_folder(name), ignore_errors=True)  # signs of who had this name before
        self.alive_folder(name).mkdir(parents=True)
        env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "OPATLAS_ALIVE": str(self.alive_folder(name)),
            **self.environment,
            **(more or {}),
        }
        popen = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env if waits_on is None else {**env, "OPATLAS_WAITS_ON": str(waits_on)},
            pass_fds=() if waits_on is None else (waits_on,),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            # A session of its own: Ctrl-C in the terminal reaches us only, and we stop them in order.
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        if output:
            output.close()
        process = Process(name, command, popen)
        self.processes.append(process)
        return process

    def _said(self, name: str) -> str:
        if self.logs is None:
            return ""
        lines = (self.logs / f"{name}.log").read_text(errors="replace").strip().splitlines()[-12:]
        return "\n" + "\n".join(lines)
