"""NVIDIA's libraries by their C interfaces, through ``ctypes``: no bindings of their own are needed."""

from __future__ import annotations

import ctypes
from typing import Any

from opatlas.errors import LoadError, first_line
from opatlas.load.cuda.driver import DeviceFailed


def shared_library(name: str, title: str) -> ctypes.CDLL:
    """Where PyTorch brings it, or the linker finds it. ``name`` as ``cuda-pathfinder`` has it, ``title`` as
    people write it. Raises :class:`LoadError`."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise LoadError(f"needs {title}, which cannot be loaded: {first_line(error, 200)}") from error


class NvidiaLibrary:
    """One of them, whose functions answer with a status. Every call may raise :class:`DeviceFailed`."""

    title: str

    def __init__(self, library: Any) -> None:
        self._library = library

    def ask(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise DeviceFailed(f"{self.title} answers {status} to {function}")

    def made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """The handle that a function writes to its first argument."""
        made = ctypes.c_void_p()
        self.ask(function, ctypes.byref(made), *arguments)
        return made
