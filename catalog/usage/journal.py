"""The journal: what was served, on disk before the answer leaves.

Append-only files below ``OPATLAS_HOME/journal``, one per process, rotated by size; a line is one lookup. A
writer keeps its file locked while it lives, so that draining knows which files can grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog import failpoints
from catalog.conf import CatalogConf, conf, journal_folder
from catalog.errors import DISK_FULL, JournalError, is_full

SUFFIX = ".jsonl"


class Journal:
    """One process's writer. Thread-safe; a forked child begins a file of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = -1
        self._folder: Path | None = None
        self._pid = 0
        self._written_bytes = 0
        self._read: CatalogConf | None = None

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line, given as its JSON object; see :meth:`append_line`."""
        self.append_line(json.dumps(entry, separators=(",", ":")).encode())

    def append_line(self, text: bytes) -> None:
        """Write one line, without its end. When this returns, killing the process cannot lose it. Raises
        :class:`JournalError` if the disk is full or gone. Only a crash of the machine can lose lines that the
        system had not flushed: a lookup does not wait for the disk."""
        line = text + b"\n"
        with self._lock:
            try:
                self._ready()
                written = _write(self._descriptor, line)
            except OSError as error:
                self._leave()
                said = f"{DISK_FULL}: the" if is_full(error) else "The"
                raise JournalError(f"{said} journal cannot be written ({error.strerror}).") from error
            if written != len(
                line
            ):  # a full disk: what was written is a torn line, ended by closing the file
                self._leave()
                raise JournalError(f"{DISK_FULL}: the journal cannot be written.")
            self._written_bytes += written
        failpoints.at("journal-appended")

    def close(self) -> None:
        """End the current file; the next line begins a new one."""
        with self._lock:
            self._leave()

    def unlock_after_fork(self) -> None:
        self._lock = threading.Lock()

    def _ready(self) -> None:
        settings = conf()
        if self._pid != os.getpid() or settings is not self._read:
            self._read = settings
            if self._pid != os.getpid() or journal_folder() != self._folder:
                self._leave()
        if self._written_bytes >= settings.journal_segment_bytes:
            self._leave()
        if self._descriptor < 0:
            folder = journal_folder()
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{uuid.uuid4().hex[:12]}{SUFFIX}"
            hidden = folder / f".{name}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
            self._descriptor = os.open(hidden, flags, 0o640)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            # Seen by who drains only once it is locked: an unlocked file is taken for a dead writer's.
            hidden.rename(folder / name)
            self._folder, self._pid, self._written_bytes = folder, os.getpid(), 0

    def _leave(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor, self._written_bytes = -1, 0


def _write(descriptor: int, text: bytes) -> int:
    """Like ``os.write``, which lets another Python thread run first; the answer to this lookup would then
    wait many times as long as writing takes."""
    written: int = _libc.write(descriptor, text, len(text))
    if written < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return written


_libc = ctypes.PyDLL(None, use_errno=True)
_libc.write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_libc.write.restype = ctypes.c_ssize_t

_journal = Journal()
# A fork while another thread writes would leave the child's lock held for ever.
os.register_at_fork(after_in_child=_journal.unlock_after_fork)
append = _journal.append
append_line = _journal.append_line
close = _journal.close


def segments() -> list[Path]:
    """The existing files, the oldest first."""
    return sorted(journal_folder().glob(f"*{SUFFIX}"))


def is_closed(path: Path) -> bool:
    """Whether no process writes to this file any more."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
