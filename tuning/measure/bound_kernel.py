"""The child's side of a measurement: a loaded kernel, bound to a few input buffers, obeying commands.

``warm`` cache: runs alternate between the buffers (different values, same constants), as a job's calls
never see the very same activations twice. ``run(k)`` is a Python loop of k calls and nothing else, so a time
includes one call through the loader, as a job pays it.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tuning.measure.shared import Slot, aligned_empty


class BoundKernel:
    """One artifact in this process. ``inputs`` is read only; ``outputs`` is written for the parent."""

    def __init__(self, request: dict[str, Any], inputs_fd: int, outputs_fd: int) -> None:
        self.request = request
        self.inputs = mmap.mmap(inputs_fd, 0, prot=mmap.PROT_READ) if os.fstat(inputs_fd).st_size else b""
        self.answers = mmap.mmap(outputs_fd, 0)
        self.kernel: Any = None
        self.bound: list[Any] = []
        self.spans: list[dict[int, np.ndarray]] = []
        self.commands: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "prepare": self.prepare,
            "bind": self.bind,
            "fill": self.fill,
            "poison": self.poison,
            "outputs": self.outputs,
            "check": self.check,
        }

    def obey(self, message: bytes) -> dict[str, Any]:
        """Do one JSON command; the answer is JSON too."""
        command = json.loads(message)
        return self.commands[command.pop("do")](**command)

    def run(self, calls: int) -> None:
        """``calls`` runs, the buffers in turn."""
        first, second = self.bound[0], self.bound[-1]
        for _ in range(calls >> 1):
            first()
            second()
        if calls & 1:
            first()

    def load(self) -> dict[str, Any]:
        from opatlas.load import Manifest, load

        started = time.perf_counter_ns()
        self.kernel = load(Manifest.from_json(self.request["manifest"]), Path(self.request["workdir"]))
        return {"load_us": (time.perf_counter_ns() - started) / 1e3}

    def prepare(self) -> dict[str, Any]:
        """Give the kernel its constants: private copies, so that packing is its own choice."""
        constants = {}
        for number, document in self.request["constants"].items():
            constants[int(number)] = self._private(Slot.from_json(document))[1]
        before = _resident_bytes()
        started = time.perf_counter_ns()
        self.kernel.prepare(constants)
        elapsed = time.perf_counter_ns() - started
        self.constants = constants
        return {"prepare_us": elapsed / 1e3, "prepare_bytes": max(0, _resident_bytes() - before)}

    def bind(self, buffers: int) -> dict[str, Any]:
        """Bind ``buffers`` private copies of the runtime inputs, filled from sets 0, 1, …"""
        for index in range(buffers):
            pairs = {
                int(number): self._private(Slot.from_json(document))
                for number, document in self.request["sets"][index].items()
            }
            self.spans.append({number: flat for number, (flat, _) in pairs.items()})
            self.bound.append(self.kernel.bind({number: view for number, (_, view) in pairs.items()}))
        return {}

    def fill(self, set: int, buffer: int) -> dict[str, Any]:
        """Copy an input set into a bound buffer, in place."""
        for number, document in self.request["sets"][set].items():
            self.spans[buffer][int(number)][...] = Slot.from_json(document).flat(self.inputs)
        return {}

    def poison(self) -> dict[str, Any]:
        for bound in self.bound:
            bound.poison()
        return {}

    def outputs(self, buffer: int) -> dict[str, Any]:
        """Copy the latest outputs, and the inputs as the runs left them, to the parent."""
        arrays = self.bound[buffer].outputs()
        found = [[str(array.dtype), list(array.shape)] for array in arrays]
        slots = [Slot.from_json(document) for document in self.request["outputs"]]
        if found != [[slot.dtype, list(slot.shape)] for slot in slots]:
            return {"mismatch": f"outputs are {found}"[:500]}
        for slot, array in zip(slots, arrays, strict=True):
            slot.view(slot.flat(self.answers))[...] = array
        for number, document in self.request["inputs_back"].items():
            Slot.from_json(document).flat(self.answers)[...] = self.spans[buffer][int(number)]
        return {}

    def check(self, set: int, buffer: int) -> dict[str, Any]:
        """Fill, poison, run once, hand the outputs over; ``run_us`` is only a hint."""
        self.fill(set, buffer)
        self.bound[buffer].poison()
        started = time.perf_counter_ns()
        self.bound[buffer]()
        elapsed = time.perf_counter_ns() - started
        return {**self.outputs(buffer), "run_us": elapsed / 1e3}

    def _private(self, slot: Slot) -> tuple[np.ndarray, np.ndarray]:
        flat = aligned_empty(slot.elements, slot.flat(self.inputs).dtype)
        flat[...] = slot.flat(self.inputs)
        return flat, slot.view(flat)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
