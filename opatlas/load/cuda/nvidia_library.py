"""Where NVIDIA's libraries lie."""

from __future__ import annotations

import ctypes

from opatlas.errors import LoadError, first_line


def shared_library(name: str, title: str) -> ctypes.CDLL:
    """Where PyTorch brings it, or the linker finds it. ``name`` as ``cuda-pathfinder`` has it, ``title`` as
    people write it. Raises :class:`LoadError`."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise LoadError(f"needs {title}, which cannot be loaded: {first_line(error, 200)}") from error
