"""What stands round one zygote: its user, its control group, its root file system, the filter of its system
calls.

Walls are made for one start of a zygote and taken down when it has ended. Nothing foreign runs before they
stand: bubblewrap (T2), or ``unshare`` and :mod:`confine` (T1), then Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuning.measure.device.gpus import Gpu
from tuning.measure.sandbox import cgroups, identities, roots, syscalls, wire
from tuning.measure.sandbox.layout import fixed_addresses
from tuning.measure.sandbox.programs import program

TMP_BYTES = 256 << 20
SHARED_MEMORY_BYTES = 64 << 20
_SYSTEM_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")
_FOR_SETPRIV = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")

SHOWN_INSIDE = 0o022
"""The umask with which a sandbox is made: another user runs inside, and goes through folders made for it."""


class Walls:
    """``work`` is the only folder of the machine that can be written to inside; ``readable`` are further
    ones that can be read; ``cache`` is where the loader's own thread pool lies compiled. ``gpu``: the one
    whose files are there, beside its driver's folders; all others' are not.

    Raises :class:`programs.NoProgram`, :class:`syscalls.NoFilter`, :class:`identities.NoIdentity`.
    """

    def __init__(
        self,
        tier: str,
        zygote: str,
        work: Path,
        readable: Sequence[Path] = (),
        cache: Path | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        self.tier = tier
        self.work = work
        work.chmod(
            0o755
        )  # another user may run inside, and bubblewrap's own first process may not pass by modes
        self.readable = (*readable, *([cache] if cache else []))
        self.cache = cache
        self.gpu = gpu
        self.nodes = gpu.present if gpu else ()
        # Below /proc, which the sandbox has anew: shown again there.
        self.in_proc = [path for path in (gpu.folders if gpu else ()) if path.is_relative_to("/proc")]
        self.readable += tuple(path for path in (gpu.folders if gpu else ()) if path not in self.in_proc)
        self.user: identities.Identity | None = None
        self.files: list[int] = []  # descriptors that the started command inherits
        self.running = syscalls.running_template() if tier == "T2" and zygote in roots.RUNNING else b""
        self._bwrap = program("bwrap") if tier == "T2" else ""
        self._inside = [*fixed_addresses()]
        programs = [*self._inside[:1]]
        if tier == "T2" and identities.must_change():
            self.user = identities.claim()
            # First of all: a change of user undoes what ``fixed_addresses`` asks for.
            self._inside = [*_setpriv(self.user.number), *self._inside]
            programs = [self._inside[0], *programs]
        self.root = roots.root_of(zygote, programs)
        self.group = cgroups.create(f"opatlas-{os.getpid()}-{id(self):x}") if tier != "T0" else None

    def command(self, inner: Sequence[str]) -> list[str]:
        """The command line that runs Python with the arguments ``inner`` inside."""
        python = [str(self.root.python if self.tier != "T0" else sys.executable), *inner]
        entering = self.group.entering() if self.group else []
        if self.tier == "T2":
            return [*entering, *self._bubblewrap(), *self._inside, *python]
        if self.tier == "T1":
            return [*entering, *_unshare(), *self._inside, *python]
        return [*self._inside, *python]

    def environment(self) -> dict[str, str]:
        """All that is seen inside of the environment."""
        own_tmp = self.tier != "T0"
        packages = self.root.import_from if own_tmp else (roots.package_root(),)
        return {
            **({"OPATLAS_CONFINE": json.dumps(self._plan())} if self.tier == "T1" else {}),
            **({"OPATLAS_OWN_TMP": "1"} if own_tmp else {}),
            **({"OPATLAS_CACHE": str(self.cache)} if self.cache else {}),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp" if own_tmp else str(self.work),
            "TMPDIR": "/tmp" if own_tmp else str(self.work),
            "LANG": "C.UTF-8",
            "PYTHONPATH": ":".join(map(str, packages)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            # A pool started while NumPy is imported would not survive the forks; each kernel sets its
            # threads.
            "OPENBLAS_NUM_THREADS": "1",
            **(self.gpu.environment if self.gpu else {}),
            **({"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}),
        }

    def give(self, *paths: Path) -> None:
        """Make files and folders the inner user's; the parent's own user remains where there is no other."""
        if self.user is not None:
            for path in paths:
                os.chown(path, self.user.number, self.user.number, follow_symlinks=False)

    def close_files(self) -> None:
        """Once the command has started."""
        for descriptor in self.files:
            os.close(descriptor)
        self.files = []

    def take_down(self) -> None:
        """After the last process inside has been told to end."""
        self.close_files()
        if self.group is not None:
            self.group.remove()
        if self.user is not None:
            self.user.release()

    def _bubblewrap(self) -> list[str]:
        arguments = [self._bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        arguments += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self.user is None:
            arguments += ["--unshare-user"]
        else:  # root only as long as setpriv takes
            arguments += [part for name in _FOR_SETPRIV for part in ("--cap-add", name)]
        arguments += ["--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
        for where, target in self.root.links:
            arguments += ["--symlink", target, where]
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        # bubblewrap's own first process stays root where the worker is.
        for setting in (*_SYSTEM_SETTINGS, *map(str, self.in_proc)):
            arguments += ["--ro-bind-try", setting, setting]
        for folder in _folders_above(self.nodes):
            arguments += ["--perms", "0755", "--dir", str(folder)]
        for node in self.nodes:
            arguments += ["--dev-bind", str(node), str(node)]
        arguments += ["--perms", "1777", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]
        arguments += ["--remount-ro", "/dev"]
        shown = (*self.root.shown, *self.readable)
        for folder in _folders_above((*shown, self.work, Path("/etc/passwd"))):  # bubblewrap's own are 0700
            arguments += ["--perms", "0755", "--dir", str(folder)]
        for path in shown:
            arguments += ["--ro-bind", str(path), str(path)]
        for hidden in self.root.hidden:
            arguments += ["--perms", "0555", "--tmpfs", str(hidden), "--remount-ro", str(hidden)]
        for name, text in self._accounts().items():
            arguments += ["--perms", "0444", "--file", self._descriptor(text.encode()), name]
        arguments += ["--bind", str(self.work), str(self.work), "--chdir", str(self.work)]
        arguments += [
            "--hostname",
            "sandbox",
            "--seccomp",
            self._descriptor(syscalls.built(bool(self.nodes))),
        ]
        # What is left of the root is a tmpfs without a limit: nobody may fill it.
        return [*arguments, "--remount-ro", "/"]

    def _plan(self) -> dict[str, object]:
        """What :func:`confine.confine` makes of tier T1's root."""
        return {
            "work": str(self.work),
            "shown": {str(path): str(path.resolve()) for path in (*self.root.shown, *self.readable)},
            "hidden": [str(path) for path in self.root.hidden],
            "links": self.root.links,
            "files": self._accounts(),
            "devices": [str(node) for node in self.nodes],
            "tmp_bytes": TMP_BYTES,
            "shared_memory_bytes": SHARED_MEMORY_BYTES,
        }

    def _accounts(self) -> dict[str, str]:
        if self.tier == "T1":
            return roots.accounts(0, 0)  # as its user namespace calls the worker's own
        if self.user is None:
            return roots.accounts(os.geteuid(), os.getegid())
        return roots.accounts(self.user.number, self.user.number)

    def _descriptor(self, content: bytes) -> str:
        descriptor = wire.memory_file("for-bubblewrap", content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        self.files.append(descriptor)
        return str(descriptor)


def _folders_above(paths: Iterable[Path]) -> list[Path]:
    """The folders that lead to these, from the outermost; the root and what is mounted anyway left out."""
    above = {parent for path in paths for parent in path.parents}
    return sorted(above - {Path("/"), Path("/tmp"), Path("/dev")})


def _setpriv(user: int) -> list[str]:
    """Becomes that user with no group, no capability and no way to another."""
    return [
        program("setpriv"), f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all",
        "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs", "--",
    ]  # fmt: skip


def _unshare() -> list[str]:
    return [
        program("unshare"), "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc",
        "--net", "--ipc", "--uts", "--mount",
    ]  # fmt: skip


@contextlib.contextmanager
def standing(tier: str, zygote: str, work: Path, gpu: Gpu | None = None) -> Iterator[Walls]:
    """Walls for as long as a ``with`` lasts."""
    walls = Walls(tier, zygote, work, gpu=gpu)
    try:
        yield walls
    finally:
        walls.take_down()
