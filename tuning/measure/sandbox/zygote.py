"""The parent's handle on a zygote: start it in a sandbox, let it fork, start it again when it dies."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from opatlas.cores import usable_cores
from opatlas.memory import total_bytes
from tuning.measure import procfs
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.outcome import Status
from tuning.measure.sandbox import wire
from tuning.measure.sandbox.identities import NoIdentity
from tuning.measure.sandbox.process import MEMORY_RESERVE, Bounds, Child, ChildFailed
from tuning.measure.sandbox.programs import NoProgram
from tuning.measure.sandbox.roots import RUNNING
from tuning.measure.sandbox.syscalls import NoFilter
from tuning.measure.sandbox.walls import SHOWN_INSIDE, Walls

START_S = 120.0
"""Importing TVM's MetaSchedule can take a minute on a loaded machine."""
FORK_S = 10.0
STRAYS_S = 0.25
PROCESSES = 512 + 8 * usable_cores()
"""Threads and processes of one zygote's user: frameworks start one or two threads a core in each child."""
GROUP_RESERVE_BYTES = 2 << 30
"""What a zygote's control group may use beyond its children's bounds: what it has imported, its /tmp."""


P = ParamSpec("P")
T = TypeVar("T")


def _one_at_a_time(method: Callable[Concatenate[Zygote, P], T]) -> Callable[Concatenate[Zygote, P], T]:
    @wraps(method)
    def locked(self: Zygote, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


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
        device: DeviceWatch | None = None,
    ) -> None:
        """``device``: what its children may use."""
        self.name = name
        self.preload = tuple(preload)
        self.tier = tier
        self.folder = folder
        self.cache = cache
        self.readable = tuple(readable)
        self.device = device
        self.ready: Mapping[str, Any] = {}
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._died: dict[int, int] = {}
        self._number = 0
        self._live: set[Child] = set()
        self._walls: Walls | None = None
        # Several threads open and close children; whoever looks for strays must see each forked one as live.
        self._lock = threading.RLock()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stopped(self) -> bool:
        """Whether one of its children stopped it: it would fork no other."""
        return self.alive and procfs.stopped(int(self.ready.get("pid", -1)))

    def start(self) -> None:
        """Start without waiting; :meth:`wait_ready` waits."""
        self.close()
        for folder in (self.folder, self._staging):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            gpu = self.device.gpu if self.device else None
            self._walls = Walls(self.tier, self.name, self.folder, self.readable, self.cache, gpu)
            if self.name not in RUNNING:
                self._walls.give(self.folder)  # compilers keep there what all their builds share
            self._walls_up(self._walls)
        except (NoProgram, NoFilter, NoIdentity) as error:
            self.close()
            raise ChildFailed(Status.CRASHED, f"zygote {self.name} has no sandbox: {error}") from error
        self.starts += 1

    def _walls_up(self, walls: Walls) -> None:
        """Start the process inside of them."""
        self._limit()
        control, theirs = wire.pair()
        self._control, self.ready = control, {}
        module = "tuning.measure.sandbox.zygote_main"
        inner = ["-m", module, str(theirs.fileno()), json.dumps(self.preload), walls.running.hex()]
        try:
            command = walls.command(inner)
            with (self.folder.parent / f"{self.name}.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env=walls.environment(),
                    pass_fds=[theirs.fileno(), *walls.files],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                    umask=SHOWN_INSIDE,
                )
        finally:
            theirs.close()
            walls.close_files()

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

    @_one_at_a_time
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
        folder = self._furnished(bring, bring_tree)
        log_path = self.folder.parent / f"{self.name}.{number}.log"
        described = {**request, "workdir": str(folder / "work")}
        request_fd = wire.memory_file("request", json.dumps(described).encode())
        ours, theirs = wire.pair()
        log_fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        limits = {
            "disk_bytes": bounds.disk_bytes,
            "data_bytes": _data_bytes(self.name, bounds.memory_bytes),
            "processes": PROCESSES,
        }
        child = Child(
            ours, log_path, folder, bounds, lambda wait_s: self._status_of(number, wait_s), self.close,
            self._killed_for_memory, self.device,
        )  # fmt: skip
        self._limit(bounds)
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

    @property
    def _staging(self) -> Path:
        return self.folder.parent / f"{self.name}.staging"

    def _furnished(self, bring: Iterable[Path], bring_tree: Path | None) -> Path:
        """A new child's folder. It is filled where no child can reach, and appears in one piece under a
        name that none can guess: a link that one of them laid would lead our own writing out of the
        sandbox."""
        assert self._walls is not None
        name = str(secrets.randbelow(10**18))
        staged = self._staging / name
        work, temporary = staged / "work", staged / "tmp"
        work.mkdir(parents=True)
        temporary.mkdir()
        if bring_tree is not None:
            shutil.copytree(bring_tree, work, symlinks=True, dirs_exist_ok=True)
        for path in bring:
            shutil.copyfile(path, work / path.name, follow_symlinks=False)
        self._walls.give(*staged.rglob("*"), staged)
        return staged.rename(self.folder / name)

    def _limit(self, coming: Bounds | None = None) -> None:
        """Bound the control group by what its children may use together."""
        if self._walls is None or self._walls.group is None:
            return
        all_bounds = [child.bounds for child in self._live] + ([coming] if coming else [])
        # Above what the parent allows, so that usually the parent's word is the one that is recorded.
        children_bytes = sum(_data_bytes(self.name, bounds.memory_bytes) for bounds in all_bounds)
        most = int(total_bytes() * (1 - MEMORY_RESERVE))
        self._walls.group.limit(min(most, GROUP_RESERVE_BYTES + children_bytes), 4 * PROCESSES)

    def _killed_for_memory(self) -> int:
        group = self._walls.group if self._walls else None
        return group.killed_for_memory() if group else 0

    @_one_at_a_time
    def forget(self, child: Child) -> None:
        """End a child and remove what it wrote."""
        child.close()
        shutil.rmtree(child.folder, ignore_errors=True)
        child.log_path.unlink(missing_ok=True)
        self._live.discard(child)
        # A child may have stopped it, or left strays that do not end.
        if self.stopped() or (self.alive and self.strays() and not self._strays_end()):
            self.close()

    @_one_at_a_time
    def strays(self) -> set[int]:
        """Processes in the sandbox that belong to no living child: what dead ones left behind."""
        return set(procfs.family(self.ready.get("pid", -1), {child.pid for child in self._live}))

    def _strays_end(self) -> bool:
        """The zygote kills its strays; whether it does so in time (a fork bomb is faster)."""
        deadline = time.monotonic() + STRAYS_S
        while time.monotonic() < deadline:
            time.sleep(0.005)
            if not self.strays():
                return True
        return False

    @_one_at_a_time
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
        if self._walls is not None:
            self._walls.take_down()
            self._walls = None

    @_one_at_a_time
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
    if name in RUNNING:
        return memory_bytes + memory_bytes // 4 + (256 << 20)
    return 3 * memory_bytes + (4 << 30)
