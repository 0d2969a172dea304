"""An artifact's files: plain names only, read once, checked, and never read again.

The bytes that were checked are those that are loaded. A library is mapped from an anonymous, sealed memory
file, so nobody can swap the file between check and load.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from opatlas.errors import LoadError

MAX_FILE_BYTES = 2 << 30
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


def check_name(name: str) -> None:
    """Refuse a file name that is anything but a plain one: no folder, no dot in front, no odd character."""
    if not _PLAIN_NAME.fullmatch(name):
        raise LoadError(
            f"file name {name[:140]!r} is not plain; use letters, digits and _ . + -, a letter or digit first"
        )


def read_verified(folder: Path, files: Mapping[str, str]) -> dict[str, bytes]:
    """The content of every file named, each read once and checked against its SHA-256."""
    for name in files:
        check_name(name)
    return {name: _read(folder / name, name, digest) for name, digest in files.items()}


def _read(path: Path, name: str, digest: str) -> bytes:
    try:
        # No symbolic links: a name must be the file, not a way out of the folder.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as stream:
            if os.fstat(descriptor).st_size > MAX_FILE_BYTES:
                raise LoadError(f"file {name} is larger than {MAX_FILE_BYTES} bytes")
            content = stream.read()
    except OSError as error:
        raise LoadError(f"file {name} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise LoadError(f"file {name} has SHA-256 {found[:12]}…, the manifest says {str(digest)[:12]}…")
    return content


def sealed_memory_file(name: str, content: bytes) -> int:
    """The descriptor of an anonymous file with this content that nobody can change any more."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        stream.write(content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


class SharedLibrary:
    """A shared library loaded from bytes. ``functions`` are reached through ``handle`` (a ctypes.CDLL)."""

    def __init__(self, content: bytes, name: str) -> None:
        self._descriptor = -1
        try:
            self.handle = self._from_memory(content, name)
        except OSError as error:
            self._close_descriptor()
            raise LoadError(f"library {name} cannot be loaded: {error}") from error

    def _from_memory(self, content: bytes, name: str) -> ctypes.CDLL:
        if not hasattr(os, "memfd_create") or not Path("/proc/self/fd").exists():
            return self._from_folder(content, name)
        self._descriptor = sealed_memory_file(name, content)
        # The descriptor stays open while the library is loaded: the linker knows a library by its path, and
        # a number used again would give back this library instead of the next.
        return ctypes.CDLL(self.path)

    @staticmethod
    def _from_folder(content: bytes, name: str) -> ctypes.CDLL:
        folder = Path(tempfile.mkdtemp(prefix="opatlas-"))  # mode 0700
        try:
            (folder / name).write_bytes(content)
            return ctypes.CDLL(str(folder / name))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def path(self) -> str:
        """Its path for the linker while it is open, for others who load it too; "" if there is none."""
        return f"/proc/self/fd/{self._descriptor}" if self._descriptor >= 0 else ""

    def close(self) -> None:
        """Unload the library; do not use it afterwards."""
        if self.handle is not None:
            import _ctypes

            _ctypes.dlclose(self.handle._handle)
            self.handle = None  # type: ignore[assignment]
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
