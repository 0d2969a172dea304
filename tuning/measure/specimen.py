"""One operator's data on the bench: constants, input sets, and the references only the parent holds."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from opatlas.identity import Operator, Setting, describe
from tuning.measure.judging.domains import domains
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_constants, make_runtime
from tuning.measure.judging.tolerance import tolerance
from tuning.measure.shared_tensors import Planner, SharedMemory, TensorSlot, roll_into

BUFFERS = 2
"""Runs alternate between this many bound copies of the runtime inputs."""
CHEAP_FLOPS, CHEAP_BYTES = 2e9, 64e6
_FIXED = ("unique", "tuple", "unique_tuple")
"""Domains whose values cannot be moved round and stay legal."""


class Specimen:
    """Inputs in a memory file that children can read only, with the parent's own copy beside it.

    Raises :class:`opatlas.errors.LoadError` for element types that no array can have.
    """

    def __init__(self, operator: Operator, setting: Setting) -> None:
        self.operator = operator
        self.threads = setting.threads
        self.tolerance = tolerance(operator, setting)
        self.rng = np.random.default_rng(secrets.randbits(128))
        self.sets = _how_many_sets(operator)
        planner = Planner()
        self.constant_slots = {
            number: _place(planner, operator, number) for number in operator.constant_inputs
        }
        self.set_slots = [
            {number: _place(planner, operator, number) for number in operator.runtime_inputs}
            for _ in range(self.sets)
        ]
        self._held_slots = {number: _place(planner, operator, number) for number in operator.runtime_inputs}
        self.held_shifts: dict[int, int] = {}
        self.inputs = SharedMemory("inputs", planner.nbytes, ours_only=True)
        self.references: list[list[np.ndarray]] = []
        self._own: list[dict[int, np.ndarray]] = []
        for number, flat in make_constants(operator, self.rng).items():
            self.constant_slots[number].flat(self.inputs.map)[...] = flat
        self.renew()

    def renew(self) -> None:
        """Fresh runtime inputs in every set; the references become void."""
        self._own = [
            make_runtime(self.operator, DISTRIBUTIONS[index], self.rng) for index in range(self.sets)
        ]
        for slots, spans in zip(self.set_slots, self._own, strict=True):
            for number, slot in slots.items():
                slot.flat(self.inputs.map)[...] = spans[number]
        self._hold_one_back()
        self.references = []

    def _hold_one_back(self) -> None:
        """One more set that no child finds anywhere: set 0 with every input moved round by a secret distance.
        It lies in the shared memory only until the references are there (:meth:`hide_held`)."""
        ruled, held = domains(self.operator), {}
        for number, slot in self._held_slots.items():
            source = self._own[0][number]
            movable = source.size > 1 and ruled[number].kind not in _FIXED
            self.held_shifts[number] = int(self.rng.integers(1, source.size)) if movable else 0
            held[number] = np.empty_like(source)
            roll_into(held[number], source, self.held_shifts[number])
            slot.flat(self.inputs.map)[...] = held[number]
        self._own.append(held)

    def runtime_spans(self) -> list[np.ndarray]:
        """The parent's copies of one set's inputs."""
        return list(self._own[0].values())

    @property
    def held(self) -> int:
        """The number of the set that is held back, among the references."""
        return self.sets

    def hide_held(self) -> None:
        for slot in self._held_slots.values():
            slot.flat(self.inputs.map).view(np.uint8)[...] = 0

    def unchanged(self, set_index: int, back: dict[int, np.ndarray]) -> bool:
        """Whether inputs that a child gave back are bit for bit those of the set."""
        spans = self._own[set_index]
        return all(
            np.array_equal(spans[number].view(np.uint8), flat.view(np.uint8)) for number, flat in back.items()
        )

    def request(self) -> dict[str, Any]:
        """What a child must know to find the inputs."""
        return {
            "constants": {number: slot.to_json() for number, slot in self.constant_slots.items()},
            "sets": [{number: slot.to_json() for number, slot in slots.items()} for slots in self.set_slots],
        }

    def reference_request(self) -> dict[str, Any]:
        """The same with the set that is held back: for references only."""
        request = self.request()
        request["sets"].append({number: slot.to_json() for number, slot in self._held_slots.items()})
        return request

    def close(self) -> None:
        self.inputs.close()


class Answers:
    """A memory file in which one child hands its outputs and inputs back."""

    def __init__(self, operator: Operator) -> None:
        planner = Planner()
        self.output_slots = [planner.place(value.dtype, value.shape) for value in operator.output_values]
        self.back_slots = {number: _place(planner, operator, number) for number in operator.runtime_inputs}
        self.memory = SharedMemory("answers", planner.nbytes, ours_only=False)

    def poison(self) -> None:
        """Forget earlier answers, so that none can pass for a new one."""
        np.frombuffer(self.memory.map, np.uint8)[...] = 0xFF  # NaN in every floating type

    def outputs(self) -> list[np.ndarray]:
        """Copies: the child can still write to the memory."""
        return [slot.view(slot.flat(self.memory.map).copy()) for slot in self.output_slots]

    def inputs_back(self) -> dict[int, np.ndarray]:
        return {number: slot.flat(self.memory.map).copy() for number, slot in self.back_slots.items()}

    def request(self) -> dict[str, Any]:
        return {
            "outputs": [slot.to_json() for slot in self.output_slots],
            "inputs_back": {number: slot.to_json() for number, slot in self.back_slots.items()},
        }

    def close(self) -> None:
        self.memory.close()


class ReferenceAnswers:
    """A memory file for the reference outputs of every set: float64 for what is floating."""

    def __init__(self, operator: Operator, sets: int) -> None:
        planner = Planner()
        self.slots = [
            [planner.place(_wide(value.dtype), value.shape) for value in operator.output_values]
            for _ in range(sets)
        ]
        self.memory = SharedMemory("references", planner.nbytes, ours_only=False)

    def read(self) -> list[list[np.ndarray]]:
        return [[slot.view(slot.flat(self.memory.map).copy()) for slot in slots] for slots in self.slots]

    def request(self) -> list[list[dict[str, Any]]]:
        return [[slot.to_json() for slot in slots] for slots in self.slots]

    def close(self) -> None:
        self.memory.close()


def needed_bytes(operator: Operator) -> int:
    """Memory that a bench takes at least: sets, private copies in two processes, references."""
    planner = Planner()
    for number in operator.tensor_inputs:
        _place(planner, operator, number)
    outputs = Planner()
    for value in operator.output_values:
        outputs.place(_wide(value.dtype), value.shape)
    return 7 * planner.nbytes + 7 * outputs.nbytes


def _how_many_sets(operator: Operator) -> int:
    described = describe(operator)
    if described.flops <= CHEAP_FLOPS and described.bytes_moved <= CHEAP_BYTES:
        return len(DISTRIBUTIONS)
    return BUFFERS + (described.flops <= 4 * CHEAP_FLOPS and described.bytes_moved <= 4 * CHEAP_BYTES)


def _place(planner: Planner, operator: Operator, number: int) -> TensorSlot:
    value = operator.inputs[number]
    return planner.place(value.dtype, value.shape, value.strides)


def _wide(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "complex128"
    return dtype if dtype.startswith(("int", "uint", "bool")) else "float64"
