"""Packages ``.pt2``: what AOTInductor compiled, loaded by the exact PyTorch that compiled it.

The archive is a plain zip. Its library is loaded from the bytes that were checked; nothing in it is unpickled
and nothing of it is run before it is loaded.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays
from opatlas.load.files import MAX_FILE_BYTES, sealed_memory_file
from opatlas.load.manifest import Manifest
from opatlas.load.package import BUILT_FOR
from opatlas.load.torch import device_package
from opatlas.load.torch.device_package import BuiltFor, DevicePackageKernel
from opatlas.load.torch.module import buffer_name
from opatlas.load.torch.ops.types import to_tensor
from opatlas.load.torch.recipe import TorchBound, with_threads

PACKED = "packed.json"
"""A file beside the package that says how weights are packed ahead."""

_MODEL = "/data/aotinductor/model/"


def open_kernel(manifest: Manifest, files: Mapping[str, bytes]) -> PackageKernel | DevicePackageKernel:
    """The kernel in the manifest's one ``.pt2`` file; :class:`LoadError` for a broken one."""
    operator = Operator.from_json(manifest.operator)
    [(name, content)] = [item for item in files.items() if item[0].endswith(".pt2")]
    if BUILT_FOR in files:
        return device_package.open_kernel(operator, content, BuiltFor.read(files[BUILT_FOR]))
    members = _read_archive(content, name)
    packed = read_packed(files[PACKED]) if PACKED in files else {}
    return PackageKernel(operator, _open_runner(members, name), int(manifest.setting["threads"]), packed)


@dataclass(frozen=True)
class Packing:
    """How a constant of the model comes from a weight: a view of it, its columns cut into blocks that lie one
    after another, zeros after the last."""

    buffer: str
    shape: tuple[int, int]
    strides: tuple[int, int]
    offset: int
    padding: int
    blocks: tuple[int, int, int]  # blocks, rows, columns of a block

    def pack(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The packed weight; :class:`LoadError` if the description does not fit the weight."""
        if self.buffer not in tensors:
            raise LoadError(f"the package packs {self.buffer}, which is no constant of the operator")
        count, rows, width = self.blocks
        try:
            view = tensors[self.buffer].as_strided(self.shape, self.strides, self.offset)
            padded = torch.nn.functional.pad(view, (0, self.padding))
            return padded.reshape(rows, count, width).transpose(0, 1).contiguous()
        except RuntimeError as error:
            raise LoadError(f"constant {self.buffer} cannot be packed: {first_line(error)}") from error


def read_packed(content: bytes) -> dict[str, Packing]:
    """The packings of a package's description, by the model's name of the constant."""
    try:
        document = json.loads(content)
        return {str(name): _packing(entry) for name, entry in document.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LoadError(f"{PACKED} does not say how constants are packed: {error}") from error


def _packing(entry: Mapping[str, Any]) -> Packing:
    rows, columns = (int(size) for size in entry["shape"])
    row, column = (int(stride) for stride in entry["strides"])
    count, deep, width = (int(size) for size in entry["blocks"])
    offset, padding = int(entry["offset"]), int(entry["padding"])
    if min(rows, columns, row, column, count, deep, width, offset, padding) < 0:
        raise ValueError("a negative size")
    return Packing(
        str(entry["buffer"]), (rows, columns), (row, column), offset, padding, (count, deep, width)
    )


class PackageKernel:
    """A model of AOTInductor. Constants are given at :meth:`prepare`: none is inside the package."""

    def __init__(
        self, operator: Operator, runner: Any, threads: int, packed: Mapping[str, Packing] | None = None
    ) -> None:
        self.operator, self._threads, self._packed = operator, threads, packed or {}
        self._runner = runner
        self._wanted = set(runner.get_constant_names_to_original_fqns().values())
        self._constants: dict[str, torch.Tensor] = {}
        self._prepared = False

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        with torch.inference_mode():
            tensors = {buffer_name(number): to_tensor(array).clone() for number, array in constants.items()}
            tensors.update({name: packing.pack(tensors) for name, packing in self._packed.items()})
        # A constant that the compiler found unused, or needs in its packed form only, is not asked for.
        self._constants = {name: tensor for name, tensor in tensors.items() if name in self._wanted}
        if self._constants:
            try:
                # By reference: the tensors are kept here as long as the model may use them.
                self._runner.update_constant_buffer(self._constants, False, False, True)
            except RuntimeError as error:
                raise LoadError(f"the package does not take its constants: {first_line(error)}") from error
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
        given = [*arguments, *self._constants.values()]
        return TorchBound(self.operator, with_threads(self._threads, lambda: run(arguments)), given)

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
        raise LoadError(f"package {name} cannot be loaded: {first_line(error)}") from error


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
