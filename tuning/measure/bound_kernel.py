"""The child's side of a measurement: a loaded kernel, bound to a few input buffers, obeying commands.

``warm`` cache: runs alternate between the buffers (different values, same constants), as a job's calls
never see the very same activations twice. ``run(k)`` is a Python loop of k calls and nothing else, so a time
includes one call through the loader, as a job pays it.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tuning.measure.judging.guard import Edge, Fence, float_state, perturb_heap
from tuning.measure.shared_tensors import ARMED, BUFFERS, TensorSlot, aligned_empty, flag_at
from tuning.measure.transfers import transfers

SPOILED = 8
"""elements of each output."""
WAKE_NS = 600_000
"""A CPU that has slept for a millisecond runs slower for about so long."""


class BoundKernel:
    """One artifact in this process. ``inputs`` and ``staging`` are read only; ``outputs`` is written for the
    parent."""

    def __init__(self, request: dict[str, Any], inputs_fd: int, outputs_fd: int, staging_fd: int) -> None:
        self.request = request
        self.inputs = mmap.mmap(inputs_fd, 0, prot=mmap.PROT_READ) if os.fstat(inputs_fd).st_size else b""
        self.staging = mmap.mmap(staging_fd, 0, prot=mmap.PROT_READ)
        self.answers = mmap.mmap(outputs_fd, 0)
        self.output_slots = [
            [TensorSlot.from_json(document) for document in documents] for documents in request["outputs"]
        ]
        self.back_slots = [_slots(documents) for documents in request["inputs_back"]]
        self.unseen_outputs: list[list[np.ndarray]] = []
        self.taken: list[list[tuple[np.ndarray, np.ndarray]]] = []  # per unseen buffer: to, from
        self.kernel: Any = None
        self.bound: list[Any] = []
        self.spans: list[dict[int, np.ndarray]] = []
        self.native = request["manifest"]["kind"] == "c-abi"
        self.transfers = transfers(request["manifest"])
        self.fences: list[Fence] = []
        self.float_state = b""
        self.random = np.random.default_rng(int.from_bytes(os.urandom(16), "little"))
        self.commands: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load,
            "prepare": self.prepare,
            "bind": self.bind,
            "fill": self.fill,
            "poison": self.poison,
            "spoil": self.spoil,
            "outputs": self.outputs,
            "check": self.check,
            "settle": self.settle,
            "bind_unseen": self.bind_unseen,
            "give": self.give,
            "by_its_clock": self.by_its_clock,
            "each_by_its_clock": self.each_by_its_clock,
        }

    def obey(self, message: bytes) -> dict[str, Any]:
        """Do one JSON command; the answer is JSON too."""
        command = json.loads(message)
        return self.commands[command.pop("do")](**command)

    def run(self, calls: int) -> None:
        """``calls`` runs, the buffers in turn."""
        self._launch(calls)
        self.transfers.wait(self.bound[0])

    def _launch(self, calls: int) -> None:
        first, second = self.bound[0], self.bound[1]
        for _ in range(calls >> 1):
            first()
            second()
        if calls & 1:
            first()

    def by_its_clock(self, calls: int) -> dict[str, Any]:
        """The same runs, and what the device's clock says of them."""
        us = self.transfers.device_us(self.bound[0], lambda: self._launch(calls))
        self.transfers.wait(self.bound[0])
        return {"device_us": us}

    def each_by_its_clock(self, calls: int, evict_bytes: int, lead_in: bool) -> dict[str, Any]:
        """What the device's clock says of each of so many runs on each buffer (``each_us``)."""
        timed = self.bound[:BUFFERS]
        return {
            "us": [us for one in timed for us in self.transfers.each_us(one, calls, evict_bytes, lead_in)]
        }

    def run_unseen(self, calls: int, poison: bool, lead_in: bool, end: int) -> None:
        """Take ``calls`` sets and, as soon as the parent raises its flag, run once on each; with ``lead_in``
        on known values before them, which wakes the threads. ``end``, the parent's secret, says that it is
        done. Nothing sleeps in between: after a rest of a millisecond the first call takes several
        microseconds more."""
        self._take(calls, poison)
        self.transfers.wait(self.bound[0])  # what was spoilt is spoilt before anybody's clock runs
        bounds = self.bound[BUFFERS : BUFFERS + calls]
        start = flag_at(self.staging, self.request["start_at"])
        done = flag_at(self.answers, self.request["done_at"])
        started = start[0]
        done[0] = ARMED
        while start[0] == started:
            pass
        if lead_in:
            self.bound[0]()
        for bound in bounds:
            bound()
        self.transfers.wait(self.bound[0])
        done[0] = end

    def load(self) -> dict[str, Any]:
        from opatlas.load import Manifest, load

        if self.native:
            perturb_heap(True)
            self.float_state = float_state()
        if "device_bytes" in self.request:
            self.transfers.bound_memory(*self.request["device_bytes"])
        started = time.perf_counter_ns()
        self.kernel = load(Manifest.from_json(self.request["manifest"]), Path(self.request["workdir"]))
        self.transfers.guard(self.kernel)
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
        """Copy an input set into a bound buffer, in place. ``upload_us``: what bringing it to a device took,
        which is never part of a run."""
        for number, document in self.request["sets"][set].items():
            self.spans[buffer][int(number)][...] = TensorSlot.from_json(document).flat(self.inputs)
        started = time.perf_counter_ns()
        self.transfers.bring(self.bound[buffer])
        self.transfers.wait(self.bound[buffer])
        return {"upload_us": (time.perf_counter_ns() - started) / 1e3}

    def bind_unseen(self) -> dict[str, Any]:
        """One more buffer for each set that the staging memory holds."""
        for documents in self.request["staging"]:
            staged = _slots(documents)
            pairs = {number: self._room(slot, self.staging) for number, slot in staged.items()}
            self._bind(pairs)
            self.taken.append(
                [(flat, staged[number].flat(self.staging)) for number, (flat, _) in pairs.items()]
            )
        # One run each on known values: memory that was never touched is mapped page by page when it is.
        known = {number: slot.flat(self.inputs) for number, slot in self._set(0).items()}
        for spans, bound in zip(self.spans[BUFFERS:], self.bound[BUFFERS:], strict=True):
            for number, flat in known.items():
                spans[number][...] = flat
            self.transfers.bring(bound)
            bound()
        if self.native:
            self.unseen_outputs = [bound.outputs() for bound in self.bound[BUFFERS:]]
        return {}

    def _take(self, calls: int, poison: bool) -> None:
        """Copy the staged sets into their buffers. ``poison``: the outputs too; else they hold what the last
        runs left. Both are in the caches then, and the clock of a CPU that has just slept is up again."""
        copied_until = time.perf_counter_ns() + WAKE_NS
        taken = self.taken[:calls]
        while True:
            for pairs in taken:
                for target, source in pairs:
                    target[...] = source
            if time.perf_counter_ns() > copied_until:
                break
        for bound in self.bound[BUFFERS : BUFFERS + calls]:
            self.transfers.bring(bound)
        if poison:
            for bound in self.bound[BUFFERS : BUFFERS + calls]:
                bound.poison()
        for pairs, outputs in zip(taken, self.unseen_outputs, strict=False):
            for lines in (*(_lines(target) for target, _ in pairs), *map(_lines, outputs)):
                lines.sum()

    def give(self, calls: int) -> dict[str, Any]:
        """Hand over what ``run_unseen`` computed, and the inputs as it left them."""
        for call in range(calls):
            handed = self._hand_over(BUFFERS + call, call)
            if "mismatch" in handed:
                return handed
        return self._traps()

    def poison(self) -> dict[str, Any]:
        for bound in self.bound:
            bound.poison()
        return {}

    def spoil(self) -> dict[str, Any]:
        """Change a few elements of what the timed runs left, wherever they are: who computes writes them
        again, who sees that its inputs are the same and keeps its outputs does not."""
        for output in itertools.chain.from_iterable(bound.outputs() for bound in self.bound[:BUFFERS]):
            if output.size:
                highest = output.reshape(-1).view(np.uint8)[output.itemsize - 1 :: output.itemsize]
                places = self.random.integers(0, output.size, SPOILED)
                highest[places] ^= 1 if output.dtype == bool else 0x40
        for bound in self.bound[:BUFFERS]:
            self.transfers.send_outputs(bound)
        return {}

    def outputs(self, buffer: int) -> dict[str, Any]:
        """Copy the latest outputs, and the inputs as the runs left them, to the parent."""
        handed = self._hand_over(buffer, 0)
        return handed if "mismatch" in handed else {**handed, **self._traps()}

    def check(self, set: int, buffer: int) -> dict[str, Any]:
        """Fill, poison, run once, hand the outputs over; ``run_us`` is only a hint."""
        filled = self.fill(set, buffer)
        self.bound[buffer].poison()
        started = time.perf_counter_ns()
        self.bound[buffer]()
        elapsed = time.perf_counter_ns() - started
        return {**self.outputs(buffer), **filled, "run_us": elapsed / 1e3}

    def _set(self, index: int) -> dict[int, TensorSlot]:
        return _slots(self.request["sets"][index])

    def _bind(self, pairs: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
        self.spans.append({number: flat for number, (flat, _) in pairs.items()})
        self.bound.append(self.kernel.bind({number: view for number, (_, view) in pairs.items()}))
        if self.native:
            arrays = [*self.bound[-1].outputs(), *(flat for flat, _ in pairs.values())]
            self.fences += [Fence(array) for array in arrays]

    def _hand_over(self, buffer: int, call: int) -> dict[str, Any]:
        """Into the answers' place ``call``; says where the outputs are not the operator's. ``download_us``:
        what fetching them from a device took."""
        self.transfers.wait(self.bound[buffer])
        started = time.perf_counter_ns()
        arrays, slots = self.bound[buffer].outputs(), self.output_slots[call]
        fetched = {"download_us": (time.perf_counter_ns() - started) / 1e3}
        found = [[str(array.dtype), list(array.shape)] for array in arrays]
        if found != [[slot.dtype, list(slot.shape)] for slot in slots]:
            return {"mismatch": f"outputs are {found}"[:500]}
        for slot, array in zip(slots, arrays, strict=True):
            slot.view(slot.flat(self.answers))[...] = array
        self.transfers.fetch_inputs(self.bound[buffer])
        for number, slot in self.back_slots[call].items():
            slot.flat(self.answers)[...] = self.spans[buffer][number]
        return fetched

    def _traps(self) -> dict[str, Any]:
        """What a compiled kernel touched that is not its own."""
        if any(self.transfers.trespassed(bound) for bound in self.bound):
            return {"trespass": "wrote outside of its buffers on the device"}
        if not self.native:
            return {}
        if not all(fence.intact() for fence in self.fences):
            return {"trespass": "wrote outside of its outputs"}
        if float_state() != self.float_state:
            return {"trespass": "left the processor's rounding or flushing changed"}
        return {}

    def _private(self, slot: TensorSlot) -> tuple[np.ndarray, np.ndarray]:
        flat, view = self._room(slot, self.inputs)
        flat[...] = slot.flat(self.inputs)
        return flat, view

    def _room(self, slot: TensorSlot, memory: Any) -> tuple[np.ndarray, np.ndarray]:
        flat = aligned_empty(slot.elements, slot.flat(memory).dtype)
        return flat, slot.view(flat)


def _lines(array: np.ndarray) -> np.ndarray:
    """One byte of each of its cache lines; of a span, or of a whole C-contiguous output."""
    return array.reshape(-1).view(np.uint8)[::64]


def _slots(documents: dict[str, Any]) -> dict[int, TensorSlot]:
    return {int(number): TensorSlot.from_json(slot) for number, slot in documents.items()}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
