"""Recipes of call ``compile``: ``torch.compile`` on the operator's module, as its users call it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays
from opatlas.load.torch.graph import Unsupported, missing
from opatlas.load.torch.module import OperatorModule, example_inputs
from opatlas.load.torch.on_device import DeviceTorchBound, allow_tf32, bound_there, bring
from opatlas.load.torch.ops.types import to_tensor
from opatlas.load.torch.recipe import TorchBound, with_threads
from opatlas.own_folder import own_folder

COMPILED_AT_MOST = 64
"""The most recompilations before PyTorch would fall back to eager; a process may compile many operators."""


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> CompiledKernel:
    """The kernel of an allowed ``torch.compile`` recipe."""
    if reason := missing(operator):
        raise LoadError(reason)
    if recipe.get("device", "cpu") == "cpu":
        return CompiledKernel(operator, recipe)
    if not torch.cuda.is_available():
        raise LoadError("needs a CUDA device, and PyTorch finds none here")
    return DeviceCompiledKernel(operator, recipe, torch.device(recipe["device"]))


class CompiledKernel:
    """Compiled in :meth:`prepare` (seconds, with the machine's C++ compiler), never in a run."""

    def __init__(
        self, operator: Operator, recipe: Mapping[str, Any], device: torch.device | None = None
    ) -> None:
        self.operator, self.recipe, self.device = operator, recipe, device
        self._compiled: Callable[..., tuple[torch.Tensor, ...]] | None = None
        self._constants: list[torch.Tensor] = []

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        known = {number: to_tensor(array).clone() for number, array in constants.items()}
        if self.device is not None:
            known = {number: tensor.to(self.device) for number, tensor in known.items()}
            allow_tf32(bool(self.recipe.get("tf32")))
        self._constants = list(known.values())
        _ready()
        torch.set_num_threads(int(self.recipe["threads"]))
        try:
            with self.device or nullcontext():
                module = OperatorModule(self.operator, known, known).eval()
            # Traced first, so that what is guarded in every call is what a user's plain module has.
            examples = example_inputs(self.operator, self.operator.runtime_inputs, self.device)
            with self.device or nullcontext():
                traced = plain_module(module, tuple(examples.values()))
            self._compiled = torch.compile(traced, mode=self.recipe["mode"])
            without_gradients(lambda: self._compiled(*examples.values()))()  # type: ignore[misc]
        except Unsupported as error:
            raise LoadError(str(error)) from error
        except Exception as error:  # the compiler's errors share no base but Exception
            raise LoadError(f"torch.compile fails: {first_line(error)}") from error

    def bind(self, inputs: Mapping[int, Any]) -> TorchBound:
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        tensors = {number: to_tensor(array) for number, array in inputs.items()}
        run = self._run(tensors)
        given = [*tensors.values(), *self._constants]
        return TorchBound(self.operator, with_threads(int(self.recipe["threads"]), run), given)

    def _run(self, tensors: Mapping[int, torch.Tensor]) -> Callable[[], Any]:
        """A run on these inputs."""
        if self._compiled is None:
            if self.operator.constant_inputs:
                raise LoadError("the operator has constant inputs: call prepare before bind")
            self.prepare({})
        arguments = [tensors[number] for number in self.operator.runtime_inputs]
        compiled = self._compiled
        assert compiled is not None
        return without_gradients(lambda: list(compiled(*arguments)))

    def close(self) -> None:
        self._compiled, self._constants = None, []


class DeviceCompiledKernel(CompiledKernel):
    """The same on a device.

    Mode ``max-autotune`` captures launches itself, into memory that all its results share, so the next call
    would overwrite the last results. Where the recipe asks for graphs, another mode is used and the launches
    are captured here.
    """

    def bind(self, inputs: Mapping[int, Any]) -> DeviceTorchBound:
        assert self.device is not None
        brought = bring(self.operator, inputs, self.device)
        run = self._run({number: one.tensor for number, one in brought.items()})
        how = {"tf32": self.recipe.get("tf32"), "graphs": self.recipe.get("graphs")}
        return bound_there(self.operator, self.device, how, run, brought, constants=self._constants)


def without_gradients(call: Callable[[], Any]) -> Callable[[], Any]:
    """Run inside ``torch.no_grad()``, which a user enters once for a whole model."""
    switch, state = torch._C._set_grad_enabled, torch.is_grad_enabled

    def run() -> Any:
        before = state()
        switch(False)
        try:
            return call()
        finally:
            switch(before)

    return run


def plain_module(module: torch.nn.Module, examples: tuple[torch.Tensor, ...]) -> Any:
    """The module as a plain graph of PyTorch calls, for inputs like ``examples``."""
    with torch.no_grad():
        exported = torch.export.export(module, examples, strict=False)
    flat = exported.module(check_guards=False)
    flat.graph.set_codegen(torch.fx.graph.CodeGen())
    flat.recompile()
    # Only its function: what export puts around a graph would cost time in every call, and users have none.
    plain = type("Operator", (torch.nn.Module,), {"forward": type(flat).forward})()
    for name, buffer in flat.named_buffers(recurse=False):
        plain.register_buffer(name, buffer)
    for name, inner in flat.named_children():
        plain.add_module(name, inner)
    for name, value in vars(flat).items():
        if isinstance(value, torch.Tensor):  # what the graph brings along of itself
            plain.register_buffer(name, value)
    return plain.eval()


@contextmanager
def compiled_into(folder: Path) -> Iterator[None]:
    """Read compiled code from a folder and keep new code there, so that another process of this user has it
    in seconds. Raises :class:`LoadError` for a folder that others may write to: its content is run."""
    try:
        own_folder(folder)
    except OSError as error:
        raise LoadError(f"nothing that lies there is run: {error}") from error
    _ready()
    before = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


_is_ready = False


def _ready() -> None:
    """Set PyTorch up, with a folder for compiled code; once per process."""
    global _is_ready
    if _is_ready:
        return
    import torch._dynamo
    import torch._inductor
    from torch._inductor import config

    config.compile_threads = 1  # a pool of processes would outlive the kernel
    torch._dynamo.config.recompile_limit = COMPILED_AT_MOST
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(
        prefix="opatlas-inductor-", dir=os.environ.get("TMPDIR")
    )
    _is_ready = True


def warm() -> None:
    """Prepare a zygote once before it forks: find out what the compiler can do, precompile the headers (both
    stay in its memory and folder) and compile a little. Takes 20 s; children then take 2 s instead of 15."""
    global _is_ready
    folder = Path.cwd() / "compiled"
    folder.mkdir(exist_ok=True)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    from torch._inductor import codecache

    codecache._HEADER_DIR = str(folder / "headers")
    codecache._HEADER_LOCK_DIR = str(folder / "headers" / "locks")
    _ready()
    torch.set_num_threads(1)
    without_gradients(lambda: torch.compile(torch.nn.Softmax(-1))(torch.ones(4, 32)))()
    torch._dynamo.reset()
    _is_ready = False  # each child takes a folder of its own
