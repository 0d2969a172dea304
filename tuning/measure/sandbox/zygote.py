"""The parent's handle on a zygote: start it in a sandbox, let it fork, start it again when it dies."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuning.measure import procfs
from tuning.measure.outcome import Status
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.sandbox import wire
from tuning.measure.sandbox.layout import fixed_addresses
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed

START_S = 120.0
"""Importing TVM's MetaSchedule can take a minute on a loaded machine."""
FORK_S = 10.0
STRAYS_S = 0.25
PROCESSES = 512
COMPILED = ("native", "manual")
"""Zygotes whose children load no framework that reserves memory without using it."""


class Zygote:
    """One warm process that forks children. ``folder`` is the only place where they can write."""

    def __init__(
        self,
        name: str,
        preload: Sequence[str],
        tier: str,
        folder: Path,
        cache: Path | None = None,
        readable: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.preload = tuple(preload)
        self.tier = tier
        self.folder = folder
        self.cache = cache
        self.readable = (*readable, *([cache] if cache else []))
        self.ready: Mapping[str, Any] = {}
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._died: dict[int, int] = {}
        self._number = 0
        self._live: set[Child] = set()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stopped(self) -> bool:
        """Whether one of its children stopped it: it would fork no other."""
        return self.alive and procfs.stopped(int(self.ready.get("pid", -1)))

    def start(self) -> None:
        """Start without waiting; :meth:`wait_ready` waits."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        control, theirs = wire.pair()
        inner = [
            sys.executable,
            "-m",
            "tuning.measure.sandbox.zygote_main",
            str(theirs.fileno()),
            json.dumps(self.preload),
        ]
        try:
            with (self.folder.parent / f"{self.name}.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [*fixed_addresses(), *sandbox.command(self.tier, inner, self.folder, self.readable)],
                    env=sandbox.environment(self.tier, self.folder, self.cache),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                )
        finally:
            theirs.close()
        self._control, self.ready = control, {}
        self.starts += 1

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Raises :class:`ChildFailed` where it does not come up."""
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            if self._control is None:
                raise ChildFailed(Status.CRASHED, f"zygote {self.name} is not running")
            if not select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.close()
                raise ChildFailed(Status.TIMED_OUT, f"zygote {self.name} took longer than {timeout_s:.0f} s")
            packet = wire.receive(self._control)
            if packet.closed:
                self.close()
                raise ChildFailed(Status.CRASHED, f"zygote {self.name} did not start: {self._last_words()}")
            if packet.body and packet.body.get("ready"):
                self.ready = {**packet.body, "pid": packet.pid}

    def spawn(
        self,
        request: Mapping[str, Any],
        fds: Sequence[int],
        bounds: Bounds,
        bring: Iterable[Path] = (),
        bring_tree: Path | None = None,
    ) -> Child:
        """Fork a child for ``request``; a dead zygote is started again first.

        ``fds`` are handed to the child after its request; the files of ``bring`` and what lies in
        ``bring_tree`` are copied into its work folder, which the request then calls ``workdir``.
        Raises :class:`ChildFailed`.
        """
        if not self.alive:
            self.start()
        self.wait_ready()
        assert self._control is not None
        self._number += 1
        number = self._number
        folder = self.folder / str(number)
        work = folder / "work"
        work.mkdir(parents=True)
        if bring_tree is not None:
            shutil.copytree(bring_tree, work, symlinks=True, dirs_exist_ok=True)
        for path in bring:
            shutil.copyfile(path, work / path.name, follow_symlinks=False)
        log_path = self.folder.parent / f"{self.name}.{number}.log"
        request_fd = wire.memory_file("request", json.dumps({**request, "workdir": str(work)}).encode())
        ours, theirs = wire.pair()
        log_fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        limits = {
            "disk_bytes": bounds.disk_bytes,
            "data_bytes": _data_bytes(self.name, bounds.memory_bytes),
            "processes": PROCESSES,
        }
        child = Child(
            ours, log_path, folder, bounds, lambda wait_s: self._status_of(number, wait_s), self.close
        )
        try:
            wire.send(
                self._control,
                {"spawn": number, "limits": limits},
                [theirs.fileno(), log_fd, request_fd, *fds],
            )
            theirs.close()
            child.greet(time.monotonic() + FORK_S)
        except OSError as error:
            self.forget(child)
            self.close()
            raise ChildFailed(Status.CRASHED, f"zygote {self.name} takes no requests") from error
        except ChildFailed:
            self.forget(child)
            raise
        finally:
            theirs.close()
            os.close(log_fd)
            os.close(request_fd)
        self._live.add(child)
        return child

    def forget(self, child: Child) -> None:
        """End a child and remove what it wrote."""
        child.close()
        shutil.rmtree(child.folder, ignore_errors=True)
        child.log_path.unlink(missing_ok=True)
        self._live.discard(child)
        # A child may have stopped it, or left strays that do not end.
        if self.stopped() or (self.alive and self.strays() and not self._strays_end()):
            self.close()

    def strays(self) -> set[int]:
        """Processes in the sandbox that belong to no living child: what dead ones left behind."""
        below = procfs.family(self.ready.get("pid", -1))
        known: set[int] = set()
        for child in self._live:
            known |= {child.pid, *procfs.family(child.pid)}
        return set(below) - known

    def _strays_end(self) -> bool:
        """The zygote kills its strays; whether it does so in time (a fork bomb is faster)."""
        deadline = time.monotonic() + STRAYS_S
        while time.monotonic() < deadline:
            time.sleep(0.005)
            if not self.strays():
                return True
        return False

    def close(self) -> None:
        """Kill the sandbox with everything in it (its PID namespace dies at once); it starts again when
        it is needed."""
        if self._process is not None:
            strays = () if self.tier == "T2" else tuple(procfs.family(self._process.pid))
            self._process.kill()
            for pid in strays:
                procfs.kill(pid)
            self._process.wait()
            self._process = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def _status_of(self, number: int, wait_s: float) -> int | None:
        """The wait status of a child, -1 where its zygote is gone, None where it lives."""
        deadline = time.monotonic() + wait_s
        while number not in self._died:
            if self._control is None:
                return -1
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._control], [], [], left)[0]:
                return None
            packet = wire.receive(self._control)
            if packet.closed:
                self.close()
                return -1
            if packet.body and "died" in packet.body:
                self._died[packet.body["died"]] = packet.body.get("status", -1)
        return self._died[number]

    def _last_words(self) -> str:
        try:
            lines = (self.folder.parent / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no message"
        return lines[-1][:500] if lines else "no message"


def _data_bytes(name: str, memory_bytes: int) -> int:
    """The system's own limit on private memory, which holds between two looks of the parent: it is above what
    the parent allows, so that usually the parent's word is the one that is recorded."""
    if name in COMPILED:
        return memory_bytes + memory_bytes // 4 + (256 << 20)
    return 3 * memory_bytes + (4 << 30)
