"""Frameworks that agree with ONNX Runtime on an example and not on what a caller gives: which real ones do
depends on their versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from opatlas.plan.regions import ModelPart, OnnxRuntimeRegion

BEYOND = 100.0
"""From here on they compute something else."""

let_go = threading.Event()
"""Set by a test that lets the slow ones go on."""


class WrongBeyond:
    """ONNX Runtime's outputs, one more where an input is beyond."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        names = part.input_names, part.output_names
        self._right = OnnxRuntimeRegion(part.model, *names, threads, alone=True)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        more = any((array > BEYOND).any() for array in inputs)
        return [made + more for made in self._right.run(inputs)]

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        def call() -> None:
            for output, made in zip(outputs, self.run(inputs), strict=True):
                output[...] = made

        return call


class SlowLoader(WrongBeyond):
    """It is loaded when somebody lets it."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        let_go.wait(60)
        super().__init__(part, threads)


class SlowRunner(WrongBeyond):
    """Its first run ends when somebody lets it."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        let_go.wait(60)
        return super().run(inputs)
