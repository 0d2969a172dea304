"""Packages ``.pt2`` for a device: compiled there by AOTInductor, loaded by the exact same PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays
from opatlas.load.files import sealed_memory_file
from opatlas.load.package import BUILT_FOR
from opatlas.load.torch.module import buffer_name
from opatlas.load.torch.on_device import (
    ComputesOnDevice,
    DeviceTorchBound,
    allow_tf32,
    bound_there,
    bring,
    in_stream,
)
from opatlas.load.torch.ops.types import to_tensor


@dataclass(frozen=True)
class BuiltFor:
    """``device`` as PyTorch calls the kind (``cuda``), ``arch`` as the target does (``sm_90``)."""

    device: str
    arch: str
    tf32: bool
    graphs: bool

    @classmethod
    def read(cls, content: bytes) -> BuiltFor:
        """Raises :class:`LoadError`."""
        try:
            said = json.loads(content)
            return cls(str(said["device"]), str(said["arch"]), bool(said["tf32"]), bool(said["graphs"]))
        except (ValueError, TypeError, KeyError) as error:
            raise LoadError(f"{BUILT_FOR} does not say what the package was built for: {error}") from error

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    def check(self) -> None:
        """Raises :class:`LoadError` if this machine has no such device."""
        if self.device != "cuda":
            return
        if not torch.cuda.is_available():
            raise LoadError("needs a CUDA device, and PyTorch finds none here")
        major, minor = torch.cuda.get_device_capability()
        if self.arch != f"sm_{major}{minor}":
            raise LoadError(f"it was compiled for {self.arch}, and this device is sm_{major}{minor}")


def open_kernel(operator: Operator, content: bytes, built_for: BuiltFor) -> DevicePackageKernel:
    """The kernel in a package's bytes, which were checked."""
    built_for.check()
    descriptor = sealed_memory_file("package", content)
    path = f"/proc/self/fd/{descriptor}"
    try:
        # One runner without its own locks and events: with these its launches could not be captured.
        loader = torch._C._aoti.AOTIModelPackageLoader(path, "model", True, 1, -1)
    except RuntimeError as error:
        raise LoadError(f"the package cannot be loaded: {first_line(error)}") from error
    return DevicePackageKernel(operator, loader, built_for)


class DevicePackageKernel(ComputesOnDevice):
    """Launches on the stream that it is bound to, else on PyTorch's current one."""

    def __init__(self, operator: Operator, loader: Any, built_for: BuiltFor) -> None:
        self.operator, self.built_for = operator, built_for
        self.device = torch.device(built_for.device)
        self._loader = loader
        self._constants: dict[str, torch.Tensor] = {}
        self._prepared = False

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        wanted = set(self._loader.get_constant_fqns())
        self._constants = {
            buffer_name(number): to_tensor(array).clone().to(self.device)
            for number, array in constants.items()
            if buffer_name(number) in wanted
        }
        if self._constants:
            try:
                # By reference: the tensors are kept here as long as the model may use them.
                self._loader.load_constants(self._constants, False, False, True)
            except RuntimeError as error:
                raise LoadError(f"the package does not take its constants: {first_line(error)}") from error
        self._prepared = True

    def bind(
        self, inputs: Mapping[int, Any], outputs: Sequence[Any] | None = None, *, stream: int | None = None
    ) -> DeviceTorchBound:
        """See :meth:`opatlas.load.torch.on_device.DeviceTorchKernel.bind`."""
        if not self._prepared:
            if self.operator.constant_inputs:
                raise LoadError("the operator has constant inputs: call prepare before bind")
            self.prepare({})
        run = self._loader.run
        with torch.inference_mode(), in_stream(self.device, stream):
            brought = bring(self.operator, inputs, self.device)
            arguments = [brought[number].tensor for number in self.operator.runtime_inputs]
            allow_tf32(self.built_for.tf32)
            how = asdict(self.built_for)
            constants = list(self._constants.values())
            return bound_there(
                self.operator,
                self.device,
                how,
                lambda: list(run(arguments)),
                brought,
                outputs,
                stream,
                constants,
            )

    def close(self) -> None:
        self._loader = None
        self._constants = {}
