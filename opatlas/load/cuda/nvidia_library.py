"""Where NVIDIA's libraries lie."""

from __future__ import annotations

import ctypes

from opatlas.errors import LoadError, first_line


def shared_library(name: str, title: str) -> ctypes.CDLL:
    """The library that PyTorch installs, or that the linker finds. ``name``: as in ``cuda-pathfinder``;
    ``title``: for people. Raises :class:`LoadError`."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise LoadError(f"needs {title}, which cannot be loaded: {first_line(error, 200)}") from error
