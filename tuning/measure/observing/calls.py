"""System calls as strace writes them, counted. PURE: lines in, counts out, all of it bounded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_LINES = 200_000
"""Further calls are counted in one number only."""
MOST_PATHS = 40
PATH_CHARACTERS = 160

_LINE = re.compile(r"^(?:\[pid\s+(\d+)\]\s+)?(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>.*|--- (SIG\w+) .*---)")
_NOT_ENDED = re.compile(r"<(?:unfinished|detached) \.\.\.>$")
_OPENS = ("open", "openat", "openat2", "creat", "stat", "lstat", "newfstatat", "access", "faccessat",
          "faccessat2", "readlink", "readlinkat", "statx", "unlink", "unlinkat", "mkdir", "mkdirat", "rename",
          "renameat", "renameat2", "link", "symlink", "truncate", "chmod", "mknod", "mknodat", "chdir",
          "execve", "execveat", "memfd_create")  # fmt: skip
_WAITS = ("recvfrom", "recvmsg", "restart_syscall")  # for a command
_INTERRUPTED = "= ? ERESTART"
"""A wait in which the process was stopped: the system begins it again when it goes on."""
_STARTS = ("clone", "clone3", "fork", "vfork")
_QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"')
_OWN_NUMBERS = re.compile(r"\d+")


@dataclass
class Calls:
    """What a process and its threads asked of the system."""

    counts: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)  # numbers in them as N: they differ by run
    signals: Counter[str] = field(default_factory=Counter)
    executable: int = 0  # memory of its own that may be executed, or was made so
    mapped_code: int = 0  # files that are mapped to be executed: libraries
    threads: int = 0  # started
    processes: int = 0
    lines: int = 0
    unread: int = 0  # lines beyond MOST_LINES
    waiting: Counter[str] = field(default_factory=Counter)  # for a command, when strace let go

    def read(self, lines: Iterable[str]) -> Calls:
        """Count further lines; returns itself."""
        for line in lines:
            self.lines += 1
            if self.lines > MOST_LINES:
                self.unread += 1
            elif match := _LINE.match(line):
                self._count(match[2], match[3] or "", match[5])
                if match[4] in _WAITS:
                    self.waiting[match[4]] -= 1
                    self.counts[match[4]] -= _INTERRUPTED in line
        return self

    def beyond(self, honest: Calls) -> Calls:
        """What remains when what the harness did beside an empty kernel is taken off."""
        counts = self._ended() - honest._ended()
        for name in _WAITS:
            if counts[name] == 1:  # whether strace came before or in the first wait
                del counts[name]
        return Calls(
            counts,
            Counter({path: n for path, n in self.paths.items() if path not in honest.paths}),
            self.signals - honest.signals,
            max(0, self.executable - honest.executable),
            max(0, self.mapped_code - honest.mapped_code),
            max(0, self.threads - honest.threads),
            max(0, self.processes - honest.processes),
            self.lines,
            self.unread,
        )

    def _ended(self) -> Counter[str]:
        """Without the wait for a command that never came: whether strace saw it begin, the host decides."""
        return self.counts - Counter(name for name, waits in self.waiting.items() if waits > 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "calls": dict(self.counts.most_common(80)),
            "paths": [path for path, _ in self.paths.most_common(MOST_PATHS)],
            "signals": dict(self.signals),
            "executable": self.executable,
            "mapped_code": self.mapped_code,
            "threads": self.threads,
            "processes": self.processes,
            "uncounted": self.unread,
        }

    def _count(self, name: str | None, rest: str, signal: str | None) -> None:
        if signal:
            self.signals[signal] += 1
        if name is None or (name in _WAITS and _INTERRUPTED in rest):
            return
        self.counts[name] += 1
        if name in _WAITS and _NOT_ENDED.search(rest):
            self.waiting[name] += 1
        if name in _OPENS and len(self.paths) < MOST_PATHS * 4 and (path := _QUOTED.search(rest)):
            self.paths[_OWN_NUMBERS.sub("N", path[1])[:PATH_CHARACTERS]] += 1
        if name in _STARTS:
            if "CLONE_THREAD" in rest:
                self.threads += 1
            else:
                self.processes += 1
        if name in ("mmap", "mprotect", "pkey_mprotect") and "PROT_EXEC" in rest:
            if name == "mmap" and "MAP_ANONYMOUS" not in rest and "MAP_PRIVATE" in rest:
                self.mapped_code += 1
            else:
                self.executable += 1
