"""Hands kernels over to one session of ONNX Runtime, as operators of our own domain (``inside.c``).

The kernels are in this process's memory; :mod:`opatlas.load` has verified and loaded them. A model names them
by names made here, and is made here too: anybody else's model that names the domain finds nothing.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from pathlib import Path
from typing import Any

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.load.built_once import OwnSources
from opatlas.load.c_abi import KernelCode
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype
from opatlas.load.files import SharedLibrary
from opatlas.load.kernel import LoadedKernel
from opatlas.load.toolchain import INCLUDE_FOLDER

DOMAIN, VERSION = "ai.opatlas", 1
"""Of the operators, and of their set."""
_FOLDER = Path(__file__).parent
_SOURCES = OwnSources(
    "kernels' way into ONNX Runtime",
    _FOLDER / "inside.c",
    (_FOLDER / "ort.h", INCLUDE_FOLDER / "opatlas_abi.h"),
)
_SAID_BYTES = 256

_lock = threading.RLock()  # garbage may be collected, and closed, while something is
_still_used: set[HandedKernels] = set()
"""Those that were closed, or forgotten, while a session still had nodes of them."""


class _CodeStruct(ctypes.Structure):
    """``code`` of inside.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("run", "prepare", "release", "error")),
        ("alignment", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
    ]


class _ValueStruct(ctypes.Structure):
    """``value`` of inside.c."""

    _fields_ = [
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        *((name, ctypes.c_int32) for name in ("dtype", "itemsize", "ndim", "is_constant")),
    ]

    @classmethod
    def of(cls, value: Value) -> _ValueStruct:
        """Dense."""
        dims = (ctypes.c_int64 * max(1, len(value.shape)))(*value.shape)
        dtype, itemsize = ONNX_NUMBER[value.dtype], numpy_dtype(value.dtype).itemsize
        return cls(dims, dtype, itemsize, len(value.shape), value.role == "const")


class HandedKernels:
    """For one session after the other. What it is given is closed with it, or once these are gone."""

    _at: int | None = None

    def __init__(self) -> None:
        self._library = inside_library()
        self._at = self._library.handle.opatlas_inside_open()
        if not self._at:
            raise LoadError("no memory for kernels inside ONNX Runtime")
        self._kernels: list[LoadedKernel] = []

    def add(
        self,
        name: str,
        operator: Operator,
        kernel: LoadedKernel,
        code: KernelCode,
        *,
        may_write_over: bool,
        block: int = 0,
    ) -> None:
        """Add a kernel under the ``name`` of its operator in the model. ``may_write_over``: its output may
        share memory with its first input; ``block``: channels in a block of its tensors, or 0. Raises
        :class:`opatlas.errors.LoadError` for types that ONNX Runtime lacks."""
        values = [*(operator.inputs[number] for number in operator.tensor_inputs), *operator.output_values]
        if any(value.strides is not None for value in values):
            raise LoadError("its values are not dense, as ONNX Runtime's are")
        if block and not code.blocks & block:
            raise LoadError(f"it takes no channels in blocks of {block}")
        made = self._library.handle.opatlas_inside_add(
            self._at, name.encode(),
            _CodeStruct(code.run, code.prepare, code.release, code.error, code.alignment, code.threads),
            (_ValueStruct * len(values))(*map(_ValueStruct.of, values)),
            len(operator.tensor_inputs), len(operator.output_values), may_write_over, block,
        )  # fmt: skip
        if made < 0:
            raise LoadError("its values have too many dimensions, or channels that do not fill blocks")
        self._kernels.append(kernel)

    def register(self, options: Any) -> None:
        """Let a session that is made with these ``SessionOptions`` have them. Raises
        :class:`opatlas.errors.LoadError` where this ONNX Runtime takes none."""
        handle = self._library.handle
        handle.opatlas_inside_next(self._at)
        try:
            options.register_custom_ops_library(self._library.path)
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise LoadError(f"ONNX Runtime takes no kernels: {first_line(error)}") from error
        finally:
            handle.opatlas_inside_next(None)

    @property
    def has_failed(self) -> bool:
        """Whether a kernel has failed."""
        return bool(self._library.handle.opatlas_inside_any_failed(self._at))

    def failed(self) -> dict[int, str]:
        """The messages of kernels that failed, by their numbers in the order of adding."""
        found, said = {}, ctypes.create_string_buffer(_SAID_BYTES)
        for number in range(len(self._kernels)):
            if self._library.handle.opatlas_inside_failures(self._at, number, said, _SAID_BYTES):
                found[number] = said.value.decode(errors="replace")
        return found

    def close(self) -> None:
        """Release the kernels as soon as no session has nodes of them."""
        with _lock:
            if self._at is not None:
                _still_used.add(self)
            _still_used.difference_update([one for one in tuple(_still_used) if one._freed()])

    def __del__(self) -> None:
        """As ONNX Runtime's, a session may be dropped without being closed."""
        if self._at is not None and not sys.is_finalizing():
            self.close()

    def _freed(self) -> bool:
        at, self._at = self._at, None
        if at is not None and self._library.handle.opatlas_inside_close(at):
            self._at = at
            return False
        for kernel in self._kernels:
            kernel.close()
        self._kernels = []
        return True


@functools.cache
def inside_library() -> SharedLibrary:
    """The loaded library; built first if there is none of these sources."""
    library = _SOURCES.load()
    if not library.path:
        raise LoadError("this system has no files in memory, by which ONNX Runtime is given kernels")
    handle, pointer, number = library.handle, ctypes.c_void_p, ctypes.c_int32
    handle.opatlas_inside_open.restype = pointer
    handle.opatlas_inside_add.argtypes = [
        pointer, ctypes.c_char_p, ctypes.POINTER(_CodeStruct), ctypes.POINTER(_ValueStruct), *[number] * 4
    ]  # fmt: skip
    handle.opatlas_inside_next.argtypes = [pointer]
    handle.opatlas_inside_next.restype = None
    handle.opatlas_inside_failures.argtypes = [pointer, number, ctypes.c_char_p, number]
    handle.opatlas_inside_any_failed.argtypes = [pointer]
    handle.opatlas_inside_close.argtypes = [pointer]
    return library
