"""Packages ``.pt2``: what AOTInductor compiled, loaded by the exact PyTorch that compiled it.

The archive is a plain zip. Its library is loaded from the bytes that were checked; nothing in it is unpickled
and nothing of it is run before it is loaded.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays
from opatlas.load.files import MAX_FILE_BYTES, sealed_memory_file
from opatlas.load.manifest import Manifest
from opatlas.load.torch_module import buffer_name
from opatlas.load.torch_ops.types import to_tensor
from opatlas.load.torch_recipe import TorchBound, with_threads

_MODEL = "/data/aotinductor/model/"


def open_kernel(manifest: Manifest, files: Mapping[str, bytes]) -> PackageKernel:
    """The kernel in the manifest's one ``.pt2`` file; :class:`LoadError` for one that is broken."""
    operator = Operator.from_json(manifest.operator)
    [(name, content)] = [item for item in files.items() if item[0].endswith(".pt2")]
    members = _read_archive(content, name)
    return PackageKernel(operator, _open_runner(members, name), int(manifest.setting["threads"]))


class PackageKernel:
    """A model of AOTInductor. Constants are handed over at :meth:`prepare`: none is inside the package."""

    def __init__(self, operator: Operator, runner: Any, threads: int) -> None:
        self.operator, self._threads = operator, threads
        self._runner = runner
        self._wanted = set(runner.get_constant_names_to_original_fqns().values())
        self._constants: dict[str, torch.Tensor] = {}
        self._prepared = False

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        with torch.inference_mode():
            tensors = {buffer_name(number): to_tensor(array).clone() for number, array in constants.items()}
        # A constant that the compiler found unused is not asked for.
        self._constants = {name: tensor for name, tensor in tensors.items() if name in self._wanted}
        if self._constants:
            try:
                # By reference: the tensors are kept here as long as the model may use them.
                self._runner.update_constant_buffer(self._constants, False, False, True)
            except RuntimeError as error:
                raise LoadError(f"the package does not take its constants: {_first_line(error)}") from error
        self._prepared = True

    def bind(self, inputs: Mapping[int, np.ndarray]) -> TorchBound:
        if not self._prepared:
            if self.operator.constant_inputs:
                raise LoadError("the operator has constant inputs: call prepare before bind")
            self.prepare({})
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        with torch.inference_mode():
            tensors = {number: to_tensor(array).view_as(to_tensor(array)) for number, array in inputs.items()}
        arguments = [tensors[number] for number in self.operator.runtime_inputs]
        run = self._runner.run
        return TorchBound(self.operator, with_threads(self._threads, lambda: run(arguments)), tensors)

    def close(self) -> None:
        self._runner = None
        self._constants = {}


def _read_archive(content: bytes, name: str) -> dict[str, bytes]:
    """The members of the archive's model by file name."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [entry for entry in archive.infolist() if _MODEL in f"/{entry.filename}"]
            if sum(entry.file_size for entry in entries) > MAX_FILE_BYTES:
                raise LoadError(f"package {name} unpacks to more than {MAX_FILE_BYTES} bytes")
            return {PurePosixPath(entry.filename).name: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise LoadError(f"package {name} is not a readable archive: {error}") from error


def _open_runner(members: Mapping[str, bytes], name: str) -> Any:
    libraries = [member for member in members if member.endswith(".so")]
    if len(libraries) != 1:
        raise LoadError(f"package {name} has {len(libraries)} compiled models; one is wanted")
    [library] = libraries
    # Operators without a C function of their own are called by what this file says of them.
    described = PurePosixPath(library).with_suffix(".json").name
    try:
        if described in members or not Path("/proc/self/fd").exists():
            return _runner_from_folder(members, library, described)
        return _runner_from_memory(members[library])
    except (RuntimeError, OSError) as error:
        raise LoadError(f"package {name} cannot be loaded: {_first_line(error)}") from error


def _runner_from_memory(content: bytes) -> Any:
    descriptor = sealed_memory_file("package", content)
    # The descriptor is never closed: the linker knows a library by its path, and under a number used again
    # it would give back this library instead of the next.
    try:
        return torch._C._aoti.AOTIModelContainerRunnerCpu(f"/proc/self/fd/{descriptor}", 1)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def _runner_from_folder(members: Mapping[str, bytes], library: str, described: str) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="opatlas-"))  # mode 0700
    try:
        for member in {library, described} & set(members):
            (folder / member).write_bytes(members[member])
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(folder / library), 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
