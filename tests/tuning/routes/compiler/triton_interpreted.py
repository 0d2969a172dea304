"""Runs every template on the processor, by Triton's interpreter, beside PyTorch eager in float64.

A program of its own, since the interpreter is chosen when a kernel is defined:
``TRITON_INTERPRET=1 python -m tests.tuning.routes.compiler.triton_interpreted``. Prints JSON: case → the
greatest error, as a multiple of what the judge of trials allows; of the cases that are named, or all.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

from opatlas.identity import Operator, Setting, parse_operator
from opatlas.load.buffers import empty
from opatlas.load.dtypes import numpy_dtype
from tests.catalog.making import GPU
from tests.tuning.routes.compiler.triton_cases import CASES
from tuning.measure.judging.reference import runner
from tuning.routes.compiler.triton.compile import PHASE, load_kernel
from tuning.routes.compiler.triton.launch import Configuration
from tuning.routes.compiler.triton.route import BY_NAME, Template

SETTING = Setting()


def mended(patch: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Triton 3.6 makes a number of an array of one element, which NumPy refuses since 2.4 (triton#9171)."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


def inputs(operator: Operator) -> dict[int, np.ndarray]:
    random = np.random.default_rng(7)
    made = {}
    for number in operator.tensor_inputs:
        value = operator.inputs[number]
        made[number] = empty(value, 64)
        if value.dtype == "bool":
            made[number][...] = random.random(value.shape) < 0.7
            made[number][..., 0] = True  # a query that sees nothing has no attention
        else:
            made[number][...] = random.standard_normal(value.shape).astype(numpy_dtype(value.dtype))
    return made


def first_of_each(space: Sequence[Configuration]) -> Mapping[int, object]:
    """Of each way to be in parts and to be by TMA, where it comes first."""
    ways = {(one.get("split", 1) > 1, one.get("tma", 0)): at for at, one in reversed([*enumerate(space)])}
    return {at: way for way, at in ways.items()}


def worst(template: Template, operator: Operator, given: Mapping[int, np.ndarray], folder: Path) -> float:
    """Over the first and the last configuration, and the first in parts and by TMA."""
    constants = {number: given[number] for number in operator.constant_inputs}
    (value, allowed), *_ = runner("torch64", operator, SETTING, constants)(
        {number: given[number] for number in operator.runtime_inputs}
    )
    space = list(template.configurations(operator, GPU, SETTING))
    found = 0.0
    for at in {0, len(space) - 1, *first_of_each(space)}:
        configuration = {**space[at]}
        if configuration.get("programs"):
            configuration["programs"] = 3  # each takes several blocks
        launch = template.launch(operator, SETTING, configuration)
        out = torch.full(
            operator.output_values[0].shape,
            float("nan"),
            dtype=getattr(torch, operator.output_values[0].dtype),
        )
        workspace = torch.full((launch.workspace_bytes // 4,), float("nan"))
        arguments = [
            torch.from_numpy(given[pointer.argument["input"]])
            if "input" in pointer.argument
            else workspace
            if "workspace" in pointer.argument
            else out
            for pointer in launch.pointers
        ]
        room = folder / f"{at}"
        room.mkdir()
        kernel = load_kernel(launch, room)
        for number, grid in enumerate(launch.grids):
            phase = {PHASE: number} if PHASE in kernel.arg_names else {}
            kernel[grid](*arguments, **phase, **launch.numbers)
        error = np.abs(out.double().numpy() - value.astype(np.float64)) / (
            1e-300 if allowed is None else allowed
        )
        found = max(found, float(np.nan_to_num(error, nan=np.inf).max()))
    return found


def main() -> None:
    interpreter._patch_lang_tensor = mended(interpreter._patch_lang_tensor)
    only = sys.argv[1:] or list(CASES)
    done = {}
    with tempfile.TemporaryDirectory() as folder:
        for at, (name, (template, document)) in enumerate((name, CASES[name]) for name in only):
            operator = parse_operator(document)
            (Path(folder) / f"{at}").mkdir()
            done[name] = worst(BY_NAME[template], operator, inputs(operator), Path(folder) / f"{at}")
    print(json.dumps(done))


if __name__ == "__main__":
    main()
