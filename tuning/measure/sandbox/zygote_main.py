"""A zygote: imports what its children need, then forks one child per request. Runs inside the sandbox.

``python -m tuning.measure.sandbox.zygote_main <control fd> <preload JSON> <filter>``, the last one in
hexadecimal or empty: what children lay on themselves before they run compiled code. It stays
single-threaded and trusted: it runs no candidate itself. Each child is a session of its own; the zygote
adopts what a child leaves behind (it is a sub-reaper) and kills it. When the control socket closes, all
children end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tuning.measure.sandbox import child, wire
from tuning.measure.sandbox.confine import confine

COMMON_FOLDERS = (Path("/tmp"), Path("/dev/shm"))
"""What children could leave to the next ones, beside their own folders."""
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    started = time.monotonic()
    if os.environ.get("OPATLAS_CONFINE"):
        confine(json.loads(os.environ.pop("OPATLAS_CONFINE")))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # Not to be traced nor read through /proc by the children, who run as the same user; they inherit it.
    _prctl(_PR_SET_DUMPABLE, 0)
    gc.disable()  # looking for garbage in what is being imported takes TVM and Inductor a second each
    failed = _import_all(json.loads(sys.argv[2]))
    # The collector would write to every object's header in each child and so copy the shared pages.
    gc.collect()
    gc.freeze()
    gc.enable()
    wire.send(
        control,
        {
            "ready": True,
            "failed": failed,
            "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
            "seconds": round(time.monotonic() - started, 3),
        },
    )
    child.running_filter = bytes.fromhex(sys.argv[3])
    ZygoteServer(control).serve()


class ZygoteServer:
    """Forks, reaps and reports. Messages in: ``{"spawn": id, "limits": …}`` with the child's descriptors;
    out: ``{"died": id, "status": wait status}``."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, int] = {}
        self.bell, bell_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(bell_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.control.fileno(), self.bell], [], [], 1.0)
            if self.bell in ready:
                os.read(self.bell, 4096)
            self.reap()
            if self.control.fileno() in ready:
                packet = wire.receive(self.control)
                if packet.closed:
                    break
                if packet.body and "spawn" in packet.body:
                    self.spawn(packet.body, packet.fds)
        for pid in self.children:
            _kill(pid)
        self.kill_strays()

    def spawn(self, request: dict[str, Any], fds: tuple[int, ...]) -> None:
        """Fork; ``fds`` are the child's socket, its log, and what its request names."""
        try:
            pid = os.fork()
        except OSError as error:
            wire.send(self.control, {"died": request["spawn"], "error": f"fork: {error}"})
            for fd in fds:
                os.close(fd)
            return
        if pid == 0:
            _become_child(self, request, fds)
        for fd in fds:
            os.close(fd)
        self.children[pid] = request["spawn"]

    def reap(self) -> None:
        """Report children that ended, and kill what they left behind."""
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended = True
            identity = self.children.pop(pid, None)
            if identity is not None:
                wire.send(self.control, {"died": identity, "status": status})
        if ended:
            self.kill_strays()
            if not self.children and os.environ.get("OPATLAS_OWN_TMP"):
                for folder in COMMON_FOLDERS:
                    _wipe(folder)

    def kill_strays(self) -> None:
        """Kill adopted orphans: our children that we did not fork."""
        for _ in range(8):
            strays = [
                pid for pid, parent in _processes() if parent == os.getpid() and pid not in self.children
            ]
            if not strays:
                return
            for pid in strays:
                _kill(pid)
            time.sleep(0.002)
            for pid in strays:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue


def _become_child(zygote: ZygoteServer, request: dict[str, Any], fds: tuple[int, ...]) -> None:
    """Everything between the fork and the end of the child. Never returns."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        zygote.control.close()
        os.close(zygote.bell)
        channel = socket.socket(fileno=fds[0])
        _redirect(fds[1])
        _limit(request["limits"])
        wire.send(channel, {"hello": os.getpid()})
        child.serve(channel, fds[2:])
        status = 0
    except (ConnectionError, EOFError):
        status = 0  # the parent went away or has no more wishes
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No interpreter shutdown: libraries' exit handlers can hang in a forked child.
        os._exit(status)


def _limit(limits: dict[str, int]) -> None:
    """Resource limits of one child; memory itself is watched by the parent (address space limits break
    PyTorch and TVM, which reserve far more than they touch)."""
    _, processes_hard = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits["disk_bytes"],
        resource.RLIMIT_NOFILE: 1024,
        resource.RLIMIT_DATA: limits["data_bytes"],
        resource.RLIMIT_NPROC: limits["processes"],
    }
    if processes_hard != resource.RLIM_INFINITY:
        wanted[resource.RLIMIT_NPROC] = min(processes_hard, limits["processes"])
    for which, value in wanted.items():
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _redirect(log_fd: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(nothing)
    os.close(log_fd)


def _import_all(preload: list[str]) -> dict[str, str]:
    """Import ``module`` or call ``module:function`` in order; what fails is reported, not fatal: a route
    whose library is missing must not take the others down."""
    failed = {}
    for item in preload:
        module, _, function = item.partition(":")
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except Exception as error:
            failed[item] = f"{type(error).__name__}: {error}"
    return failed


def _processes() -> list[tuple[int, int]]:
    """(pid, parent) of every process that is visible."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            found.append((int(entry.name), int(after_name[1])))
    return found


def _wipe(folder: Path) -> None:
    """Empty a folder, leaving what is mounted below it."""
    device = folder.stat().st_dev
    seen: list[Path] = []
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if (Path(path) / name).lstat().st_dev == device]
        seen += [Path(path) / name for name in folders]
        for name in names:
            with contextlib.suppress(OSError):  # not ours: where something is mounted
                (Path(path) / name).unlink()
    # Only folders of this file system: the next child's work folder, empty as yet, can be mounted below.
    for inner in reversed(seen):
        with contextlib.suppress(OSError):  # not empty: something is mounted in it
            inner.rmdir()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
