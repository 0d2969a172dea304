"""Nodes left to a framework: some of a model's nodes as one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from opatlas.errors import LoadError, first_line
from opatlas.load.kernel import KernelFailed
from opatlas.load.onnxruntime_recipe import bind_memory, quiet_options


class OnnxRuntimeRegion:
    """A part of a model in ONNX Runtime, its weights inside. ``inputs`` and ``outputs``: names there."""

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Sequence[str],
        outputs: Sequence[str],
        threads: int,
        *,
        alone: bool = False,
    ) -> None:
        """``alone``: nobody else computes between its runs, so its threads may go on spinning then."""
        self._inputs, self._outputs = list(inputs), list(outputs)
        options = quiet_options(threads)
        if not alone:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise LoadError(f"ONNX Runtime refuses a part of the model: {first_line(error)}") from error

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One run over these arrays; outputs are new arrays."""
        try:
            feed = dict(zip(self._inputs, inputs, strict=True))
            made: list[np.ndarray] = self._session.run(self._outputs, feed)
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error
        return made

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundRegion:
        """Tied to buffers that stay: a call is one run and nothing else."""
        return BoundRegion(
            self._session,
            dict(zip(self._inputs, inputs, strict=True)),
            dict(zip(self._outputs, outputs, strict=True)),
        )


class BoundRegion:
    """A session over fixed buffers."""

    def __init__(
        self, session: Any, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        self._keep = (session, inputs, outputs)
        self._binding = session.io_binding()
        for bind, arrays in ((self._binding.bind_input, inputs), (self._binding.bind_output, outputs)):
            for name, array in arrays.items():
                bind_memory(bind, name, array, array.dtype.name)
        self._run = session._sess.run_with_iobinding
        self._io = self._binding._iobinding

    def __call__(self) -> None:
        try:
            self._run(self._io, None)
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error
