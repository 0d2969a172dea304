"""The child's side of a measurement: a loaded kernel, bound to a few input buffers, obeying commands.

``warm`` cache: runs alternate between the buffers (different values, same constants), as a job's calls
never see the very same activations twice. ``run(k)`` is a Python loop of k calls and nothing else, so a time
includes one call through the loader, as a job pays it.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.load.kernel import KernelFailed
from tuning.measure.judging.guard import Edge, Fence, float_state, perturb_heap
from tuning.measure.shared_tensors import TensorSlot, aligned_empty, roll_into


class BoundKernel:
    """One artifact in this process. ``inputs`` is read only; ``outputs`` is written for the parent."""

    def __init__(self, request: dict[str, Any], inputs_fd: int, outputs_fd: int) -> None:
        self.request = request
        self.inputs = mmap.mmap(inputs_fd, 0, prot=mmap.PROT_READ) if os.fstat(inputs_fd).st_size else b""
        self.answers = mmap.mmap(outputs_fd, 0)
        self.kernel: Any = None
        self.bound: list[Any] = []
        self.spans: list[dict[int, np.ndarray]] = []
        self.native = request["manifest"]["kind"] == "c-abi"
        self.fences: list[Fence] = []
        self.float_state = b""
        self.random = random.Random(os.urandom(16))
        self.commands: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "prepare": self.prepare,
            "bind": self.bind,
            "fill": self.fill,
            "poison": self.poison,
            "outputs": self.outputs,
            "check": self.check,
            "settle": self.settle,
            "fresh": self.fresh,
        }

    def obey(self, message: bytes) -> dict[str, Any]:
        """Do one JSON command; the answer is JSON too."""
        command = json.loads(message)
        return self.commands[command.pop("do")](**command)

    def run(self, calls: int) -> None:
        """``calls`` runs, the buffers in turn."""
        first, second = self.bound[0], self.bound[1]
        for _ in range(calls >> 1):
            first()
            second()
        if calls & 1:
            first()

    def load(self) -> dict[str, Any]:
        from opatlas.load import Manifest, load

        if self.native:
            perturb_heap(True)
            self.float_state = float_state()
        started = time.perf_counter_ns()
        self.kernel = load(Manifest.from_json(self.request["manifest"]), Path(self.request["workdir"]))
        return {"load_us": (time.perf_counter_ns() - started) / 1e3}

    def prepare(self) -> dict[str, Any]:
        """Give the kernel its constants: private copies, so that packing is its own choice."""
        constants = {}
        for number, document in self.request["constants"].items():
            constants[int(number)] = self._private(TensorSlot.from_json(document))[1]
        before = _resident_bytes()
        started = time.perf_counter_ns()
        self.kernel.prepare(constants)
        elapsed = time.perf_counter_ns() - started
        self.constants = constants
        return {"prepare_us": elapsed / 1e3, "prepare_bytes": max(0, _resident_bytes() - before)}

    def bind(self, buffers: int, edge: bool = False) -> dict[str, Any]:
        """Bind ``buffers`` private copies of the runtime inputs, filled from sets 0, 1, …; with ``edge`` one
        more, whose inputs end where nothing may be read. Timed are the first and the second."""
        for index in range(buffers):
            self._bind({number: self._private(slot) for number, slot in self._set(index).items()})
        if edge:
            alignment = max(1, int(self.request["manifest"]["alignment"]))
            pairs = {}
            for number, slot in self._set(0).items():
                flat = Edge(slot.elements, slot.flat(self.inputs).dtype, alignment).flat
                pairs[number] = (flat, slot.view(flat))
            self._bind(pairs)
        return {}

    def settle(self) -> dict[str, Any]:
        """Checked: from now on memory is as a job has it, and nothing is bound beyond what is timed."""
        del self.bound[2:], self.spans[2:]
        if self.native:
            perturb_heap(False)
        return {}

    def fill(self, set: int, buffer: int) -> dict[str, Any]:
        """Copy an input set into a bound buffer, in place."""
        for number, document in self.request["sets"][set].items():
            self.spans[buffer][int(number)][...] = TensorSlot.from_json(document).flat(self.inputs)
        return {}

    def fresh(self, calls: int, final: dict[str, int], compute: bool) -> dict[str, Any]:
        """``calls`` runs, each on values never seen before: a set moved round by a random distance. The last
        is set 0 moved by ``final``, for which the parent has a reference. Without ``compute`` everything but
        the runs, so that the difference is theirs. The outputs are handed over at once: who answers before
        its work is done has nothing to show."""
        sources = [{n: slot.flat(self.inputs) for n, slot in self._set(index).items()} for index in (0, 1)]
        last = {int(number): shift for number, shift in final.items()}
        for index in range(calls):
            buffer = index & 1
            if index == calls - 1:
                moved = [(n, flat, last[n]) for n, flat in sources[0].items()]
            else:
                draw = self.random.random
                moved = [
                    (n, flat, 1 + int(draw() * (flat.size - 1)) if last[n] else 0)
                    for n, flat in sources[buffer].items()
                ]
            for number, flat, shift in moved:
                roll_into(self.spans[buffer][number], flat, shift)
            if compute:
                self.bound[buffer]()
        last_buffer = (calls - 1) & 1
        try:
            return self.outputs(last_buffer)
        except KernelFailed:
            if compute:
                raise
            # Poisoned, and not run since: batches of one call never reach the second buffer.
            self.bound[last_buffer]()
            return self.outputs(last_buffer)

    def poison(self) -> dict[str, Any]:
        for bound in self.bound:
            bound.poison()
        return {}

    def outputs(self, buffer: int) -> dict[str, Any]:
        """Copy the latest outputs, and the inputs as the runs left them, to the parent."""
        arrays = self.bound[buffer].outputs()
        found = [[str(array.dtype), list(array.shape)] for array in arrays]
        slots = [TensorSlot.from_json(document) for document in self.request["outputs"]]
        if found != [[slot.dtype, list(slot.shape)] for slot in slots]:
            return {"mismatch": f"outputs are {found}"[:500]}
        for slot, array in zip(slots, arrays, strict=True):
            slot.view(slot.flat(self.answers))[...] = array
        for number, document in self.request["inputs_back"].items():
            TensorSlot.from_json(document).flat(self.answers)[...] = self.spans[buffer][int(number)]
        return self._traps()

    def check(self, set: int, buffer: int) -> dict[str, Any]:
        """Fill, poison, run once, hand the outputs over; ``run_us`` is only a hint."""
        self.fill(set, buffer)
        self.bound[buffer].poison()
        started = time.perf_counter_ns()
        self.bound[buffer]()
        elapsed = time.perf_counter_ns() - started
        return {**self.outputs(buffer), "run_us": elapsed / 1e3}

    def _set(self, index: int) -> dict[int, TensorSlot]:
        return {
            int(number): TensorSlot.from_json(slot) for number, slot in self.request["sets"][index].items()
        }

    def _bind(self, pairs: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
        self.spans.append({number: flat for number, (flat, _) in pairs.items()})
        self.bound.append(self.kernel.bind({number: view for number, (_, view) in pairs.items()}))
        if self.native:
            arrays = [*self.bound[-1].outputs(), *(flat for flat, _ in pairs.values())]
            self.fences += [Fence(array) for array in arrays]

    def _traps(self) -> dict[str, Any]:
        """What a C kernel touched that is not its own."""
        if not self.native:
            return {}
        if not all(fence.intact() for fence in self.fences):
            return {"trespass": "wrote outside of its outputs"}
        if float_state() != self.float_state:
            return {"trespass": "left the processor's rounding or flushing changed"}
        return {}

    def _private(self, slot: TensorSlot) -> tuple[np.ndarray, np.ndarray]:
        flat = aligned_empty(slot.elements, slot.flat(self.inputs).dtype)
        flat[...] = slot.flat(self.inputs)
        return flat, slot.view(flat)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
