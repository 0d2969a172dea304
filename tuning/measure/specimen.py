"""One operator's data on the bench: constants, input sets, and the references only the parent holds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

from opatlas.cores import usable_cores
from opatlas.identity import Operator, Setting, describe
from tuning.measure.judging.check import Reference
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.drawing.roles import rows_to_deal
from tuning.measure.judging.inputs import TIMED, make_constants, make_runtime
from tuning.measure.judging.parts import OutputPart, part_of
from tuning.measure.shared_tensors import BUFFERS, Planner, SharedMemory, TensorSlot

CHEAP_FLOPS, CHEAP_BYTES = 3e8, 16e6
"""Up to here an operator is checked on ``FURTHER`` sets of all kinds of values beside the timed ones; beyond
it on one, in a part of its output where it has such."""
FURTHER, MOST_FURTHER, VERY_CHEAP = 3, 12, 0.1
"""Sets; as many as an operator of few rows may have, where it costs that share: each kind has a row then."""

LITTLE = 1 << 16
"""Elements of a dear operator's runtime inputs: beside its constants, they are nothing."""


class Specimen:
    """Inputs in a memory file that children can read only, with the parent's own copy beside it.

    Raises :class:`opatlas.errors.LoadError` for element types that no array can have.
    """

    def __init__(self, operator: Operator, setting: Setting) -> None:
        self.operator = operator
        self.threads = setting.threads
        self.setting = setting
        self.rng = np.random.default_rng(secrets.randbits(128))
        self.further = how_many_further(operator)
        self.sets = BUFFERS + self.further
        self.dealer, self._weights = map(Dealer, self.rng.spawn(2))
        self.part: OutputPart | None = None
        planner = Planner()
        self.constant_slots = {
            number: _place(planner, operator, number) for number in operator.constant_inputs
        }
        self.set_slots = _runtime_slots(planner, operator, self.sets)
        self.inputs = SharedMemory("inputs", planner.nbytes, ours_only=True)
        self.references: list[list[Reference]] = []
        self.own: list[dict[int, np.ndarray]] = []  # the parent's copies, which no child can write to
        self.constants: dict[int, np.ndarray] = {}
        self.renew()

    def renew(self) -> None:
        """Fresh constants, and runtime inputs in every set, for processes that are started from now on; the
        references become void."""
        weights = self._weights.hand(self.rng)
        self.constants = make_constants(self.operator, weights)
        _put(self.inputs, [self.constant_slots], [self.constants])
        rngs = self.rng.spawn(self.sets)  # a stream each: several are drawn at a time
        hands = [None if index < BUFFERS else self.dealer.hand(rng) for index, rng in enumerate(rngs)]

        def made(index: int) -> dict[int, np.ndarray]:
            name = TIMED[index] if index < BUFFERS else "strata"
            spans = make_runtime(self.operator, name, rngs[index], hands[index])
            _put(self.inputs, [self.set_slots[index]], [spans])
            return spans

        with ThreadPoolExecutor(usable_cores()) as makers:
            self.own = list(makers.map(made, range(self.sets)))
        if is_dear(self.operator):
            self.part = part_of(self.operator, self.rng, [weights, *filter(None, hands)])
        self.references = []

    def request(self) -> dict[str, Any]:
        """What a child must know to find the inputs."""
        return {
            "setting": self.setting.to_json(),
            "constants": _described(self.constant_slots),
            "sets": [_described(slots) for slots in self.set_slots],
        }

    def close(self) -> None:
        self.inputs.close()


class Staging:
    """A memory file through which one child is given sets of inputs, ``calls`` at a time."""

    def __init__(self, operator: Operator, calls: int) -> None:
        planner = Planner()
        self.slots = _runtime_slots(planner, operator, calls)
        self.start = planner.flag()
        self.memory = SharedMemory("staging", planner.nbytes, ours_only=True)

    def put(self, sets: Sequence[Mapping[int, np.ndarray]]) -> None:
        _put(self.memory, self.slots, sets)

    def request(self) -> list[dict[int, dict[str, Any]]]:
        return [_described(slots) for slots in self.slots]

    def close(self) -> None:
        self.memory.close()


class Answers:
    """A memory file in which one child hands outputs and inputs of up to ``calls`` runs back."""

    def __init__(self, operator: Operator, calls: int) -> None:
        planner = Planner()
        self.output_slots = [
            [planner.place(value.dtype, value.shape) for value in operator.output_values]
            for _ in range(calls)
        ]
        self.back_slots = _runtime_slots(planner, operator, calls)
        self.done = planner.flag()
        self.memory = SharedMemory("answers", planner.nbytes, ours_only=False)

    def poison(self) -> None:
        """Forget earlier answers, so that none can pass for a new one."""
        np.frombuffer(self.memory.map, np.uint8)[...] = 0xFF  # NaN in every floating type

    def outputs(self, call: int) -> list[np.ndarray]:
        """Copies: the child can still write to the memory."""
        return [slot.view(slot.flat(self.memory.map).copy()) for slot in self.output_slots[call]]

    def unchanged(self, spans: Mapping[int, np.ndarray], call: int) -> bool:
        """Whether the inputs that were given back are bit for bit those that were given."""
        return all(
            np.array_equal(spans[number].view(np.uint8), slot.flat(self.memory.map).copy().view(np.uint8))
            for number, slot in self.back_slots[call].items()
        )

    def request(self) -> dict[str, Any]:
        return {
            "outputs": [[slot.to_json() for slot in slots] for slots in self.output_slots],
            "inputs_back": [_described(slots) for slots in self.back_slots],
        }

    def close(self) -> None:
        self.memory.close()


class ReferenceAnswers:
    """A memory file for the reference outputs of every set (float64 for what is floating), and for what each
    of their elements may differ by."""

    def __init__(self, operator: Operator, sets: int) -> None:
        planner = Planner()
        self.slots = [
            [
                (
                    planner.place(_wide(value.dtype), value.shape),
                    planner.place(_room(value.dtype), value.shape),
                )
                for value in operator.output_values
            ]
            for _ in range(sets)
        ]
        self.memory = SharedMemory("references", planner.nbytes, ours_only=False)

    def read(self) -> list[list[Reference]]:
        return [[self._read(*pair) for pair in pairs] for pairs in self.slots]

    def _read(self, value: TensorSlot, allowed: TensorSlot) -> Reference:
        room = allowed.flat(self.memory.map)
        # One element that may differ by nothing: then none may (``reference.SMALLEST_ALLOWED``).
        exact = room.size == 0 or room[0] == 0
        return Reference(
            value.view(value.flat(self.memory.map).copy()), None if exact else allowed.view(room.copy())
        )

    def request(self) -> list[list[dict[str, Any]]]:
        return [
            [{"value": value.to_json(), "allowed": allowed.to_json()} for value, allowed in pairs]
            for pairs in self.slots
        ]

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
        outputs.place(_room(value.dtype), value.shape)
    return 9 * planner.nbytes + 9 * outputs.nbytes


def tensor_bytes(operator: Operator) -> int:
    """What its inputs and outputs take on a device, once."""
    planner = Planner()
    for number in operator.tensor_inputs:
        _place(planner, operator, number)
    for value in operator.output_values:
        planner.place(value.dtype, value.shape)
    return planner.nbytes


def how_many_further(operator: Operator) -> int:
    """Sets of all kinds of values, beside the timed ones."""
    rows, kinds = rows_to_deal(operator)
    wanted = -(-kinds // rows)
    if is_dear(operator):
        return min(MOST_FURTHER, wanted) if _needs_little(operator) else 1
    most = MOST_FURTHER if _cost(operator) <= VERY_CHEAP else FURTHER
    return max(FURTHER, min(most, wanted))


def _needs_little(operator: Operator) -> bool:
    """Whether what comes with every run of a dear operator is little, and a part of it costs little, too."""
    elements = sum(prod(operator.inputs[number].shape) for number in operator.runtime_inputs)
    return elements <= LITTLE and part_of(operator, np.random.default_rng(0)) is not None


def is_dear(operator: Operator) -> bool:
    """Whether references of all of its output are computed for timed sets alone."""
    return _cost(operator) > 1


def _cost(operator: Operator) -> float:
    described = describe(operator)
    return max(described.flops / CHEAP_FLOPS, described.bytes_moved / CHEAP_BYTES)


def _runtime_slots(planner: Planner, operator: Operator, sets: int) -> list[dict[int, TensorSlot]]:
    return [
        {number: _place(planner, operator, number) for number in operator.runtime_inputs} for _ in range(sets)
    ]


def _described(slots: Mapping[int, TensorSlot]) -> dict[int, dict[str, Any]]:
    return {number: slot.to_json() for number, slot in slots.items()}


def _put(
    memory: SharedMemory,
    places: Sequence[Mapping[int, TensorSlot]],
    sets: Sequence[Mapping[int, np.ndarray]],
) -> None:
    """Copy sets of inputs into their places; of these there may be more."""
    for slots, spans in zip(places, sets, strict=False):
        for number, slot in slots.items():
            slot.flat(memory.map)[...] = spans[number]


def _place(planner: Planner, operator: Operator, number: int) -> TensorSlot:
    value = operator.inputs[number]
    return planner.place(value.dtype, value.shape, value.strides)


def _wide(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "complex128"
    return dtype if dtype.startswith(("int", "uint", "bool")) else "float64"


def _room(dtype: str) -> str:
    return "float64" if dtype in ("float64", "complex128") else "float32"
